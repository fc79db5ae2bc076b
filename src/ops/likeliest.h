// What a greedy draw takes (sampling.h: temperature 0 and nothing that changes logits), found where
// the logits are. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// The first of the largest; nothing where there is NaN, or the largest is not finite.
std::optional<int32_t> likeliest(std::span<const float> logits);
// tokens [R] i32: those of the rows of logits [R, V] f32; -1 for nothing.
void likeliest(Stream& stream, const TensorView& tokens, const TensorView& logits);

}  // namespace jige::ops
