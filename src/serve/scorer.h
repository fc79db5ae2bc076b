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
#include "serve/cached_sequence.h"
#include "text/tokenizer.h"

namespace jige::serve {

// The natural logarithms of the probabilities of a text's tokens, each given those before it.
struct TokenScores {
  std::vector<int32_t> tokens;
  std::vector<float>
      logprobs;  // of the last tokens: all but the first where nothing else was asked
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
  // its cache and runs with one of its adapters, or with none. REQUIRES: model.sizes().scores.
  explicit Scorer(model::InferenceModel& model, int32_t adapter = model::kNoAdapter);

  // Scores the tokens from `first` on. What stands before it is taken from the cache where the text
  // scored last began in the same way. Fails with kInvalidArgument on fewer than two tokens, more
  // than the context holds, `first` not in 1 … size - 1, or ids out of range.
  Result<TokenScores> score(std::span<const int32_t> tokens, size_t first = 1);
  // Scores a text with the tokens the tokenizer puts around it.
  Result<TokenScores> score_text(const text::Tokenizer& tokenizer, std::string_view text);

  // Scores each choice as the continuation of the context. A choice starts at the first token in
  // which context and context + choice differ, so tokens that grow across the border count for the
  // choice. Fails as score() does, and on no choices or an empty one.
  Result<ChoiceResult> choose(const text::Tokenizer& tokenizer, std::string_view context,
                              std::span<const std::string> choices);

 private:
  Status check(std::span<const int32_t> tokens, size_t first) const;

  model::InferenceModel& model_;
  CachedSequence cached_;
};

}  // namespace jige::serve
