// Rows by distance, as DeBERTa has them: which row of a table the distance of a query and a key
// has.
//
// Shapes: S rows for either direction, 2S of the table, n tokens of the longest sequence.
//   row(e) = min(max(bucket(e) + S, 0), 2S - 1) of e = query - key
//   bucket(e) = e, or of tables whose rows are for wider and wider distances, with M = S / 2
//   rounded down and R their reach: e where |e| <= M, else sign(e) (M + ceil((M - 1) log(|e| / M) /
//   log((R - 1) / M))), in f32
// So the table has rows for distances up to S or, where they widen, up to R; the first and the last
// row are those of farther ones, too. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct DistanceTable {
  int64_t side = 0;     // S
  bool widens = false;  // REQUIRES: side from 4 to 2^20, reach of side / 2 + 2 or more
  int64_t reach = 0;    // R
};

// The row of `query_minus_key`.
int64_t distance_row(const DistanceTable& table, int64_t query_minus_key);

// The rows [first, end) that sequences of so many tokens need.
struct DistanceRowRange {
  int64_t first = 0;
  int64_t end = 0;
  int64_t count() const { return end - first; }
};
DistanceRowRange distance_rows_of(const DistanceTable& table, int64_t token_count);

// dst[n - 1 + (key - query)] = row(query - key) - first row of distance_rows_of(n), dst [2n - 1]
// i32.
void distance_rows(Stream& stream, const TensorView& dst, const DistanceTable& table);

}  // namespace jige::ops
