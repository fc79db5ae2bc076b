#include "model/context_split.h"

#include <algorithm>

#include "base/check.h"

namespace jige::model {
namespace {

RowRange common(const RowRange& a, const RowRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace

ContextSplit::ContextSplit(std::span<const int32_t> counts, int ranks, int64_t step)
    : ranks_(ranks), step_(step), counts_(counts.begin(), counts.end()) {
  JIGE_CHECK(ranks >= 1 && step >= 1, "rows for {} ranks in steps of {}", ranks, step);
  for (const int32_t count : counts) row_count_ += count;
}

int64_t ContextSplit::rows_max(int64_t row_count, int ranks, int64_t step) {
  const int64_t chunks = 2 * int64_t{ranks};
  const int64_t steps = (row_count + step - 1) / step;
  return std::min(row_count, 2 * ((steps + chunks - 1) / chunks) * step);
}

int ContextSplit::owner(int64_t chunk, int ranks) {
  const int64_t place = chunk % (2 * int64_t{ranks});
  return static_cast<int>(std::min<int64_t>(place, 2 * int64_t{ranks} - 1 - place));
}

RowRange ContextSplit::chunk(int64_t index) const {
  const int64_t steps = (row_count_ + step_ - 1) / step_;
  const auto border = [&](int64_t at) {
    return std::min(steps * at / chunk_count() * step_, row_count_);
  };
  return {border(index), border(index + 1)};
}

RowRange ContextSplit::local_chunk(int64_t index) const {
  const int64_t before = index < ranks_ ? 0 : chunk(owner(index, ranks_)).count();
  return {before, before + chunk(index).count()};
}

std::vector<RowRange> ContextSplit::rows(int rank) const {
  return {chunk(rank), chunk(chunk_count() - 1 - rank)};
}

std::vector<ops::SequencePiece> ContextSplit::pieces(int rank) const {
  std::vector<ops::SequencePiece> pieces;
  int64_t here = 0;
  for (const RowRange& own : rows(rank)) {
    int64_t begin = 0;
    for (const int32_t count : counts_) {
      const RowRange part = common(own, {begin, begin + count});
      if (part.count() > 0) {
        pieces.push_back({.row_begin = static_cast<int32_t>(here),
                          .row_count = static_cast<int32_t>(part.count()),
                          .position = static_cast<int32_t>(part.begin - begin),
                          .whole_begin = static_cast<int32_t>(begin),
                          .whole_count = count});
        here += part.count();
      }
      begin += count;
    }
  }
  return pieces;
}

std::vector<RowRange> ContextSplit::needed(int rank, ContextNeed need) const {
  std::vector<RowRange> ranges;
  for (const ops::SequencePiece& piece : pieces(rank)) {
    const int64_t begin = piece.whole_begin;
    const RowRange range =
        need == ContextNeed::kKeys
            ? RowRange{begin, begin + piece.position + piece.row_count}
            : RowRange{begin + first_query_row(piece), begin + piece.whole_count};
    ranges.push_back(range);
  }
  std::ranges::sort(ranges, {}, &RowRange::begin);
  std::vector<RowRange> joined;
  for (const RowRange& range : ranges) ops::append_rows(joined, range);
  return joined;
}

std::vector<RowRange> ContextSplit::given(int from, int to, ContextNeed need) const {
  std::vector<RowRange> ranges;
  if (from == to) return ranges;
  const std::vector<RowRange> all = needed(to, need);
  for (const RowRange& own : rows(from)) {
    for (const RowRange& range : all) ops::append_rows(ranges, common(own, range));
  }
  return ranges;
}

}  // namespace jige::model
