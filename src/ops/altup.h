// Alternating updates: several residual streams, of which a layer computes with the first. See
// kernels/cpu/altup.h for the formulas.
//
// Shapes: T tokens, D width, N streams, 2 to 4; streams stand one behind the other in a row of N·D
// columns. All views are f32. Sums of a token have a fixed order.
// Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// What every stream is before the layer.
struct AltUpPredict {
  TensorView active;  // [T, D]: of the first stream
  TensorView others;  // [T, (N-1) D]
  TensorView src;     // [T, N D]
  TensorView map;     // [T, N²]
};
void altup_predict(Stream& stream, const AltUpPredict& args);

struct AltUpPredictBackward {
  TensorView grad;      // [T, N D]: at what predict gave, becomes that at src
  TensorView grad_map;  // [T, N²]
  TensorView src;
  TensorView map;
};
void altup_predict_backward(Stream& stream, const AltUpPredictBackward& args);

// What every stream is behind the layer, which made `result` of `active`.
struct AltUpCorrect {
  TensorView dst;     // [T, N D]; has what predict gave for the others in its place
  TensorView active;  // [T, D]
  TensorView result;  // [T, D]
  TensorView gains;   // [T, N]
};
void altup_correct(Stream& stream, const AltUpCorrect& args);

struct AltUpCorrectBackward {
  // [T, N D]: at dst, becomes that at active and the others; what comes to active through result
  // is for the caller to add.
  TensorView grad;
  TensorView grad_result;  // [T, D]
  TensorView grad_gains;   // [T, N]
  TensorView active, result, gains;
};
void altup_correct_backward(Stream& stream, const AltUpCorrectBackward& args);

// dst [T, D] = src [T, D] times factors [D] f32, column by column; f32 or bf16 each; dst may be
// src.
void scale_columns(Stream& stream, const TensorView& dst, const TensorView& src,
                   const TensorView& factors);

}  // namespace jige::ops
