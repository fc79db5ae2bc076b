// Products with a gate that has a tensor of its own.
//
// Shapes: T rows, C columns; all [T, C], f32 or bf16 each, row strides free.
//   dst = src · f(gate), f the sigmoid, gate · sigmoid(gate), or the gate itself
// Every element depends on its own operands only. Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

enum class GateKind { kSigmoid, kSilu, kPlain };

// dst may be src.
void gate_forward(Stream& stream, const TensorView& dst, const TensorView& src,
                  const TensorView& gate, GateKind kind);
// Both gradients are overwritten; grad_src may be grad_dst.
void gate_backward(Stream& stream, const TensorView& grad_src, const TensorView& grad_gate,
                   const TensorView& grad_dst, const TensorView& src, const TensorView& gate,
                   GateKind kind);

}  // namespace jige::ops
