// The gates of the delta rule: how much of its state a head keeps, and how fast it learns; and
// those of Mamba 2, where one number of a token says both.
//
// Shapes: T tokens, H value heads.
//   rate      = rate_scale · sigmoid(b)
//   log_decay = -exp(log_scale) · softplus(a + bias),  softplus(x) = log(1 + e^x), x itself above
//   20
// and, where there is no b, rate = softplus(a + bias).
// Every element depends on its own operands only. Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct DeltaGates {
  TensorView log_decay;  // [T, H] f32
  TensorView rate;       // [T, H] f32
  TensorView a;          // [T, H] f32 or bf16
  TensorView b;          // the same, or empty
  TensorView log_scale;  // [H] f32
  TensorView bias;       // [H] f32
  float rate_scale = 1;  // of b; above 1 a token may turn around what its key has
};
void delta_gates_forward(Stream& stream, const DeltaGates& args);

struct DeltaGatesBackward {
  // [T, H] of the type of a; overwritten. grad_b where there is one.
  TensorView grad_a, grad_b;
  // [T, H] f32 whose sums over rows are the gradients of log_scale and bias; overwritten
  TensorView slopes_scale, slopes_bias;
  TensorView grad_log_decay, grad_rate;  // [T, H] f32
  DeltaGates forward;                    // log_decay and rate are not read
};
void delta_gates_backward(Stream& stream, const DeltaGatesBackward& args);

}  // namespace jige::ops
