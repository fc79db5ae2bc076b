// Choosing the next token from one row of logits.
//
// Order of the filters, as Hugging Face applies them: repetition, presence and frequency penalties,
// bias, allowed tokens, temperature, top-k, top-p, min-p; then a draw, behind a filter by weights
// in whole units of 2^-40 of the likeliest's, so that a GPU's sum is the host's: lighter tokens are
// not drawn there. Temperature 0 is greedy: the lowest index among the largest logits, no filter
// but the penalties and the bias. Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "ops/draw.h"

namespace jige::ops {

// Added to the logit of a token; -infinity forbids it. Several for one token add up.
struct LogitBias {
  int32_t token = 0;
  float bias = 0;
};

struct SamplingParams {
  double temperature = 0;  // >= 0
  int64_t top_k = 0;       // 0: off
  double top_p = 1;        // (0, 1]; 1: off
  double min_p = 0;        // [0, 1); 0: off. Keeps p >= min_p · p_max
  double repetition_penalty =
      1;  // > 0; 1: off. Divides positive, multiplies negative logits of seen tokens
  double presence_penalty = 0;   // subtracted once from generated tokens' logits
  double frequency_penalty = 0;  // subtracted per occurrence among generated tokens
  std::vector<LogitBias> logit_bias;
};

// Fails with kInvalidArgument naming the field, its value and the range.
Status validate(const SamplingParams& params);

// Whether tokens that occur are penalised.
bool has_penalty(const SamplingParams& params);

// How draw() of draw.h finds the token that sample() would: `uniform` is what Rng gives next,
// `seen` the tokens that occur, each once, and for as long as the result is used. kHost where there
// are biases, or the token of penalised logits is to be scored.
RowDraw row_draw(const SamplingParams& params, double uniform, std::span<const SeenToken> seen = {},
                 bool is_scored = false);

struct TokenLogProb {
  int32_t token;
  float logprob;  // natural log of the probability under the raw logits
};

struct SampledToken {
  int32_t token = -1;
  float logprob = 0;  // under the raw logits (no penalty, no filter), as the OpenAI API reports it
  std::vector<TokenLogProb> top;  // the most likely ones, if asked for
};

// Draws one token. `prompt` and `generated` feed the penalties; `rng` advances by a fixed number of
// draws whatever the parameters. `top_count` most likely alternatives are reported. Of `allowed`
// bit i says whether token i may be drawn, and tokens behind its end may not; empty: all may.
// Fails with kInternal when a logit is NaN or +inf, or all are -inf, and with kInvalidArgument when
// the bias and `allowed` forbid every token.
Result<SampledToken> sample(std::span<const float> logits, const SamplingParams& params,
                            std::span<const int32_t> prompt, std::span<const int32_t> generated,
                            Rng& rng, int top_count = 0, std::span<const uint64_t> allowed = {});

}  // namespace jige::ops
