// Holds numbers within bounds that are read when the work runs, as products of models are bounded
// that were trained so.
//
//   rows = min(max(rows, low), high), in place; what is no number stays so
// On CPUs. Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// rows [T, D] f32 or bf16, to which bounds are rounded; low, high [1] f32, low <= high.
void clamp(Stream& stream, const TensorView& rows, const TensorView& low, const TensorView& high);

}  // namespace jige::ops
