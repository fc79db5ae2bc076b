// The filters of sampling, as functions of weights: weight i is the exponential of a logit after
// penalties and temperature, so a probability but for a common factor.
//
// Ties go to the lowest token. Nothing sorts the vocabulary: top-k keeps a bounded list of the
// best, top-p adds weights up by buckets of nearly equal ones and sorts only the bucket it ends in.
// A GPU does the same to the bit (kernels/cuda/draw.cu), in another order: so weights of one
// exponent, whose sums are exact, are added up first, then these sums from the largest down; and a
// draw is one of whole numbers.
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

// One of the candidates, which are in ascending order of tokens: that at which the running sum
// passes `uniform` of the total. Weights are rounded down to multiples of 1 / cpu::kDrawUnits.
int32_t draw_from(std::span<const Candidate> candidates, double uniform);

// One of all `weights`: that at which their running sum passes `uniform` of the sum of
// `block_sums`, those of each cpu::kLogitsBlock. In a block, weights are added up by pieces.
int32_t draw_from_all(std::span<const float> weights, std::span<const double> block_sums,
                      double uniform);

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
