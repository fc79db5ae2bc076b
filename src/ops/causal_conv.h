// Causal convolution over each sequence, every column by itself (depthwise).
//
// Shapes: T rows of all sequences flat, C columns, K taps; src and dst [T, C] f32 or bf16.
//   u[t, c] = bias[c] + Σ_i weight[c, i] · src[t - K + 1 + i, c],  i in 0 … K - 1
//   dst = silu(u) or u
// Rows before a sequence's first token are zero. A sequence goes on where it was by its row of the
// states, its last K - 1 inputs, the oldest first: read when context_count > 0, and afterwards that
// of the last row. At context_count 0 it is not read, whatever it holds. A spare row of the states
// gets that of the first rows.
//
// Order: u is one chain of fused multiply-adds from the bias in ascending i, so a row's bits depend
// on its own K inputs only: not on chunks, packing or threads. Weight gradients add rows in
// ascending order to what is there, on a GPU sums of parts of them.
// Threads: asynchronous on the stream.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// The most taps there may be.
inline constexpr int64_t kCausalConvKernelMax = 8;

struct CausalConvShape {
  int64_t kernel = 0;  // K
  bool silu = false;
};

struct CausalConvForward {
  TensorView dst;     // [T, C] f32 or bf16
  TensorView src;     // [T, C] f32 or bf16
  TensorView weight;  // [C, K] f32
  TensorView bias;    // [C] f32, or empty
  TensorView states;  // [slots, (K - 1) · C] of src's type, or empty in training
  std::vector<SequenceSpan> sequences;
  CausalConvShape shape;
};
void causal_conv_forward(Stream& stream, const CausalConvForward& args);

struct CausalConvBackward {
  TensorView grad_src;       // [T, C] overwritten
  TensorView grad_products;  // [T, C] the gradient of u; overwritten; may be grad_dst
  TensorView grad_dst;       // [T, C]
  TensorView src, weight, bias;
  std::vector<SequenceSpan> sequences;
  CausalConvShape shape;
};
void causal_conv_backward_input(Stream& stream, const CausalConvBackward& args);

struct CausalConvWeightGradients {
  TensorView grad_weight;    // [C, K] f32; added to
  TensorView grad_bias;      // [C] f32; added to; or empty
  TensorView grad_products;  // [T, C] as backward_input left it
  TensorView src;            // [T, C]
  std::vector<SequenceSpan> sequences;
  CausalConvShape shape;
};
void causal_conv_backward_weight(Stream& stream, const CausalConvWeightGradients& args);

}  // namespace jige::ops
