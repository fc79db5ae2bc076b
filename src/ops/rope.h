// Rotary position embeddings, in place, on `rotary_dim` columns of every head, from `first` on.
//
// Element i < rotary_dim/2 of these pairs with element i + rotary_dim/2 (the halves convention of
// Hugging Face); the pair turns by angle position · inv_freq[i]. Backward turns by the negative
// angle. inv_freq holds any scaling (plain, linear, Llama-3) already; see model/rope_table.h.
// Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct Rope {
  TensorView data;       // [T, heads · head_dim] f32 or bf16; changed in place
  TensorView positions;  // [T] i32
  TensorView
      cos_sin;  // [positions, rotary_dim] f32: per row rotary_dim/2 cosines, then as many sines
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // even, first + rotary_dim <= head_dim
  int64_t first = 0;
  bool inverse = false;  // the backward direction
};
// REQUIRES: every position is a row of cos_sin.
void rope(Stream& stream, const Rope& args);

}  // namespace jige::ops
