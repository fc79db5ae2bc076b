// Choosing a few experts for each token, and the sums over what they give.
//
// Shapes: T tokens, E experts, k chosen of them, R = T · k rows of their inputs or results.
//   choose    the k highest logits, of equal ones those that come first, NaN last; in ascending
//             order. weight_j = e^(l_j - max) / sum, the sum over the chosen or over all.
//   combine   dst[t] = base[t] + Σ_j weight[t, j] · src[row[t, j]], j ascending, one chain of fused
//             multiply-adds
//   slopes    the gradient at the logits from that at the weights:
//               over the chosen   dl_j = w_j (dw_j - Σ w dw), 0 for the others
//               over all          dl_e = -p_e Σ w dw, and for the chosen w_j (dw_j - Σ w dw)
// Sums over columns are those of simd.h, so no bit depends on the instruction set or on which rows
// are handled together. Threads: pure functions on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct ChooseArgs {
  const float* logits;  // [T, E]
  int64_t experts;
  int64_t chosen;       // k, at most E
  bool over_chosen;     // what the weights' sum is over
  int32_t* experts_of;  // [T, k]
  float* weights;       // [T, k]
};

struct CombineArgs {
  Rows dst;              // [T, D] f32 or bf16
  const float* base;     // [T, D], or null: zeros
  ConstRows src;         // [R, D] f32 or bf16
  const int32_t* rows;   // [T, k]
  const float* weights;  // [T, k], or null: ones
  int64_t chosen;
  int64_t width;
};

// dst[places[r]] = Σ_c a[r, c] b[r, c]
struct RowDotsArgs {
  float* dst;             // [R]
  ConstRows a;            // [R, D]
  ConstRows b;            // [R, D], of a's type
  const int32_t* places;  // [R]
  int64_t width;
};

// data[r] = factors[places[r]] · data[r]
struct ScaleRowsArgs {
  Rows data;             // [R, D] f32 or bf16
  const float* factors;  // [R]
  const int32_t* places;
  int64_t width;
};

struct SlopesArgs {
  ChooseArgs choice;          // as it was
  const float* grad_weights;  // [T, k]
  float* grad_logits;         // [T, E]
};

struct ExpertKernels {
  void (*choose)(const ChooseArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*combine)(const CombineArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*row_dots)(const RowDotsArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*scale_rows)(const ScaleRowsArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*slopes)(const SlopesArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const ExpertKernels& expert_kernels(Isa isa);

}  // namespace jige::cpu
