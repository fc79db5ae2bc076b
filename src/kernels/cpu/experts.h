// Choosing a few experts for each token, and the sums over what they give.
//
// Shapes: T tokens, E experts, k chosen of them, R = T · k rows of their inputs or results.
//   choose    the k highest logits, of equal ones those that come first, NaN last; in ascending
//             order. weight_j = c s_j with s_j = e^(l_j - max) / sum, the sum over the chosen or
//             over all; the sum over the chosen counts as at least m of that over all; or, of
//             sigmoids, s_j = σ(l_j), over the chosen σ(l_j) / (Σ σ(l) + ε).
//             Of sigmoids, and where there is a bias or groups go by pairs, the highest s + bias
//             are chosen (s over all), of equal ones the first again; the bias is not in the
//             weights. Of E experts in groups of E / g neighbours, only those of the h groups with
//             the highest scores, of equal ones the first: what is highest in a group, or the sum
//             of its two highest (pairs).
//   combine   dst[t] = base[t] + Σ_j weight[t, j] · src[row[t, j]], j ascending, one chain of fused
//             multiply-adds
//   slopes    the gradient at the logits from that at the weights:
//               over the chosen   dl_j = w_j (dw_j - Σ w dw), 0 for the others
//               over all, or m    dl_e = -p_e Σ w dw, and for the chosen w_j dw_j - p_j Σ w dw
//             with Σ w dw / c in brackets; of sigmoids 0 for the others, and for the chosen
//             (1 - σ_j) w_j (dw_j - Σ w dw / c), not over the chosen (1 - σ_j) w_j dw_j
//   rows      a row may have a gate of its own, the sigmoid of a logit: rows come times their gate.
//             From the gradient at x that has the gate in it, σ dx, that at the logit is
//             (1 − σ) Σ (σ dx) x
//   biases    every expert has a row b_e that its rows of results get on top. For the weights'
//             gradient a row adds its inner product with b_e; the gradient of b_e is the sum of the
//             rows' gradients, ascending, weighted or not, one chain of fused multiply-adds
//   gate      with biases, held in bounds:  g = min(g + b, limit), u = u + b in [-limit, limit],
//             h = (u + 1) g σ(α g);  dg = dh (u + 1) σ (1 + α g (1 − σ)) and du = dh g σ, each zero
//             where it was out of bounds
// Sums over columns are those of simd.h, so no bit depends on the instruction set or on which rows
// are handled together. Threads: pure functions on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

inline constexpr int64_t kRankedExpertsMax = 1024;  // E where not logits alone are compared

struct ChooseArgs {
  const float* logits;  // [T, E]
  int64_t logits_stride;
  int64_t experts;
  int64_t chosen;         // k, at most E, and at most h E / g
  bool sigmoid;           // of single logits, and not their softmax
  bool over_chosen;       // what the weights' sum is over
  float scale;            // c
  float sum_offset;       // ε
  float sum_min;          // m; 0: none
  const float* bias;      // [E], or null: zeros
  int64_t groups;         // g, a divisor of E
  int64_t chosen_groups;  // h, at most g; h = g: all experts
  bool pairs;             // a group's score is the sum of its two highest
  int32_t* experts_of;    // [T, k]
  float* weights;         // [T, k]
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

struct RowGateArgs {
  Rows data;            // [T, F] f32 or bf16
  const float* logits;  // [T]
  int64_t logits_stride;
  ConstRows grad;      // [T, F] f32 or bf16; of backward alone
  float* grad_logits;  // [T], likewise
  int64_t grad_stride;
  int64_t width;
};

// A row's expert is experts_of[places[r]].
struct ExpertBiasArgs {
  Rows data;                  // [R, N] f32 or bf16
  const float* biases;        // [E, N]
  const int32_t* experts_of;  // [T, k]
  const int32_t* places;      // [R]
  int64_t width;              // N
  float* dots;                // [R] by places, added to; of bias_dots alone
};

// grad += rows of one expert.
struct ExpertBiasGradientArgs {
  float* grad;           // [N]
  ConstRows rows;        // [R, N]
  const float* factors;  // [R] by places, or null: ones
  const int32_t* places;
  int64_t width;
};

struct BoundedGateArgs {
  Rows dst;           // forward [R, F]; backward [R, 2F]
  ConstRows gate_up;  // [R, 2F]
  ConstRows grad;     // [R, F]; of backward alone
  Rows activated;     // [R, F] h again, of gate_up's type, may be its gate columns; backward alone
  const float* biases;  // [E, 2F]
  const int32_t* experts_of;
  const int32_t* places;
  int64_t width;  // F
  float alpha;
  float limit;
};

struct SlopesArgs {
  ChooseArgs choice;          // as it was
  const float* grad_weights;  // [T, k]
  float* grad_logits;         // [T, E]
  int64_t grad_stride;
};

struct ExpertKernels {
  void (*choose)(const ChooseArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*combine)(const CombineArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*row_dots)(const RowDotsArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*scale_rows)(const ScaleRowsArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*gate_rows)(const RowGateArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*gate_rows_backward)(const RowGateArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*add_biases)(const ExpertBiasArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*bias_dots)(const ExpertBiasArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*bias_gradient)(const ExpertBiasGradientArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*bounded_gate)(const BoundedGateArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*bounded_gate_backward)(const BoundedGateArgs&, int64_t row_begin,
                                int64_t row_end) noexcept;
  void (*slopes)(const SlopesArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const ExpertKernels& expert_kernels(Isa isa);

}  // namespace jige::cpu
