// Passes over one row of logits, for choosing a token.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

// Exponentials are summed by blocks of this many logits, each by the rule in simd.h.
inline constexpr int64_t kLogitsBlock = 4096;

struct LogitsKernels {
  // The largest logit; NaN is passed over.
  float (*max)(const float* logits, int64_t count) noexcept;
  // The lowest index of a logit equal to `value`, or 0.
  int32_t (*first_index)(const float* logits, int64_t count, float value) noexcept;
  // exponentials[i] = exp((logits[i] - shift) · factor), and their sum over every block. A NaN
  // among the logits makes the sum of its block NaN.
  void (*exponentials)(float* exponentials, double* block_sums, const float* logits, int64_t count,
                       float shift, float factor) noexcept;
};

const LogitsKernels& logits_kernels(Isa isa);

}  // namespace jige::cpu
