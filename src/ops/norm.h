// RMSNorm and LayerNorm over groups of columns, with separate input and weight gradients.
//
// Shapes: T tokens, G groups, D columns a group; src and dst [T, G·D], weight and bias [D],
// statistics [T, G] f32. G is 1 for a layer's norm, the head count for a norm of query or key
// heads.
//   rms    y = x · r · w          r = 1 / sqrt(mean(x²) + eps)
//   layer  y = (x - m) · r · w + b  r = 1 / sqrt(var(x) + eps)
// w is the weight, 1 + weight, or 1 where there is none.
// Sums within a row have a fixed order; weight gradients add tokens in ascending order, so neither
// depends on T split or threads. Statistics are f32 sums.
// Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct NormForward {
  TensorView dst;     // [T, G·D] f32 or bf16; may be src itself when the types agree
  TensorView src;     // [T, G·D] f32 or bf16
  TensorView weight;  // [D] f32, or empty
  TensorView bias;    // [D] f32, or empty; layer only
  TensorView rstd;    // [T, G] f32, or empty when no backward follows
  TensorView mean;    // [T, G] f32, layer only, or empty
  double eps = 1e-5;
  bool weight_adds_one = false;
  int64_t width = 0;  // D, where there is no weight
};
void rms_norm_forward(Stream& stream, const NormForward& args);
void layer_norm_forward(Stream& stream, const NormForward& args);

struct NormBackwardInput {
  TensorView grad_src;      // [T, G·D] f32 or bf16; may be grad_dst itself when the types agree
  TensorView grad_dst;      // [T, G·D] f32 or bf16
  TensorView src;           // [T, G·D] as in forward
  TensorView weight;        // [D] f32, or empty
  TensorView rstd;          // [T, G] f32
  TensorView mean;          // [T, G] f32, layer only
  bool accumulate = false;  // add to grad_src (a residual's gradient) instead of overwriting
  bool weight_adds_one = false;
  int64_t width = 0;  // as in forward
};
void rms_norm_backward_input(Stream& stream, const NormBackwardInput& args);
void layer_norm_backward_input(Stream& stream, const NormBackwardInput& args);

struct NormBackwardWeight {
  TensorView grad_weight;  // [D] f32; added to
  TensorView grad_bias;    // [D] f32; added to; layer only, or empty
  TensorView grad_dst;     // [T, G·D] f32 or bf16
  TensorView src;          // [T, G·D] as in forward
  TensorView rstd;         // [T, G] f32
  TensorView mean;         // [T, G] f32, layer only
};
void rms_norm_backward_weight(Stream& stream, const NormBackwardWeight& args);
void layer_norm_backward_weight(Stream& stream, const NormBackwardWeight& args);

}  // namespace jige::ops
