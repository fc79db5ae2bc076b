// Softmax cross-entropy of a chunk of logits, with its gradient in the same pass.
//
// Shapes: T rows (a chunk), V vocabulary. Where there is a cap c, logits below are those that are
// given, each as c · tanh(logit / c), and the gradient is that of those that are given.
//   loss[t] = log Σ exp(logits[t]) - logits[t, target[t]]
//   grad[t, j] = weight[t] · (softmax(logits[t])[j] - [j = target[t]])
// A row with a negative target has loss 0 and gradient 0. Sums within a row have a fixed order.
// A target outside of the vocabulary ends the process; on a GPU its row's loss and gradient are
// NaN. The head calls this chunk by chunk so that no full logits tensor exists; see model/head.h.
// Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct CrossEntropy {
  TensorView loss;         // [T] f32, unweighted
  TensorView logits;       // [T, V] f32
  TensorView targets;      // [T] i32
  TensorView weights;      // [T] f32, or empty for gradient weights of 1
  double cap = 0;          // of the logits; 0: none
  TensorView grad_logits;  // [T, V] f32 or bf16, may be logits itself (f32), or empty: no gradient
};
void cross_entropy(Stream& stream, const CrossEntropy& args);

}  // namespace jige::ops
