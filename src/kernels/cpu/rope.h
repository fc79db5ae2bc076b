// Rotary position embeddings in place: see ops/rope.h for the convention.
//
//   pair (a, b) = (x[i], x[i + rotary_dim/2]):  a' = a cos - b sin, b' = b cos + a sin
// The inverse direction negates the sine. Bytes moved: the rotary columns, read and written once.
// Threads: pure functions on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct RopeArgs {
  Rows data;  // from the first column of the first head that turns
  const int32_t* positions;
  const float* cos_sin;  // row p: rotary_dim/2 cosines, then as many sines
  int64_t cos_sin_stride;
  int64_t head_count;
  int64_t head_dim;
  int64_t rotary_dim;
  bool inverse;
};

struct RopeKernels {
  void (*rotate)(const RopeArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const RopeKernels& rope_kernels(Isa isa);

}  // namespace jige::cpu
