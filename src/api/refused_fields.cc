#include "api/refused_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

namespace jige::api {
namespace {

struct Refused {
  std::string_view name;
  // The value that asks for nothing; the text "empty" stands for null and empty values alone.
  std::string_view harmless;
  std::string_view what;
};

constexpr Refused kAll[] = {
    {"use_beam_search", "false", "beam search is"},
    {"skip_special_tokens", "true", "showing special tokens as text is"},
    {"return_token_ids", "false", "token ids in answers are"},
    {"return_tokens_as_token_ids", "false", "token ids in answers are"},
};

constexpr Refused kCompletions[] = {
    {"suffix", "\"\"", "filling in before a suffix is"},
};

constexpr Refused kChat[] = {
    {"functions", "empty", "function calls are"},
    {"function_call", "\"none\"", "function calls are"},
    {"audio", "empty", "audio is"},
    {"prediction", "empty", "predicted output is"},
    {"web_search_options", "empty", "web search is"},
    {"chat_template", "empty", "a template in the request is"},
    {"documents", "empty", "documents are"},
};

constexpr Refused kResponses[] = {
    {"previous_response_id", "empty", "answers are not kept, and going on from one is"},
    {"conversation", "empty", "answers are not kept, and conversations are"},
    {"background", "false", "answering in the background is"},
    {"prompt", "empty", "prompts that the server keeps are"},
    {"truncation", "\"disabled\"", "cutting the input is"},
    {"prompt_logprobs", "empty", "log-probabilities of prompts on this route are"},
};

constexpr Refused kMessages[] = {
    {"prompt_logprobs", "empty", "log-probabilities on this route are"},
    {"container", "empty", "containers are"},
    {"mcp_servers", "empty", "servers of tools are"},
    {"prefill", "empty", "beginning the answer is"},
};

void refuse_from(FieldReader& fields, std::span<const Refused> list) {
  for (const Refused& entry : list) {
    const Json* value = fields.find(entry.name);
    if (!value) continue;
    const bool empty = value->is_structured() && value->empty();
    if (empty) continue;
    if (!value->is_structured() && shown_value(*value) == entry.harmless) continue;
    fields.refuse(unsupported_field(std::string(entry.name), entry.what));
  }
}

void refuse_modalities(FieldReader& fields) {
  const Json* list = fields.find("modalities");
  if (!list) return;
  if (list->is_array() && list->size() == 1 && (*list)[0] == "text") return;
  ApiError error = bad_field("modalities", "modalities: only [\"text\"] is supported");
  error.code = "unsupported_parameter";
  fields.refuse(std::move(error));
}

void refuse_best_of(FieldReader& fields) {
  const std::optional<int64_t> best_of = fields.integer("best_of", {1, 1024});
  if (!best_of) return;
  const Json* n = fields.find("n");
  if (*best_of == (n ? as_integer(*n).value_or(1) : 1)) return;
  ApiError error =
      bad_field("best_of", "best_of: choosing among more answers than n is not supported");
  error.code = "unsupported_parameter";
  fields.refuse(std::move(error));
}

// Edits of the context that leave it as it is pass: agents send the second with every request.
bool edits_nothing(const Json& management) {
  const Json* edits = find_field(management, "edits");
  if (!edits || !edits->is_array()) return management.empty();
  return std::ranges::all_of(*edits, [](const Json& edit) {
    const Json* type = find_field(edit, "type");
    const Json* keep = find_field(edit, "keep");
    return type && *type == "clear_thinking_20251015" && keep && *keep == "all";
  });
}

void refuse_context_edits(FieldReader& fields) {
  const Json* management = fields.find("context_management");
  if (!management || edits_nothing(*management)) return;
  fields.refuse(unsupported_field("context_management", "editing the context is"));
}

}  // namespace

void refuse_unserved(FieldReader& fields, Endpoint endpoint) {
  refuse_from(fields, kAll);
  switch (endpoint) {
    case Endpoint::kCompletions:
      refuse_from(fields, kCompletions);
      return refuse_best_of(fields);
    case Endpoint::kChat:
      refuse_from(fields, kChat);
      return refuse_modalities(fields);
    case Endpoint::kResponses:
      return refuse_from(fields, kResponses);
    case Endpoint::kMessages:
      refuse_from(fields, kMessages);
      return refuse_context_edits(fields);
  }
}

}  // namespace jige::api
