#include "api/generation_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/constraint_fields.h"
#include "base/rng.h"

namespace jige::api {
namespace {

constexpr size_t kNameBytesMax = 1024;
constexpr size_t kNamesShown = 16;
constexpr int64_t kPriorityMax = 1'000'000;

ops::SamplingParams read_sampling(FieldReader& fields, const ServedModel& model) {
  ops::SamplingParams params = model.defaults;
  params.temperature =
      fields.number("temperature", {.min = 0, .max = 2}).value_or(params.temperature);
  params.top_p =
      fields.number("top_p", {.min = 0, .max = 1, .above_min = true}).value_or(params.top_p);
  params.min_p =
      fields.number("min_p", {.min = 0, .max = 1, .below_max = true}).value_or(params.min_p);
  // -1 is how other servers write "off".
  const auto top_k = fields.integer("top_k", {-1, INT32_MAX});
  if (top_k) params.top_k = *top_k < 0 ? 0 : *top_k;
  params.repetition_penalty =
      fields.number("repetition_penalty", {.min = 0, .max = 100, .above_min = true})
          .value_or(params.repetition_penalty);
  params.presence_penalty =
      fields.number("presence_penalty", {.min = -2, .max = 2}).value_or(params.presence_penalty);
  params.frequency_penalty =
      fields.number("frequency_penalty", {.min = -2, .max = 2}).value_or(params.frequency_penalty);
  return params;
}

std::optional<int64_t> read_decimal(const std::string& text) {
  if (text.empty() || text.size() > 10) return std::nullopt;
  int64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  return number;
}

std::vector<ops::LogitBias> read_logit_bias(FieldReader& fields, const ServedModel& model,
                                            const RequestLimits& limits) {
  const Json* value = fields.find("logit_bias");
  if (!value) return {};
  const auto refuse = [&](const std::string& found) {
    fields.refuse(bad_field("logit_bias",
                            "logit_bias must be an object of at most {} token ids below {} with "
                            "numbers from -100 to 100, found {}",
                            limits.biases_max, model.vocab_size, found));
    return std::vector<ops::LogitBias>();
  };
  if (!value->is_object()) return refuse(shown_value(*value));
  if (value->size() > static_cast<size_t>(limits.biases_max)) {
    return refuse(fmt::format("{} of them", value->size()));
  }
  std::vector<ops::LogitBias> biases;
  for (const auto& [key, bias] : value->items()) {
    const std::optional<int64_t> id = read_decimal(key);
    const double number = bias.is_number() ? bias.get<double>() : 1000;
    if (!id || *id >= model.vocab_size || number < -100 || number > 100) {
      return refuse(fmt::format("{}: {}", shown_value(Json(key)), shown_value(bias)));
    }
    biases.push_back({static_cast<int32_t>(*id), static_cast<float>(number)});
  }
  return biases;
}

std::shared_ptr<const grammar::TokenBits> read_allowed(FieldReader& fields,
                                                       const ServedModel& model) {
  const std::vector<int32_t> ids = fields.ids("allowed_token_ids", {0, model.vocab_size - 1},
                                              static_cast<size_t>(model.vocab_size));
  if (ids.empty()) return nullptr;
  auto allowed =
      std::make_shared<grammar::TokenBits>(static_cast<size_t>(model.vocab_size) / 64 + 1);
  for (const int32_t id : ids) {
    (*allowed)[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  }
  return allowed;
}

// The tokens of each word as it begins a text, behind a space, and within a text.
std::vector<std::vector<int32_t>> read_bad_words(FieldReader& fields, const ServedModel& model,
                                                 const RequestLimits& limits) {
  const auto most = static_cast<size_t>(limits.bad_words_max);
  const std::vector<std::string> words =
      fields.texts("bad_words", {.count_max = most, .bytes_max = limits.stop_bytes_max});
  std::vector<std::vector<int32_t>> rows;
  const auto add = [&](const std::string& text, bool continues) {
    const auto ids = model.tokenizer.encode(
        text, {.add_special = false, .allow_special = false, .continues = continues});
    if (ids && !ids->empty() && std::ranges::find(rows, *ids) == rows.end()) rows.push_back(*ids);
  };
  for (const std::string& word : words) {
    const size_t begin = word.find_first_not_of(' ');
    if (begin == std::string::npos) {
      fields.refuse(bad_field("bad_words", "bad_words must not hold an empty text"));
      continue;
    }
    const std::string bare = word.substr(begin);
    if (begin == 0) add(bare, false);
    if (begin == 0) add(bare, true);
    add(" " + bare, true);
  }
  return rows;
}

std::vector<std::string> read_stops(FieldReader& fields, const RequestLimits& limits) {
  std::vector<std::string> stops = fields.texts(
      "stop",
      {.count_max = static_cast<size_t>(limits.stops_max), .bytes_max = limits.stop_bytes_max});
  for (const std::string& stop : stops) {
    if (stop.empty()) {
      fields.refuse(bad_field("stop", "stop must not hold an empty text: it would match at once"));
    }
  }
  return stops;
}

// "\"tiny\" is", or "\"tiny\", \"poet\" are", of many the first.
std::string served_names(const ServedModel& model) {
  const std::vector<ServedAdapter> adapters = model.adapters->list();
  if (adapters.empty()) return fmt::format("\"{}\" is", model.name);
  std::string names = fmt::format("\"{}\"", model.name);
  const size_t shown = std::min(adapters.size(), kNamesShown);
  for (size_t i = 0; i < shown; ++i) names += fmt::format(", \"{}\"", adapters[i].name);
  if (shown < adapters.size()) names += fmt::format(" and {} more", adapters.size() - shown);
  return names + " are";
}

void read_streaming(FieldReader& fields, GenerationFields& read) {
  read.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.find("stream_options");
  if (!options) return;
  if (!options->is_object()) {
    return fields.refuse(bad_field("stream_options", "stream_options must be an object, found {}",
                                   shown_value(*options)));
  }
  if (!read.stream) {
    return fields.refuse(
        bad_field("stream_options", "stream_options is allowed only where stream is true"));
  }
  FieldReader inner(*options);
  read.include_usage = inner.boolean("include_usage").value_or(false);
  if (inner.error()) {
    fields.refuse(
        bad_field("stream_options.include_usage", "stream_options.{}", inner.error()->message));
  }
}

}  // namespace

GenerationFields read_generation_fields(FieldReader& fields, const ServedModel& model,
                                        const RequestLimits& limits, uint64_t seed) {
  GenerationFields read;
  serve::EngineRequest& engine = read.engine;
  engine.sampling = read_sampling(fields, model);
  engine.sampling.logit_bias = read_logit_bias(fields, model, limits);
  const auto given_seed = fields.integer("seed", {});
  engine.seed = given_seed ? static_cast<uint64_t>(*given_seed) : seed;
  engine.choice_count =
      static_cast<int32_t>(fields.integer("n", {1, limits.choices_max}).value_or(1));
  engine.tokens_min = fields.integer("min_tokens", {0, INT32_MAX}).value_or(0);
  engine.stop_strings = read_stops(fields, limits);
  engine.stop_ids = fields.ids("stop_token_ids", {0, model.vocab_size - 1},
                               static_cast<size_t>(limits.stop_ids_max));
  engine.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  engine.include_stop_string = fields.boolean("include_stop_str_in_output").value_or(false);
  // As other servers have it, a lower number goes first; the engine has it the other way.
  engine.priority =
      static_cast<int32_t>(-fields.integer("priority", {-kPriorityMax, kPriorityMax}).value_or(0));
  const auto user = fields.text("user", kNameBytesMax);
  if (user && !user->empty()) engine.tenant = derive_key(0, *user);
  const auto salt = fields.text("cache_salt", kNameBytesMax);
  if (salt && !salt->empty()) engine.cache_salt = derive_key(1, *salt);
  read_streaming(fields, read);
  engine.constraint = read_constraint(fields, model);
  engine.allowed = read_allowed(fields, model);
  engine.forbidden_rows = read_bad_words(fields, model, limits);
  return read;
}

std::string_view wire_field(serve::RequestField field, Endpoint endpoint) {
  using enum serve::RequestField;
  switch (field) {
    case kPrompt:
      if (endpoint == Endpoint::kCompletions) return "prompt";
      return endpoint == Endpoint::kResponses ? "input" : "messages";
    case kChoiceCount:
      return "n";
    case kTopCount:
      return endpoint == Endpoint::kCompletions ? "logprobs" : "top_logprobs";
    case kPromptTopCount:
      return "prompt_logprobs";
    case kTokensMax:
      return endpoint == Endpoint::kResponses ? "max_output_tokens" : "max_tokens";
    case kTokensMin:
      return "min_tokens";
    case kLogitBias:
      return "logit_bias";
    case kAdapter:
      return "model";
    case kVector:
    case kSampling:
    case kNone:
      return "";
  }
  return "";
}

ChosenAdapter read_model_name(FieldReader& fields, const ServedModel& model) {
  const std::optional<std::string> name = fields.text("model", kNameBytesMax);
  if (!name) return {};
  if (auto found = model.find(*name)) return std::move(*found);
  fields.refuse({.status = 404,
                 .message = fmt::format("the model \"{}\" is not served here; {}", *name,
                                        served_names(model)),
                 .param = "model",
                 .code = "model_not_found"});
  return {};
}

}  // namespace jige::api
