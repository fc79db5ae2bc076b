#include "api/prompt_fields.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace jige::api {

void PromptFields::cut(std::vector<int32_t>& ids, int64_t tokens_max, int64_t context_max) const {
  const int64_t room = std::max<int64_t>(1, context_max - std::max<int64_t>(1, tokens_max));
  const int64_t kept = *truncate < 0 ? room : *truncate;
  if (std::ssize(ids) > kept) ids.erase(ids.begin(), ids.end() - kept);
}

PromptFields read_prompt_fields(FieldReader& fields, const RequestLimits& limits, Endpoint endpoint,
                                bool stream) {
  PromptFields read;
  if (endpoint == Endpoint::kCompletions) {
    read.shown.echo = fields.boolean("echo").value_or(false);
  }
  const auto top = fields.integer("prompt_logprobs", {0, limits.top_logprobs_max});
  if (top) read.shown.prompt_logprobs = static_cast<int32_t>(*top);
  if (top && stream) {
    fields.refuse(bad_field(
        "prompt_logprobs", "prompt_logprobs come with whole answers alone; set stream to false{}",
        endpoint == Endpoint::kCompletions ? ", or use echo with logprobs" : ""));
  }
  read.truncate = fields.integer("truncate_prompt_tokens", {-1, INT32_MAX});
  if (read.truncate == 0) {
    fields.refuse(bad_field("truncate_prompt_tokens",
                            "truncate_prompt_tokens must be -1 or at least 1, found 0"));
  }
  return read;
}

void ask_for_scores(PromptFields& prompt, std::optional<int64_t> top_count,
                    serve::EngineRequest& engine) {
  PromptWishes& shown = prompt.shown;
  if (!shown.any()) return;
  // Without an answer the prompt is all that is run.
  const bool alone = engine.tokens_max == 0;
  if (!alone && !top_count && !shown.prompt_logprobs) return;
  if (shown.echo) shown.echo_top_count = static_cast<int32_t>(top_count.value_or(0));
  engine.prompt_top_count = std::max(shown.echo_top_count, shown.prompt_logprobs.value_or(0));
}

std::optional<ApiError> check_score_count(const std::vector<serve::EngineRequest>& prompts,
                                          const RequestLimits& limits) {
  int64_t count = 0;
  for (const serve::EngineRequest& one : prompts) {
    if (!one.prompt_top_count) continue;
    count += std::ssize(one.prompt) * (1 + *one.prompt_top_count) * one.choice_count;
  }
  if (count <= limits.prompt_scores_max) return std::nullopt;
  return bad_field("prompt",
                   "log-probabilities of the prompts are {} numbers, with the alternatives and for "
                   "every choice, and one answer holds {}; send fewer prompts at once, or ask for "
                   "fewer alternatives",
                   count, limits.prompt_scores_max);
}

}  // namespace jige::api
