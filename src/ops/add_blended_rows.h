// Adds to each row of dst a weighted sum of four rows of a table, as a picture that is stretched is
// made of its pixels.
//
//   dst[t] += ((w0 table[r0] + w1 table[r1]) + w2 table[r2]) + w3 table[r3], row by row
// On CPUs. Threads: asynchronous on the stream.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct Blend {
  std::array<int32_t, 4> rows{};
  std::array<float, 4> weights{};
};
// dst [T, D], table [N, D], both f32; blends [T]. REQUIRES: rows are of the table; the table and
// dst are apart.
void add_blended_rows(Stream& stream, const TensorView& dst, const TensorView& table,
                      std::vector<Blend> blends);

}  // namespace jige::ops
