// What DoRA needs in training: norms of rows of W + s · B A without that matrix, and the gradient
// of the lengths that rows get in their place.
//
// Shapes: W [N, K], A [r, K], B [N, r], P = A Wᵀ [r, N], m [N]; T tokens.
//   ‖(W + s B A)_n‖² = ‖W_n‖² + 2 s B_n · P_n + s² B_n (A Aᵀ) B_nᵀ
//   f_n = m_n / ‖·‖, 0 for a row of zeros     c_n = (1 - f_n) b_n
//   dm_n += Σ_t dz_tn z_tn / m_n              where y = f ∘ z, dz = f ∘ dy; in ascending t
// (Liu et al., 2024; the norm takes no gradient, as in their section 4.3.) Sums of one row are in
// double, those over tokens in f32, so that they go on from batch to batch.
// On CPUs only. Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// dst [N] f32 = ‖W_n‖², W f32, bf16 or f16.
void row_squares(Stream& stream, const TensorView& dst, const TensorView& weight);
// dst [N] f32 = sqrt(squares).
void square_roots(Stream& stream, const TensorView& dst, const TensorView& squares);

struct DoraFactors {
  TensorView factors;    // f [N]
  TensorView addends;    // c [N], or empty
  TensorView squares;    // [N], of row_squares
  TensorView products;   // P [r, N], columns of a wider matrix
  TensorView a, b;       // f32
  TensorView magnitude;  // m [N]
  TensorView bias;       // b [N], where there are addends
  float scale = 1;       // s
};
// All f32.
void dora_factors(Stream& stream, const DoraFactors& args);

// grad [N] f32 += as above; grad_product dz and product z [T, N], f32 or bf16 each. Where m is 0
// nothing is added.
void dora_magnitude_backward(Stream& stream, const TensorView& grad, const TensorView& grad_product,
                             const TensorView& product, const TensorView& magnitude);

}  // namespace jige::ops
