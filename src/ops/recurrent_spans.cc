#include "ops/recurrent_spans.h"

#include "base/check.h"
#include "tensor/cuda_device.h"

namespace jige::ops {

void check_spare(const SequenceSpan& sequence, int64_t slots) {
  if (!sequence.has_spare()) return;
  JIGE_CHECK(sequence.spare >= 0 && sequence.spare < slots && sequence.spare != sequence.state,
             "spare state {} of {}, beside state {}", sequence.spare, slots, sequence.state);
  JIGE_CHECK(sequence.spare_rows > 0 && sequence.spare_rows <= sequence.row_count,
             "a spare state behind {} of {} rows", sequence.spare_rows, sequence.row_count);
}

cuda::RecurrentSpans send_recurrent_spans(Stream& stream,
                                          const std::vector<SequenceSpan>& sequences) {
  std::vector<cuda::RecurrentSpan> spans;
  int64_t tiles = 0;
  for (const SequenceSpan& sequence : sequences) {
    if (sequence.row_count == 0) continue;
    spans.push_back({.row_begin = sequence.row_begin,
                     .row_count = sequence.row_count,
                     .state = sequence.state,
                     .resumed = sequence.context_count > 0,
                     .spare = sequence.spare,
                     .spare_rows = sequence.spare_rows,
                     .tile_begin = static_cast<int32_t>(tiles)});
    tiles += (int64_t{sequence.row_count} + cuda::kSpanTileRows - 1) / cuda::kSpanTileRows;
    JIGE_CHECK(tiles <= INT32_MAX, "{} tiles of rows", tiles);
  }
  if (spans.empty()) return {};
  const auto bytes = static_cast<int64_t>(spans.size() * sizeof(cuda::RecurrentSpan));
  const void* const sent = as_cuda(stream).upload(spans.data(), bytes);
  return {.data = static_cast<const cuda::RecurrentSpan*>(sent),
          .count = static_cast<int64_t>(spans.size()),
          .tiles = tiles};
}

}  // namespace jige::ops
