// AdamW on f32 master weights, and the norm of gradients.
//
//   m = β1 m + (1-β1) g    v = β2 v + (1-β2) g²
//   w = w - lr ( (m/c1) / (sqrt(v/c2) + ε) + λ w ),  c1 = 1-β1^t, c2 = 1-β2^t
// (Loshchilov and Hutter, 2019; as PyTorch computes it.) 28 bytes a parameter move, with moments in
// blocks 16.1.
// Packed forms of the weight can be renewed with it, while its rows are in a cache.
// Threads: asynchronous on the stream.
#pragma once

#include <span>
#include <vector>

#include "ops/linear.h"
#include "ops/moments.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct AdamW {
  TensorView weight;   // f32
  TensorView moment1;  // f32 or blocks (moments.h), both alike
  TensorView moment2;
  TensorView grad;  // f32, of the weight's shape
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  int64_t step = 1;             // t, from 1
  double grad_scale = 1;        // g is grad times this (clipping)
  std::vector<PackPart> packs;  // of a weight [N, K]; as pack_weight
};
// All of them; on a CPU in one loop, so that threads wait for each other once.
void adamw(Stream& stream, std::span<const AdamW> updates);
inline void adamw(Stream& stream, const AdamW& args) { adamw(stream, std::span(&args, 1)); }

// results[i] = Σ x² of values[i], f32 without gaps, in double and in an order that depends on
// nothing but the count; on a CPU blocks of 4096 elements in ascending order. Non-finite elements
// make it non-finite. `results` is host memory, one for each of the values, valid after
// synchronize.
void sums_of_squares(Stream& stream, std::span<const TensorView> values, double* results);

}  // namespace jige::ops
