// Which rows a tile has (recurrent_spans.h). Threads: device code.
#pragma once

#include "kernels/cuda/portable.cuh"
#include "kernels/cuda/recurrent_spans.h"

namespace jige::cuda {

// Some rows of a sequence.
struct SpanTile {
  RecurrentSpan span;
  int first;  // row of the sequence
  int count;
};

__device__ inline SpanTile find_span_tile(const RecurrentSpans& spans, int64_t tile) {
  const bool one_each = spans.tiles == spans.count;
  int64_t low = one_each ? tile : 0;
  int64_t high = one_each ? tile : spans.count - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (spans.data[middle].tile_begin <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const RecurrentSpan span = spans.data[low];
  const int first = static_cast<int>(tile - span.tile_begin) * kSpanTileRows;
  return {span, first, min(span.row_count - first, kSpanTileRows)};
}

}  // namespace jige::cuda
