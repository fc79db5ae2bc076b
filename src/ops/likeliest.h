// What a greedy draw takes (sampling.h: temperature 0 and nothing that changes logits), found where
// the logits are. Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// tokens [R] i32: the first of the largest of each row of logits [R, V] f32; -1 where there is NaN
// in the row, or none that is finite is the largest.
void likeliest(Stream& stream, const TensorView& tokens, const TensorView& logits);

}  // namespace jige::ops
