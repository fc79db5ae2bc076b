// Which rows are which sequence's, for kernels that go through sequences token by token.
//
// A sequence's rows are cut into tiles of kSpanTileRows from its first on; those of all sequences
// are numbered one behind the other. Threads: values.
#pragma once

#include <cstdint>

namespace jige::cuda {

inline constexpr int kSpanTileRows = 8;

// A sequence that has rows.
struct RecurrentSpan {
  int32_t row_begin;
  int32_t row_count;
  int32_t state;    // row of the states; not used without states
  int32_t resumed;  // whether the state is read
  int32_t spare;    // row that gets the state behind the first `spare_rows` rows, or below 0
  int32_t spare_rows;
  int32_t tile_begin;  // tiles of the sequences before
};

struct RecurrentSpans {
  const RecurrentSpan* data;  // in device memory
  int64_t count;
  int64_t tiles;  // of all
};

}  // namespace jige::cuda
