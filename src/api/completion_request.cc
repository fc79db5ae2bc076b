#include "api/completion_request.h"

#include <nlohmann/json.hpp>

#include "api/refused_fields.h"
#include "api/token_lists.h"
#include "serve/context_hint.h"

namespace jige::api {
namespace {

constexpr int64_t kTokensDefault = 16;  // the OpenAI API's
// Of a body, which take many times their text: what 8 MiB may hold. Larger bodies have long texts,
// such as images.
constexpr size_t kBodyValuesMax = size_t{4} << 20;

ApiError too_long(std::string_view found, const ServedModel& model, std::string_view param) {
  ApiError error = bad_field(std::string(param),
                             "the prompt has {} tokens, and the context holds {} for prompt and "
                             "answer together; shorten it{}",
                             found, model.context_max,
                             serve::context_hint(model.context_max, model.model_context_max));
  error.code = "context_length_exceeded";
  return error;
}

// The ids of a text; no more than the context holds where `capped`.
ApiResult<std::vector<int32_t>> encode_prompt(const std::string& text, const ServedModel& model,
                                              bool add_special, bool capped) {
  text::EncodeOptions options{.add_special = add_special};
  if (capped) options.tokens_max = static_cast<size_t>(model.context_max);
  Result<std::vector<int32_t>> ids = model.tokenizer.encode(text, options);
  if (ids) return std::move(*ids);
  if (ids.error().code != Code::kExhausted) {
    return tl::unexpected(to_text_error(ids.error(), "prompt"));
  }
  return tl::unexpected(too_long(fmt::format("more than {}", model.context_max), model, "prompt"));
}

struct PromptReader {
  const ServedModel& model;
  const PromptFields& fields;
  int64_t tokens_max;
  bool add_special;

  ApiResult<std::vector<int32_t>> read(const Json& value) const {
    const bool is_ids = is_id_list(value);
    if (!is_ids && !value.is_string()) {
      return tl::unexpected(bad_field("prompt",
                                      "prompt must be a text, a list of texts, a list of token ids "
                                      "or a list of such lists, found {}",
                                      shown_value(value)));
    }
    auto ids = is_ids ? read_id_list(value, model.vocab_size, "prompt")
                      : encode_prompt(value.get_ref<const std::string&>(), model, add_special,
                                      !fields.truncate);
    if (!ids) return ids;
    if (fields.truncate) fields.cut(*ids, tokens_max, model.context_max);
    if (auto error = check_prompt_length(ids->size(), model, "prompt")) {
      return tl::unexpected(std::move(*error));
    }
    return ids;
  }

  // What it is echoed as; none: what its ids are decoded to.
  std::optional<std::string> text_of(const Json& value) const {
    if (!value.is_string() || fields.truncate) return std::nullopt;
    return value.get<std::string>();
  }
};

// The prompts as a list of texts and id lists.
ApiResult<std::vector<const Json*>> list_prompts(const FieldReader& fields, int32_t choice_count,
                                                 const RequestLimits& limits) {
  const Json* prompt = fields.find("prompt");
  if (!prompt) return tl::unexpected(bad_field("prompt", "prompt is missing"));
  if (!prompt->is_array() || is_id_list(*prompt)) return std::vector<const Json*>{prompt};
  const auto most = static_cast<size_t>(limits.prompts_max);
  if (prompt->empty() || prompt->size() > most ||
      prompt->size() * static_cast<size_t>(choice_count) > most) {
    return tl::unexpected(bad_field("prompt",
                                    "prompt must be a list of 1 to {} prompts, and prompts times n "
                                    "at most as many, found {} and n = {}",
                                    most, prompt->size(), choice_count));
  }
  std::vector<const Json*> prompts;
  for (const Json& item : *prompt) prompts.push_back(&item);
  return prompts;
}

}  // namespace

ApiResult<Json> parse_body(std::string_view body) {
  Result<Json> parsed = parse_json(body, "the body", kJsonDepthMax, kBodyValuesMax);
  if (!parsed) {
    return tl::unexpected(ApiError{.message = std::move(parsed.error().message)});
  }
  if (!parsed->is_object()) {
    return tl::unexpected(
        ApiError{.message = "the body must be a JSON object, found " + shown_value(*parsed)});
  }
  return std::move(*parsed);
}

std::optional<ApiError> check_prompt_length(size_t token_count, const ServedModel& model,
                                            std::string_view param) {
  if (token_count == 0) return bad_field(std::string(param), "{} makes no tokens", param);
  if (token_count < static_cast<size_t>(model.context_max)) return std::nullopt;
  return too_long(std::to_string(token_count), model, param);
}

ApiResult<PreparedRequest> prepare_completion(const Json& body, const ServedModel& model,
                                              const RequestLimits& limits, uint64_t seed) {
  FieldReader fields(body);
  ChosenAdapter adapter = read_model_name(fields, model);
  refuse_unserved(fields, Endpoint::kCompletions);
  GenerationFields read = read_generation_fields(fields, model, limits, seed);
  read.engine.adapter = adapter.number;
  read.engine.lease = std::move(adapter.lease);
  PromptFields prompt = read_prompt_fields(fields, limits, Endpoint::kCompletions, read.stream);
  read.engine.tokens_max =
      fields.integer("max_tokens", {prompt.tokens_least(), INT32_MAX}).value_or(kTokensDefault);
  const auto top = fields.integer("logprobs", {0, limits.top_logprobs_max});
  read.engine.logprobs = top.has_value();
  read.engine.top_count = static_cast<int>(top.value_or(0));
  ask_for_scores(prompt, top, read.engine);
  const bool add_special = fields.boolean("add_special_tokens").value_or(true);
  if (read.engine.tokens_min > read.engine.tokens_max) {
    fields.refuse(bad_field("min_tokens", "min_tokens must be at most max_tokens, {}, found {}",
                            read.engine.tokens_max, read.engine.tokens_min));
  }
  if (fields.error()) return tl::unexpected(*fields.error());

  const auto prompts = list_prompts(fields, read.engine.choice_count, limits);
  if (!prompts) return tl::unexpected(prompts.error());
  PreparedRequest prepared{.stream = read.stream,
                           .include_usage = read.include_usage,
                           .logprobs = top.has_value(),
                           .prompt = prompt.shown};
  const PromptReader reader{model, prompt, read.engine.tokens_max, add_special};
  for (size_t i = 0; i < prompts->size(); ++i) {
    const Json& value = *(*prompts)[i];
    auto ids = reader.read(value);
    if (!ids) return tl::unexpected(std::move(ids.error()));
    serve::EngineRequest request = read.engine;
    request.continues_text = true;
    request.prompt = std::move(*ids);
    // Prompts of one request draw from streams of their own.
    request.seed += i;
    prepared.engine.push_back(std::move(request));
    if (prompt.shown.echo) prepared.prompt_texts.push_back(reader.text_of(value));
  }
  if (auto error = check_score_count(prepared.engine, limits)) {
    return tl::unexpected(std::move(*error));
  }
  prepared.prompt_tokens = std::ssize(prepared.engine.front().prompt);
  return prepared;
}

}  // namespace jige::api
