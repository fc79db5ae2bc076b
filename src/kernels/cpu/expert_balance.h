// The loss for unequal use of experts and its slopes: see ops/expert_balance.h.
//
// Of a token at row t in a sequence of T, with q_e = e^(l_e - max), or of sigmoids σ(l_e):
//   S = Σ q,  p_e = q_e / S,  u = E / (k T),  c_e how many of the sequence's tokens chose e
//   b = u (Σ c q) / S
//   dl_e += w u p_e (c_e - Σ c q / S), of sigmoids times 1 - σ_e
// Counts are exact, and sums over experts those of simd.h: no bit depends on the instruction set or
// on which rows are handled together. Threads: a pure function on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

inline constexpr int64_t kBalancedExpertsMax = 1024;  // E

struct BalanceArgs {
  const float* logits;  // [T, E]
  int64_t logits_stride;
  int64_t experts;               // E, at most kBalancedExpertsMax
  int64_t chosen;                // k
  bool sigmoid;                  // what scores are of single logits
  const int32_t* experts_of;     // [T, k]
  const int32_t* places;         // [R], ascending among those of an expert
  const int32_t* row_ends;       // [E]
  const int32_t* sequence_ends;  // [S], of rows of the batch, which they cover
  float weight;                  // w
  float* losses;                 // [T]: b
  float* grad_logits;            // [T, E], added to
  int64_t grad_stride;
};

struct ExpertBalanceKernels {
  void (*rows)(const BalanceArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const ExpertBalanceKernels& expert_balance_kernels(Isa isa);

}  // namespace jige::cpu
