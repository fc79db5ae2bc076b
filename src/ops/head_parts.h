// Keys and values of heads that are put together of parts of their own and a part that all share,
// and heads made wider or narrower.
//
// Shapes: T tokens, H heads, n columns of a key that are the head's own, r that all heads share,
// w of a value, w <= n + r.
//   key_h   = [ part_h[0, n) | shared ]           [T, H·(n + r)]
//   value_h = [ part_h[n, n + w) | zeros ]        [T, H·(n + r)], as wide as keys
// from parts [T, H·(n + w)] and shared [T, r]. The gradient of `shared` is the sum over heads in
// ascending order, in f32, rounded once; that of the zeros is dropped. All of a call are f32 or all
// bf16. Threads: asynchronous on the stream.
#pragma once

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct HeadParts {
  TensorView keys;
  TensorView values;
  TensorView parts;
  TensorView shared;
  int64_t head_count = 0;     // H
  int64_t value_columns = 0;  // w
};
// keys and values, from the other two.
void join_heads(Stream& stream, const HeadParts& args);
// The way back: each is the gradient of what it was.
void join_heads_backward(Stream& stream, const HeadParts& args);

// dst [T, H·a] from src [T, H·b]: each head's columns from dst_first on are those of src from
// src_first on, without the last ones where there are too many, followed by zeros where there are
// too few.
struct FitHeads {
  TensorView dst;
  TensorView src;
  int64_t head_count = 0;
  int64_t dst_first = 0;
  int64_t src_first = 0;
};
void fit_heads(Stream& stream, const FitHeads& args);

}  // namespace jige::ops
