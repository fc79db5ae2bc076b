// Products of heads: each has its own columns of the rows, and a weight of its own.
//
// Shapes: T tokens, H heads with I inputs and O outputs each; a and b columns of a head in dst and
// src, O <= a, I <= b; weights W_h [O, I], or the other way round where they are kInputGradient.
//   dst[T, h·a … h·a + O) = src[T, h·b … h·b + I) · W_hᵀ, or · W_h          for every head h
// the other columns of dst stay. The bits are those of linear_forward(), or of
// linear_backward_input(), one head after the other; on a GPU those of rows in bf16 that are few
// are always of linear_forward()'s, for either use. Threads: asynchronous on the stream.
#pragma once

#include "ops/linear.h"

namespace jige::ops {

// Packed weights of one shape that lie `step_bytes` apart.
struct HeadWeights {
  PackedWeight first;  // in the compute type
  int64_t step_bytes = 0;
  int64_t count = 0;  // H

  PackedWeight of(int64_t head) const;
};

// Packs all rows of a head's weight, f32, bf16 or f16. On a GPU a weight for kInputGradient is kept
// transposed.
void pack_head_weight(Stream& stream, const HeadWeights& weights, int64_t head,
                      const TensorView& weight);

struct HeadLinear {
  TensorView dst;  // [T, H·a], f32 or bf16
  TensorView src;  // [T, H·b]
  HeadWeights weights;
};
void head_linear(Stream& stream, const HeadLinear& args);

}  // namespace jige::ops
