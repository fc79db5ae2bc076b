// Means of patches, which become rows of the language model.
//
// Internal to image_parts_*.cc. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::model {

// dst [R, D] f32 = factor · the means of `merged` rows each of src [R · merged, D] f32, which
// follow one another without gaps.
void pool_patches(Stream& stream, const TensorView& dst, const TensorView& src, int64_t merged,
                  float factor);

}  // namespace jige::model
