// What an answer shows of its prompt: the prompt itself in front of the text ("echo"), and the
// log-probabilities of its tokens.
//
// "prompt_logprobs" has the form that vLLM gives it: a list with null for the first token, and for
// each other one an object {"ID": {"logprob": …, "rank": …, "decoded_token": …}} of the token and
// of the likeliest ones. Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/answer_format.h"
#include "ops/token_score.h"
#include "text/tokenizer.h"

namespace jige::api {

// What a request asks for.
struct PromptWishes {
  bool echo = false;
  int32_t echo_top_count = 0;              // alternatives, where log-probabilities are wanted
  std::optional<int32_t> prompt_logprobs;  // alternatives
  bool any() const { return echo || prompt_logprobs.has_value(); }
};

// A prompt and what is known of it.
struct ScoredPrompt {
  PromptWishes wishes;
  std::vector<int32_t> ids;
  std::optional<std::string> text;      // that the ids were made of
  std::vector<ops::TokenScore> scores;  // as RequestSink::on_prompt tells them, or none
};

// A prompt as its answers begin with it.
struct EchoedPrompt {
  std::string text;
  std::vector<TokenEvent> tokens;  // their texts joined are `text`
};

// Ids without a text are decoded, without special tokens. Where the texts of the tokens do not make
// up the one that was given (a tokenizer that changes texts, special tokens that were spelled out),
// all of it counts as the last token's.
EchoedPrompt echo_prompt(const ScoredPrompt& prompt, const text::Tokenizer& tokenizer);

// REQUIRES: wishes.prompt_logprobs.
Json prompt_logprobs_json(const ScoredPrompt& prompt, const text::Tokenizer& tokenizer);

}  // namespace jige::api
