// Texts whose tokens are scored, and what is made of their scores: multiple choice.
//
//   score of a choice = Σ log p(token | context and earlier tokens of the choice)
//
// Log-probabilities are natural. Threads: values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "serve/given_rows.h"
#include "text/tokenizer.h"

namespace jige::serve {

// Tokens from `first` on are scored, each given those before it, among which may be rows that are
// given (given_rows.h).
struct ScoredText {
  std::vector<int32_t> tokens;
  size_t first = 1;
  std::vector<GivenRowsRef> given = {};
};

// A text's tokens, and the natural logarithms of the probabilities of the last ones: of all but the
// first where nothing else was asked.
struct TokenScores {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  double sum() const;
};

// The text `whole` behind a context, of which it is a continuation: scored from the first token on
// in which the context's tokens differ from its own, so tokens that grow across the border count.
// `first` is the number of tokens where it adds none. Fails as Tokenizer::encode() does.
Result<ScoredText> continued_text(const text::Tokenizer& tokenizer,
                                  std::span<const int32_t> context, std::string_view whole);

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

ChoiceResult compare_choices(std::vector<ChoiceScore> scores);

}  // namespace jige::serve
