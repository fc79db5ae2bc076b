// What depends on the mean and the spread of a row. See kernels/cpu/row_spread.h for the formulas.
//
// Shapes: T tokens, D columns; all [T, D], f32 or bf16 each. Sums of a row have a fixed order.
// Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// dst = src, made as large as target: by the roots of the means of squares, that of src being
// `floor` at least. dst may be src.
struct RowMatch {
  TensorView dst;
  TensorView src;
  TensorView target;
  double floor = 1e-5;
};
void row_match(Stream& stream, const RowMatch& args);

struct RowMatchBackward {
  TensorView grad_src;     // may be grad_dst
  TensorView grad_target;  // added to
  TensorView grad_dst;
  TensorView src;
  TensorView target;
  double floor = 1e-5;
};
void row_match_backward(Stream& stream, const RowMatchBackward& args);

// dst = max(src - c, 0), c being so many deviations above the mean of the row. dst may be src.
void row_cut(Stream& stream, const TensorView& dst, const TensorView& src, double deviations);
// grad_src may be grad_dst.
void row_cut_backward(Stream& stream, const TensorView& grad_src, const TensorView& grad_dst,
                      const TensorView& src, double deviations);

// The number of deviations above the mean below which so large a share of a normal distribution
// lies. REQUIRES: 0 < share < 1.
double normal_deviations(double share);

}  // namespace jige::ops
