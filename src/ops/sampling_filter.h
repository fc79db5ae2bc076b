// The filters of sampling, as functions of weights: weight i is the exponential of a logit after
// penalties and temperature, so a probability but for a common factor.
//
// Ties go to the lowest token. Nothing sorts the vocabulary: top-k keeps a bounded list of the
// best, top-p adds weights up by buckets of nearly equal ones and sorts only the bucket it ends in.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/sampling.h"

namespace jige::ops {

struct Candidate {
  float weight;
  int32_t token;
  bool operator==(const Candidate&) const = default;
};

// The `count` heaviest of `weights` (fewer when the span is shorter), heaviest first. Takes any
// floats but NaN, so it serves raw logits too.
std::vector<Candidate> heaviest(std::span<const float> weights, int64_t count);

// What top-k, top-p and min-p of `params` leave, in ascending order of tokens; never empty and
// without weights of zero. `total` is the sum of the weights. REQUIRES: weights in [0, 1], the
// largest is 1.
std::vector<Candidate> filter(std::span<const float> weights, double total,
                              const SamplingParams& params);

// Applies repetition, presence and frequency penalties to `logits`. Tokens outside the vocabulary
// have no logit and are passed over; finite logits stay finite.
void apply_penalties(std::span<float> logits, const SamplingParams& params,
                     std::span<const int32_t> prompt, std::span<const int32_t> generated);

// Adds the biases of `params`; tokens outside the vocabulary are passed over.
void apply_bias(std::span<float> logits, const SamplingParams& params);

}  // namespace jige::ops
