#include "ops/attention_schedule.h"

#include <algorithm>

#include "base/check.h"

namespace jige::ops {
namespace {

// Rows of a tile: fewer than the kernels' most where that gives every thread something to do.
constexpr int64_t kTilesPerThread = 3;
struct TileRows {
  int64_t least, most;
  int64_t group;  // rows the kernels hold in registers
};
constexpr TileRows kChainRows = {24, cpu::kAttentionRowsMax, 6};
constexpr TileRows kTiledRows = {32, cpu::kAttentionTiledRowsMax, 16};
// A tile is cut into splits when it is more than one part in so many of a thread's share.
constexpr int64_t kCutsPerThread = 4;

int64_t tile_rows(const std::vector<SequenceSpan>& sequences, const AttentionShape& shape,
                  const AttentionMachine& machine) {
  const TileRows& limits = machine.in_tiles ? kTiledRows : kChainRows;
  int64_t rows = 0;
  for (const SequenceSpan& sequence : sequences) rows += sequence.row_count * shape.head_count;
  const int64_t tiles = kTilesPerThread * machine.thread_count;
  const int64_t group = limits.group;
  const int64_t even = ((rows + tiles - 1) / tiles + group - 1) / group * group;
  return std::clamp(even, limits.least, limits.most);
}

// A tile with the splits that its rows see, and its cost.
AttentionWork make_tile(const SequenceSpan& sequence, const AttentionShape& shape,
                        AttentionWork work) {
  const int64_t heads = shape.head_count / shape.kv_head_count;
  const int64_t first = sequence.context_count + work.row_begin / heads;
  const int64_t last = sequence.context_count + (work.row_begin + work.row_count - 1) / heads;
  const int64_t key_end = attention_ahead(shape, sequence).end_key(last);
  const int64_t window = attention_window(shape);
  const int64_t key_begin = window > 0 ? std::max<int64_t>(0, first - window + 1) : 0;
  work.split_begin = static_cast<int32_t>(key_begin / cpu::kAttentionSplitKeys);
  work.split_end = static_cast<int32_t>((key_end - 1) / cpu::kAttentionSplitKeys) + 1;
  work.cost = static_cast<double>(key_end - key_begin) * work.row_count;
  return work;
}

// Cuts a tile into pieces of some splits each, of about `cost_max`.
void cut_tile(const AttentionWork& tile, const AttentionShape& shape, double cost_max,
              AttentionSchedule* schedule) {
  const int64_t floats =
      cpu::attention_partial_floats(tile.row_count, static_cast<int32_t>(shape.head_dim));
  AttentionWork whole = tile;
  whole.partial_offset = schedule->partial_floats;
  schedule->merge.push_back(whole);
  const int32_t split_count = tile.split_end - tile.split_begin;
  const int32_t step = std::max(1, static_cast<int32_t>(split_count * cost_max / tile.cost));
  for (int32_t split = tile.split_begin; split < tile.split_end; split += step) {
    AttentionWork part = tile;
    part.split_begin = split;
    part.split_end = std::min(split + step, tile.split_end);
    part.partial_offset = whole.partial_offset + (split - tile.split_begin) * floats;
    part.cost = tile.cost * (part.split_end - split) / split_count;
    schedule->attend.push_back(part);
  }
  schedule->partial_floats += split_count * floats;
}

}  // namespace

void check_attention_shape(const AttentionShape& shape) {
  JIGE_CHECK(shape.head_count > 0 && shape.kv_head_count > 0 &&
                 shape.head_count % shape.kv_head_count == 0,
             "{} query heads over {} key/value heads", shape.head_count, shape.kv_head_count);
  JIGE_CHECK(shape.head_dim > 0 && shape.head_dim <= kAttentionDimMax, "head dimension {}",
             shape.head_dim);
  JIGE_CHECK(shape.window >= 0, "window {}", shape.window);
  JIGE_CHECK(!shape.distances || (shape.both_sides && shape.cap == 0),
             "scores by distance where queries do not see both sides, or under a cap");
  JIGE_CHECK(!shape.distance_tables.row_of ||
                 (shape.both_sides && shape.cap == 0 && shape.head_count == shape.kv_head_count),
             "rows by distance where queries do not see both sides, share keys or have a cap");
}

void check_attention_matrix(const TensorView& view, const char* name, int64_t rows,
                            int64_t columns) {
  JIGE_CHECK(view.dtype == DType::kF32 || view.dtype == DType::kBF16, "{} is {}", name,
             dtype_info(view.dtype).name);
  JIGE_CHECK(view.shape.rank() == 2 && view.rows() == rows && view.columns() == columns,
             "{} is {}, expected [{}, {}]", name, view.shape.to_string(), rows, columns);
}

void check_attention_sequences(const std::vector<SequenceSpan>& sequences, int64_t rows,
                               int64_t head_count) {
  constexpr int64_t kPositionsMax = INT32_MAX - cpu::kAttentionSplitKeys;
  for (const SequenceSpan& sequence : sequences) {
    JIGE_CHECK(sequence.row_begin >= 0 && sequence.row_count >= 0 &&
                   int64_t{sequence.row_begin} + sequence.row_count <= rows,
               "rows {} + {} of {}", sequence.row_begin, sequence.row_count, rows);
    JIGE_CHECK(sequence.context_count >= 0 &&
                   int64_t{sequence.context_count} + sequence.row_count <= kPositionsMax,
               "context of {} tokens", sequence.context_count);
    JIGE_CHECK(sequence.row_count * head_count <= INT32_MAX - cpu::kAttentionRowsMax,
               "{} rows of {} heads", sequence.row_count, head_count);
  }
}

void check_attention_blocks(const SequenceSpan& sequence, int64_t first_position,
                            int64_t block_count) {
  if (sequence.row_count == 0) return;
  JIGE_CHECK(sequence.blocks, "a sequence without cache blocks");
  const int64_t last = int64_t{sequence.context_count} + sequence.row_count - 1;
  for (int64_t i = first_position / kKvBlockTokens; i <= last / kKvBlockTokens; ++i) {
    JIGE_CHECK(sequence.blocks[i] >= 0 && sequence.blocks[i] < block_count,
               "cache block {} of {} at tokens {} to {}", sequence.blocks[i], block_count,
               i * kKvBlockTokens, i * kKvBlockTokens + kKvBlockTokens - 1);
  }
}

void check_seen_blocks(const SequenceSpan& sequence, const AttentionShape& shape,
                       const KvCacheView& cache) {
  const int64_t first = shape.window > 0 ? sequence.context_count - shape.window + 1 : 0;
  check_attention_blocks(sequence, std::max<int64_t>(0, first), cache.block_count);
}

cpu::AttentionSource attention_source(const TensorView& view, int64_t row, int64_t column) {
  const int64_t offset = dtype_bytes(view.dtype, row * view.row_stride + column);
  return {static_cast<const char*>(view.data) + offset, view.row_stride,
          view.dtype == DType::kBF16};
}

cpu::AttentionTarget attention_target(const TensorView& view, int64_t row, int64_t column) {
  const int64_t offset = dtype_bytes(view.dtype, row * view.row_stride + column);
  return {static_cast<char*>(view.data) + offset, view.row_stride, view.dtype == DType::kBF16};
}

int32_t attention_window(const AttentionShape& shape) {
  return shape.window > INT32_MAX ? 0 : static_cast<int32_t>(shape.window);
}

AttentionAhead attention_ahead(const AttentionShape& shape, const SequenceSpan& sequence) {
  if (!shape.both_sides && !sequence.mutual) return {};
  const int32_t window = sequence.mutual ? 0 : attention_window(shape);
  const int32_t count = sequence.context_count + sequence.row_count;
  return {.ahead = window > 0 ? std::min(window - 1, count) : count, .key_count = count};
}

void check_looks_back(const AttentionShape& shape) {
  JIGE_CHECK(!shape.both_sides, "queries that see what is behind them, where none may");
}

void check_looks_back(const std::vector<SequenceSpan>& sequences) {
  for (const SequenceSpan& sequence : sequences) {
    JIGE_CHECK(!sequence.mutual, "rows that see one another, where none may");
  }
}

AttentionSchedule make_attention_schedule(const std::vector<SequenceSpan>& sequences,
                                          const AttentionShape& shape,
                                          const AttentionMachine& machine) {
  const int thread_count = machine.thread_count;
  const int64_t heads = shape.head_count / shape.kv_head_count;
  const int64_t rows_max = tile_rows(sequences, shape, machine);
  std::vector<AttentionWork> tiles;
  double total = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t rows = sequences[i].row_count * heads;
    for (int64_t head = 0; head < shape.kv_head_count; ++head) {
      for (int64_t row = 0; row < rows; row += rows_max) {
        AttentionWork work;
        work.sequence = static_cast<int32_t>(i);
        work.kv_head = static_cast<int32_t>(head);
        work.row_begin = static_cast<int32_t>(row);
        work.row_count = static_cast<int32_t>(std::min(rows_max, rows - row));
        tiles.push_back(make_tile(sequences[i], shape, work));
        total += tiles.back().cost;
      }
    }
  }
  AttentionSchedule schedule;
  const double cost_max = total / static_cast<double>(kCutsPerThread * thread_count);
  for (const AttentionWork& tile : tiles) {
    if (thread_count > 1 && tile.cost > cost_max && tile.split_end - tile.split_begin > 1) {
      cut_tile(tile, shape, cost_max, &schedule);
    } else {
      schedule.attend.push_back(tile);
    }
  }
  std::stable_sort(schedule.attend.begin(), schedule.attend.end(),
                   [](const auto& a, const auto& b) { return a.cost > b.cost; });
  return schedule;
}

}  // namespace jige::ops
