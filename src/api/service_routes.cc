// The routes of Service that do not generate.
#include <nlohmann/json.hpp>

#include "api/chat_request.h"
#include "api/messages_request.h"
#include "api/service.h"
#include "text/token_text.h"

namespace jige::api {
namespace {

constexpr size_t kIdsMax = size_t{1} << 20;  // of one call

// The model, or one of its adapters, which has it as its parent.
Json model_json(const ServedModel& model, const ServedAdapter* adapter) {
  Json json = {{"id", adapter ? adapter->name : model.name},
               {"object", "model"},
               {"created", adapter ? adapter->created_s : model.created_s},
               {"owned_by", "jige"},
               {"root", adapter ? adapter->root : model.name},
               {"parent", adapter ? Json(model.name) : Json()},
               {"max_model_len", model.context_max}};
  if (model.pairs) {
    json["type"] = "rerank";
    json["max_model_len"] = model.pairs->tokens_max;
    return json;
  }
  if (!model.embedding) {
    json["chat_template"] = model.chat_template.has_value();
    json["reads_images"] = model.images != nullptr;
    return json;
  }
  json["type"] = "embedding";
  json["max_model_len"] = model.embedding->tokens_max;
  json["embedding_dimensions"] = model.embedding->width;
  json["prompts"] = Json::array();
  for (const auto& prompt : model.embedding->config.prompts) {
    json["prompts"].push_back(prompt.first);
  }
  return json;
}

HttpResponse state_response(std::string_view state, int status) {
  HttpResponse response = json_response({{"status", state}}, status);
  if (status == 503) response.headers.push_back({"Retry-After", "2"});
  return response;
}

// The spelling of each token, with U+FFFD for bytes that are not UTF-8.
Json token_texts(const ServedModel& model, const std::vector<int32_t>& ids) {
  Json texts = Json::array();
  for (const int32_t id : ids) texts.push_back(text::token_text(model.tokenizer, id));
  return texts;
}

ApiResult<Json> tokenize_body(const Json& body, const ServedModel& model,
                              const RequestLimits& limits) {
  FieldReader fields(body);
  read_model_name(fields, model);  // one tokenizer for all
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  const bool with_texts = fields.boolean("return_token_strs").value_or(false);
  if (fields.error()) return tl::unexpected(*fields.error());
  const Json* prompt = fields.find("prompt");
  ApiResult<std::vector<int32_t>> ids;
  if (fields.find("messages")) {
    const ToolRequest tools = read_tools(fields, model);
    auto chat = encode_messages(fields, tools, model, limits);
    if (!chat) return tl::unexpected(std::move(chat.error()));
    if (!chat->images.empty()) {
      return tl::unexpected(bad_field("messages",
                                      "messages: images have no ids to show; what they take is "
                                      "counted by POST /v1/messages/count_tokens"));
    }
    ids = std::move(chat->ids);
  } else if (prompt && prompt->is_string()) {
    Result<std::vector<int32_t>> encoded = model.tokenizer.encode(
        prompt->get_ref<const std::string&>(), {.add_special = add_special, .tokens_max = kIdsMax});
    if (!encoded) return tl::unexpected(to_text_error(encoded.error(), "prompt"));
    ids = std::move(*encoded);
  } else {
    return tl::unexpected(bad_field("prompt", "prompt must be a text, or messages be given"));
  }
  if (!ids) return tl::unexpected(std::move(ids.error()));
  Json json = {{"count", ids->size()},
               {"max_model_len", model.context_max},
               {"tokens", *ids},
               {"token_strs", nullptr}};
  if (with_texts) json["token_strs"] = token_texts(model, *ids);
  return json;
}

ApiResult<Json> detokenize_body(const Json& body, const ServedModel& model) {
  FieldReader fields(body);
  read_model_name(fields, model);  // one tokenizer for all
  if (!fields.find("tokens")) fields.refuse(bad_field("tokens", "tokens is missing"));
  const std::vector<int32_t> ids =
      fields.ids("tokens", {0, model.tokenizer.vocab_size() - 1}, kIdsMax);
  if (fields.error()) return tl::unexpected(*fields.error());
  const Result<std::string> text = model.tokenizer.decode(ids, {});
  if (!text) return tl::unexpected(to_text_error(text.error(), "tokens"));
  return Json{{"prompt", *text}};
}

void answer(const std::shared_ptr<Responder>& respond, ApiResult<Json> result,
            ErrorForm form = ErrorForm::kOpenAi) {
  // Written out here, not on the server's thread: it may be long.
  HttpResponse response = result ? json_response(*result) : error_response(result.error(), form);
  respond->post([respond, response = std::move(response)] { respond->respond(response); });
}

}  // namespace

bool Service::answers_go_on() const {
  const ServedModel* model = ready_model();
  if (!model) return true;
  const serve::EngineStatus status = model->engine->status();
  return !status.stalled || status.layers_lost;
}

void Service::health(HttpRequest, const Respond& respond) {
  const ServedModel* model = ready_model();
  if (!model) return respond->respond(state_response("loading", 200));
  const serve::EngineStatus status = model->engine->status();
  if (!status.stalled && !status.layers_lost) return respond->respond(state_response("ok", 200));
  Json json = {{"status", status.layers_lost ? "layers_lost" : "stalled"},
               {"seconds_since_iteration", status.seconds_since_iteration}};
  HttpResponse response = json_response(json, 503);
  response.headers.push_back({"Retry-After", "2"});
  respond->respond(std::move(response));
}

void Service::ready(HttpRequest, const Respond& respond) {
  if (!ready_model()) return respond->respond(state_response("loading", 503));
  if (draining_) return respond->respond(state_response("draining", 503));
  respond->respond(state_response("ready", 200));
}

void Service::version(HttpRequest, const Respond& respond) {
  respond->respond(json_response({{"version", options_.version}}));
}

MetricsSource Service::metrics_source() const {
  MetricsSource source;
  const ServedModel* model = ready_model();
  source.model = model ? model->name : options_.model_name;
  source.engine = model ? model->engine : nullptr;
  if (model) source.adapters = model->adapters;
  if (model && model->replan) source.replan = model->replan();
  if (model && model->embedding) source.embedding_dimensions = model->embedding->width;
  if (model && model->images) source.images = model->images->counts();
  source.responses = table_.responses();
  const std::lock_guard lock(mutex_);
  if (options_.http_stats) source.http = options_.http_stats();
  source.peaks = peaks_;
  return source;
}

void Service::metrics(HttpRequest, const Respond& respond) {
  respond->respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                    .body = metrics_text(metrics_source())});
}

void Service::top(HttpRequest, const Respond& respond) {
  respond->respond(json_response(top_json(metrics_source())));
}

void Service::list_models(HttpRequest, const Respond& respond) {
  Json data = Json::array();
  if (const ServedModel* model = ready_model()) {
    data.push_back(model_json(*model, nullptr));
    for (const ServedAdapter& adapter : model->adapters->list()) {
      data.push_back(model_json(*model, &adapter));
    }
  }
  respond->respond(json_response({{"object", "list"}, {"data", std::move(data)}}));
}

void Service::show_model(HttpRequest request, const Respond& respond) {
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  const ServedModel* model = ready_model();
  if (model && name == model->name) {
    return respond->respond(json_response(model_json(*model, nullptr)));
  }
  if (const auto adapter = model ? model->adapters->find(name) : std::nullopt) {
    return respond->respond(json_response(model_json(*model, &*adapter)));
  }
  respond->respond(error_response(
      {.status = 404,
       .message = fmt::format("the model {} is not served here", shown_value(Json(name))),
       .param = "model",
       .code = "model_not_found"}));
}

void Service::tokenize(HttpRequest request, const Respond& respond) {
  with_body(std::move(request), respond, [this](const Json& body, const Respond& to) {
    answer(to, tokenize_body(body, *model_, options_.limits));
  });
}

void Service::count_tokens(HttpRequest request, const Respond& respond) {
  with_body(std::move(request), respond, [this](const Json& body, const Respond& to) {
    answer(to, count_message_tokens(body, *model_, options_.limits), ErrorForm::kAnthropic);
  });
}

void Service::detokenize(HttpRequest request, const Respond& respond) {
  with_body(std::move(request), respond, [this](const Json& body, const Respond& to) {
    answer(to, detokenize_body(body, *model_));
  });
}

}  // namespace jige::api
