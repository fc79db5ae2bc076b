// The gates of the delta rule: how much of its state a head keeps, and how fast it learns; and
// those of Mamba 2, where one number of a token says both.
//
// Shapes: T tokens, H value heads.
//   rate      = rate_scale · sigmoid(b)
//   log_decay = -exp(log_scale) · softplus(a + bias),  softplus(x) = log(1 + e^x), x itself above
//   20
// and, where there is no b, rate = softplus(a + bias). With decays by key there are dk of a, bias
// and log_decay a head, all of its log_scale; then there is a b. Every element depends on its own
// operands only. Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct DeltaGates {
  TensorView log_decay;  // [T, H·dk] f32, dk 1 but for decays by key
  TensorView rate;       // [T, H] f32
  TensorView a;          // [T, H·dk] f32 or bf16
  TensorView b;          // [T, H] f32 or bf16, or empty
  TensorView log_scale;  // [H] f32
  TensorView bias;       // [H·dk] f32
  float rate_scale = 1;  // of b; above 1 a token may turn around what its key has
};
void delta_gates_forward(Stream& stream, const DeltaGates& args);

struct DeltaGatesBackward {
  // As a and b, of their type; overwritten. grad_b where there is one.
  TensorView grad_a, grad_b;
  // f32 whose sums over rows are the gradients of log_scale and bias, as wide; overwritten
  TensorView slopes_scale, slopes_bias;
  TensorView grad_log_decay, grad_rate;  // as log_decay and rate
  DeltaGates forward;                    // log_decay and rate are not read
};
void delta_gates_backward(Stream& stream, const DeltaGatesBackward& args);

}  // namespace jige::ops
