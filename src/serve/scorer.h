// Scorer: log-probabilities of given tokens, and multiple choice.
//
//   score of a choice = Σ log p(token | context and earlier tokens of the choice)
//
// Runs in chunks over the cache; logits exist for a chunk of tokens at a time only.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "text/tokenizer.h"

namespace jige::serve {

// The natural logarithm of the probability of tokens 1, 2, … of a text, each given those before it.
struct TokenScores {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  // one less than tokens
  double sum() const;
};

struct ChoiceScore {
  double logprob = 0;  // sum over the choice's tokens
  int64_t token_count = 0;
  int64_t byte_count = 0;
  double per_token() const;
  double per_byte() const;
};

struct ChoiceResult {
  std::vector<ChoiceScore> scores;
  // Indices of the likeliest choice by sum, by token and by byte; the first among equals.
  int64_t best = 0;
  int64_t best_per_token = 0;
  int64_t best_per_byte = 0;
};

class Scorer {
 public:
  // The model must have been loaded with `scores` and must outlive the scorer, which uses all of
  // its cache. REQUIRES: model.sizes().scores.
  explicit Scorer(model::InferenceModel& model);

  // Scores ids as they are. Fails with kInvalidArgument on fewer than two tokens, more than the
  // context holds, or ids out of range.
  Result<TokenScores> score(std::span<const int32_t> tokens);
  // Scores a text with the tokens the tokenizer puts around it.
  Result<TokenScores> score_text(const text::Tokenizer& tokenizer, std::string_view text);

  // Scores each choice as the continuation of the context. A choice starts at the first token in
  // which context and context + choice differ, so tokens that grow across the border count for the
  // choice. Fails as score() does, and on no choices or an empty one.
  Result<ChoiceResult> choose(const text::Tokenizer& tokenizer, std::string_view context,
                              std::span<const std::string> choices);

 private:
  // Negative log-probabilities of targets behind `cached` tokens, appended to `losses`.
  Status run(std::span<const int32_t> tokens, std::span<const int32_t> targets, int64_t cached,
             std::vector<float>& losses);
  Status check_length(size_t token_count) const;

  model::InferenceModel& model_;
  std::vector<int32_t> blocks_;
};

}  // namespace jige::serve
