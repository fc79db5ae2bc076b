// Tokens of rows of logits that are on a GPU, drawn there as sample() of sampling.h does. Which one
// it is has the host's bits: its choice among the same logits with the same number of Rng.
// Threads: asynchronous on the stream.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/draw.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

using RowDraw = cuda::DrawRow;

using SeenToken = cuda::SeenToken;
using DrawScore = cuda::Score;

// The log-probability of the token as sample() gives it.
float log_probability(const DrawScore& score);

// Whether draw() finds a row's token on the stream's device. On a processor, where the logits are
// at hand, the likeliest alone.
bool can_draw(Stream& stream, int64_t columns, const RowDraw& draw);
// tokens [R] i32 of the rows of logits [R, V] f32, by `draws`; -1 where sample() fails, anything
// where a row is of kHost. Penalties change logits, but none that sample() fails for.
// REQUIRES: can_draw() each that is not of kHost.
// scores [R, 4] f32: memory for the DrawScore of each row, which those that are scored have.
void draw(Stream& stream, const TensorView& tokens, const TensorView& scores,
          const TensorView& logits, std::span<const RowDraw> draws);

}  // namespace jige::ops
