// xIELU, an activation without a gate whose two curvatures are learned: see kernels/cpu/xielu.h for
// the formulas.
//
// Shapes: T tokens, F columns; alpha_p, alpha_n, beta and eps are numbers in views [1] f32.
// Threads: asynchronous on the stream; the numbers are read when the work runs.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct Xielu {
  TensorView alpha_p, alpha_n;  // [1] f32
  TensorView beta, eps;         // [1] f32
};

// dst [T, F] from src [T, F], f32 or bf16 each; dst may be src.
void xielu_forward(Stream& stream, const Xielu& curve, const TensorView& dst,
                   const TensorView& src);
// grad_src [T, F] from grad_dst, f32 or bf16 each; grad_src may be src or grad_dst. slopes [T, 2]
// f32: what a token adds to the gradients of alpha_p and alpha_n.
void xielu_backward(Stream& stream, const Xielu& curve, const TensorView& grad_src,
                    const TensorView& grad_dst, const TensorView& src, const TensorView& slopes);

}  // namespace jige::ops
