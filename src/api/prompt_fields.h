// The fields that are about the prompt, whatever it is made of: what of it is shown, and how much
// of it is kept.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "api/generation_fields.h"
#include "api/shown_prompt.h"

namespace jige::api {

struct PromptFields {
  PromptWishes shown;
  std::optional<int64_t> truncate;  // to the last tokens: so many, or -1: as many as there is room

  // The fewest tokens that an answer may be asked for.
  int64_t tokens_least() const { return shown.any() ? 0 : 1; }
  // Drops the beginning of a prompt that is too long for its answer. REQUIRES: truncate.
  void cut(std::vector<int32_t>& ids, int64_t tokens_max, int64_t context_max) const;
};

// Reads "echo" (completions), "prompt_logprobs" and "truncate_prompt_tokens"; what is wrong is
// noted in `fields`. `stream`: of the request.
PromptFields read_prompt_fields(FieldReader& fields, const RequestLimits& limits, Endpoint endpoint,
                                bool stream);

// What the engine is to score of the prompt, for a request whose answer has log-probabilities with
// `top_count` alternatives, or none.
void ask_for_scores(PromptFields& prompt, std::optional<int64_t> top_count,
                    serve::EngineRequest& engine);

// 400 where the prompts' scores are more than one answer can hold.
std::optional<ApiError> check_score_count(const std::vector<serve::EngineRequest>& prompts,
                                          const RequestLimits& limits);

}  // namespace jige::api
