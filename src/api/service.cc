#include "api/service.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "api/body_job.h"
#include "api/chat_request.h"
#include "api/embedding_request.h"
#include "api/generation_session.h"
#include "api/image_reader.h"
#include "api/messages_request.h"
#include "api/page.h"
#include "api/rerank_request.h"
#include "api/responses_request.h"
#include "base/clock.h"
#include "base/rng.h"

namespace jige::api {
namespace {

constexpr size_t kLoadsMax = 16;  // adapters that may wait to be loaded

std::string_view id_prefix(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kCompletions:
      return "cmpl-";
    case Endpoint::kChat:
      return "chatcmpl-";
    case Endpoint::kResponses:
      return "resp_";
    case Endpoint::kMessages:
      return "msg_";
  }
  return "";
}

using Prepare = ApiResult<PreparedRequest> (*)(const Json&, const ServedModel&,
                                               const RequestLimits&, uint64_t seed);

Prepare prepare_of(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kCompletions:
      return prepare_completion;
    case Endpoint::kChat:
      return prepare_chat;
    case Endpoint::kResponses:
      return prepare_responses;
    case Endpoint::kMessages:
      return prepare_messages;
  }
  return prepare_completion;
}

}  // namespace

Service::Service(ServiceOptions options)
    : options_(std::move(options)),
      table_(options_.keys, routes()),
      key_(derive_key(static_cast<uint64_t>(RealClock().now_ns()) ^
                          static_cast<uint64_t>(std::time(nullptr)) << 20,
                      "service")),
      work_(options_.work),
      loading_({.thread_count = 1, .jobs_max = kLoadsMax}) {}

Service::~Service() { stop(); }

void Service::stop() {
  work_.stop();
  loading_.stop();
  const ServedModel* model = ready_model();
  if (model && model->images) model->images->stop();
}

HttpHandler Service::handler() {
  return [this](HttpRequest request, std::shared_ptr<Responder> responder) {
    handle(std::move(request), std::move(responder));
  };
}

void Service::set_model(ServedModel model) {
  model_ = std::move(model);
  model_set_ = true;
}

void Service::set_peaks(MachinePeaks peaks) {
  const std::lock_guard lock(mutex_);
  peaks_ = peaks;
}

void Service::set_http_stats(std::function<HttpServerStats()> stats) {
  const std::lock_guard lock(mutex_);
  options_.http_stats = std::move(stats);
}

const ServedModel* Service::ready_model() const { return model_set_ ? &*model_ : nullptr; }

std::vector<RouteTable::Route> Service::routes() {
  const auto by = [this](void (Service::*method)(HttpRequest, const Respond&)) {
    return [this, method](HttpRequest request, const Respond& respond) {
      (this->*method)(std::move(request), respond);
    };
  };
  return {
      {{"GET", "/health"}, by(&Service::health)},
      {{"GET", "/ready"}, by(&Service::ready)},
      {{"GET", "/version"}, by(&Service::version)},
      {{"GET", "/metrics"}, by(&Service::metrics)},
      {{"GET", "/top"}, by(&Service::top)},
      {{"GET", "/v1/models"}, by(&Service::list_models)},
      {{"GET", "/v1/models/", true}, by(&Service::show_model)},
      {{"POST", "/tokenize"}, by(&Service::tokenize)},
      {{"POST", "/detokenize"}, by(&Service::detokenize)},
      {{"POST", "/v1/load_lora_adapter"}, by(&Service::load_adapter)},
      {{"POST", "/v1/unload_lora_adapter"}, by(&Service::unload_adapter)},
      {{"POST", "/v1/embeddings"}, by(&Service::embeddings)},
      {{"POST", "/v1/rerank"}, by(&Service::rerank)},
      {{"POST", "/v2/rerank"}, by(&Service::rerank)},
      {{"POST", "/v1/completions"}, by(&Service::completions)},
      {{"POST", "/v1/chat/completions"}, by(&Service::chat_completions)},
      {{"POST", "/v1/responses"}, by(&Service::responses)},
      {{"POST", "/v1/messages"}, by(&Service::messages)},
      {{"POST", "/v1/messages/count_tokens"}, by(&Service::count_tokens)},
  };
}

void Service::handle(HttpRequest request, Respond responder) {
  if (const PageFile* file = options_.page ? find_page_file(request.path) : nullptr) {
    // All of its files under one label.
    return table_.counted(std::move(responder), "/")->respond(page_response(*file, request));
  }
  table_.handle(std::move(request), std::move(responder));
}

std::optional<ApiError> Service::unready() const {
  if (!ready_model()) {
    return ApiError{
        .status = 503, .message = "the model is loading", .code = "loading", .retry_after_s = 2};
  }
  if (draining_) return draining_error();
  return std::nullopt;
}

std::optional<ApiError> Service::queue_full(const HttpRequest& request) const {
  const ServedModel* model = ready_model();
  const Status open = model->engine->admission_check(static_cast<int64_t>(request.body.size()));
  if (open) return std::nullopt;
  ApiError error = to_api_error(open.error());
  error.retry_after_s = model->engine->retry_after_seconds();
  return error;
}

void Service::with_body(HttpRequest request, const Respond& respond, BodyHandler body_handler) {
  if (const std::optional<ApiError> refusal = unready()) {
    return respond->respond(error_response(*refusal, error_form(request.path)));
  }
  const auto on_body = [handle_body = std::move(body_handler)](
                           const std::shared_ptr<HttpRequest>&, const Json& body,
                           const Respond& to) { handle_body(body, to); };
  read_body(work_, std::move(request), respond, {.on_body = on_body, .draining = &draining_});
}

std::string Service::next_id(std::string_view prefix) {
  return fmt::format("{}{:016x}", prefix, derive_key(key_, "id", next_number_++));
}

AnswerHead Service::next_head(Endpoint endpoint) {
  AnswerHead head;
  head.endpoint = endpoint;
  head.id = next_id(id_prefix(endpoint));
  head.created_s = static_cast<int64_t>(std::time(nullptr));
  return head;
}

std::optional<ApiError> Service::never_fits(const std::vector<serve::EngineRequest>& prompts,
                                            std::string_view field, std::string_view noun) const {
  const serve::EngineOptions& options = model_->engine->options();
  const int64_t count = std::ssize(prompts);
  if (count > options.waiting_requests_max) {
    return bad_field(std::string(field),
                     "the request has {} {}s and the queue of this server holds {}; send fewer "
                     "at once, or start it with a larger --queue-requests",
                     count, noun, options.waiting_requests_max);
  }
  int64_t tokens = 0;
  for (const serve::EngineRequest& one : prompts) tokens += std::ssize(one.prompt);
  // One prompt alone is taken whatever its length.
  if (count == 1 || tokens <= options.waiting_prompt_tokens_max) return std::nullopt;
  return bad_field(std::string(field),
                   "the {}s have {} tokens together and the queue of this server holds {}; "
                   "send fewer at once, or start it with a larger --queue-tokens",
                   noun, tokens, options.waiting_prompt_tokens_max);
}

std::optional<ApiError> Service::wrong_kind(ServedKind wanted) const {
  struct Words {
    const char* served;  // for what
    const char* lacks;   // what is wanted of others
    const char* code;    // of that refusal
    const char* sends;   // what to do with such a model, where an answer is wanted
    const char* starts;  // what to start instead
  };
  static constexpr Words kWords[] = {
      {"answers", "gives no answers", "", "", "with a model that answers"},
      {"embeddings", "makes no vectors", "no_embeddings", "texts to POST /v1/embeddings",
       "with the folder of an embedding model, or with --embeddings"},
      {"reranking", "judges no documents", "no_rerank", "a query and documents to POST /v1/rerank",
       "with the folder of a reranker, or with --rerank"}};
  const ServedKind kind = model_->kind();
  if (kind == wanted) return std::nullopt;
  const Words& have = kWords[static_cast<size_t>(kind)];
  const Words& want = kWords[static_cast<size_t>(wanted)];
  const bool answers = wanted == ServedKind::kAnswers;
  const std::string instead = answers ? fmt::format("send {}, or ", have.sends) : "";
  const char* only = kind == ServedKind::kPairs ? "rerank_only" : "embeddings_only";
  return ApiError{
      .message = fmt::format("the model \"{}\" is served for {} and {}; {}start `jige serve` {}",
                             model_->name, have.served, want.lacks, instead, want.starts),
      .param = "model",
      .code = answers ? only : want.code};
}

void Service::generate(HttpRequest request, const Respond& respond, Endpoint endpoint) {
  std::optional<ApiError> refusal = unready();
  if (!refusal) refusal = wrong_kind(ServedKind::kAnswers);
  if (!refusal) refusal = queue_full(request);
  const ErrorForm form = error_form(request.path);
  if (refusal) return respond->respond(error_response(*refusal, form));
  with_body(std::move(request), respond,
            [this, endpoint, form](const Json& body, const Respond& to) {
              AnswerHead head = next_head(endpoint);
              const uint64_t seed = derive_key(key_, head.id);
              auto prepared = prepare_of(endpoint)(body, *model_, options_.limits, seed);
              if (prepared) {
                if (auto error = never_fits(prepared->engine, "prompt", "prompt")) {
                  prepared = tl::unexpected(std::move(*error));
                }
              }
              if (!prepared) {
                return to->post([to, form, error = std::move(prepared.error())] {
                  to->respond(error_response(error, form));
                });
              }
              const int32_t adapter = prepared->engine.front().adapter;
              head.model = model_->name_of(adapter);
              head.fingerprint = model_->fingerprint_of(adapter);
              head.logprobs = prepared->logprobs;
              head.reasoning = prepared->engine.front().reasoning != text::ReasoningStart::kNone;
              head.include_usage = prepared->include_usage;
              head.prompt_tokens = prepared->prompt_tokens;
              head.echo = std::move(prepared->echo);
              const auto session = std::make_shared<GenerationSession>(
                  std::move(head), std::move(*prepared), *model_, work_, to);
              to->post([session] { session->start(); });
            });
}

void Service::make_vectors(HttpRequest request, const Respond& respond, const VectorRoute& route) {
  std::optional<ApiError> refusal = unready();
  if (!refusal) refusal = wrong_kind(route.kind);
  if (!refusal) refusal = queue_full(request);
  if (refusal) return respond->respond(error_response(*refusal));
  with_body(std::move(request), respond, [this, route](const Json& body, const Respond& to) {
    std::string id = next_id(route.id_prefix);
    auto prepared = route.prepare(body, *model_, options_.limits, derive_key(key_, id));
    if (prepared) {
      if (auto error = never_fits(prepared->engine, prepared->field, prepared->noun)) {
        prepared = tl::unexpected(std::move(*error));
      }
    }
    if (!prepared) {
      return to->post(
          [to, error = std::move(prepared.error())] { to->respond(error_response(error)); });
    }
    const auto session = std::make_shared<VectorSession>(std::move(id), std::move(*prepared),
                                                         *model_->engine, work_, to);
    to->post([session] { session->start(); });
  });
}

void Service::embeddings(HttpRequest request, const Respond& respond) {
  make_vectors(std::move(request), respond,
               {.kind = ServedKind::kEmbeddings, .id_prefix = "embd-", .prepare = embedding_work});
}

void Service::rerank(HttpRequest request, const Respond& respond) {
  make_vectors(std::move(request), respond,
               {.kind = ServedKind::kPairs, .id_prefix = "rerank-", .prepare = rerank_work});
}

void Service::completions(HttpRequest request, const Respond& respond) {
  generate(std::move(request), respond, Endpoint::kCompletions);
}

void Service::chat_completions(HttpRequest request, const Respond& respond) {
  generate(std::move(request), respond, Endpoint::kChat);
}

void Service::responses(HttpRequest request, const Respond& respond) {
  generate(std::move(request), respond, Endpoint::kResponses);
}

void Service::messages(HttpRequest request, const Respond& respond) {
  generate(std::move(request), respond, Endpoint::kMessages);
}

}  // namespace jige::api
