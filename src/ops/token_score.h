// How likely a given token is under one row of logits, and which are the likeliest.
//
//   logprob of token j = -((m - x[j]) + log Σ exp(x - m)),  m = max x
//
// by the kernel that makes the head's losses (ops/cross_entropy.h): bit for bit the negative loss
// of the token, for the others too. Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/sampling.h"

namespace jige::ops {

struct TokenScore {
  float logprob = 0;  // not finite where the logits cannot be used
  int32_t rank = 0;   // 1 + how many are likelier
  std::vector<TokenLogProb> top;
};

// Scores `token` and the `top_count` likeliest. REQUIRES: 0 <= token < logits.size().
TokenScore score_token(std::span<const float> logits, int32_t token, int top_count);

}  // namespace jige::ops
