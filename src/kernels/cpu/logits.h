// Passes over one row of logits, for choosing a token.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

// Exponentials are summed by blocks of this many logits, each by the rule in simd.h.
inline constexpr int64_t kLogitsBlock = 4096;

// How processors and GPUs draw alike (ops/sampling_filter.h). From all of a row: first a block,
// then a piece of it with so many logits, then one of these.
inline constexpr int64_t kDrawPiece = 64;
// From what filters leave: weights are counted in units of 1 / kDrawUnits, rounded down, so that
// their sum is exact in any order, in rows of up to kDrawColumnsMax.
inline constexpr float kDrawUnits = 0x1p40f;
inline constexpr int64_t kDrawColumnsMax = int64_t{1} << 23;

struct LogitsKernels {
  // The largest logit; NaN is passed over.
  float (*max)(const float* logits, int64_t count) noexcept;
  // The lowest index of a logit equal to `value`, or 0.
  int32_t (*first_index)(const float* logits, int64_t count, float value) noexcept;
  // Puts the indices of logits above `bar` into `indices`, ascending, and gives their number; NaN
  // is not above anything. REQUIRES: room for `count` indices.
  int64_t (*above)(int32_t* indices, const float* logits, int64_t count, float bar) noexcept;
  // exponentials[i] = exp((logits[i] - shift) · factor), and their sum over every block. A NaN
  // among the logits makes the sum of its block NaN.
  void (*exponentials)(float* exponentials, double* block_sums, const float* logits, int64_t count,
                       float shift, float factor) noexcept;
};

const LogitsKernels& logits_kernels(Isa isa);

}  // namespace jige::cpu
