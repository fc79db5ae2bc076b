// The frame of forward attention, whichever way a split of keys is computed: what a row sees, how
// splits are joined, and how results are written. For the sources compiled once per instruction
// set.
// Threads: values.
#pragma once

#include "kernels/cpu/attention_load.h"
#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {

// Below every score; finite, so that m − m' is a number when no key has been seen yet.
inline constexpr float kLowest = -3.402823466e38f;

struct Tile {
  const AttentionRows& args;
  AttentionForwardScratch scratch;
  int64_t row_floats;

  int position(int row) const { return args.context_count + row / args.head_count; }
  // The first key that a row at `position` sees.
  int first_key(int position) const {
    return args.window > 0 && position >= args.window ? position - args.window + 1 : 0;
  }
  // The end of the keys that it sees.
  int end_key(int position) const {
    const int64_t end = int64_t{position} + 1 + args.ahead;
    return end < args.key_count ? static_cast<int>(end) : args.key_count;
  }
  // What a row's scores get besides, of key 0 and those behind it.
  const float* distances_of(int row) const {
    return args.distances + row % args.head_count * args.distance_stride - position(row);
  }
  // The row by distance of a key and a query; the nearest that there is where rows or keys are
  // beyond the sequence's end.
  int64_t distance_row(int64_t distance) const {
    const int64_t last = args.key_count - 1;
    return args.distance_rows.row_of[distance > last ? last : distance < -last ? -last : distance];
  }
  int position_first() const { return position(args.row_begin); }
  int position_last() const { return position(args.row_begin + args.row_count - 1); }
  // Of a cache, the last block of 16 keys that some row sees.
  int block_last() const { return (end_key(position_last()) - 1) / 16; }
};

inline void start_split(const Tile& tile) {
  const AttentionForwardScratch& s = tile.scratch;
  for (int i = 0; i < tile.args.row_count; i += 16) {
    F32x16::broadcast(kLowest).store(s.m + i);
    F32x16::broadcast(kLowest).store(s.m_next + i);
  }
  std::memset(s.l, 0, sizeof(float) * 16 * tile.args.row_count);
  std::memset(s.o, 0, sizeof(float) * tile.row_floats * tile.args.row_count);
}

// What each of some rows sees of some keys, counted from the first of those.
inline void find_ranges(const Tile& tile, AttentionRange rows, AttentionRange keys) {
  const int keys_left = tile.args.key_count - keys.begin;
  const int key_count = keys.end - keys.begin < keys_left ? keys.end - keys.begin : keys_left;
  const int64_t ahead = int64_t{tile.args.ahead} + 1 - keys.begin;
  int head = (tile.args.row_begin + rows.begin) % tile.args.head_count;
  int position = tile.position(tile.args.row_begin + rows.begin);
  for (int i = rows.begin; i < rows.end; ++i) {
    const int first = tile.first_key(position) - keys.begin;
    const int64_t end = position + ahead;
    tile.scratch.ranges[i] = {first < 0 ? 0 : first,
                              end > key_count ? key_count : static_cast<int>(end)};
    if (++head == tile.args.head_count) {
      head = 0;
      ++position;
    }
  }
}

inline float exp_weight_one(float x) {
  float lanes[16];
  exp_weight(F32x16::broadcast(x)).store(lanes);
  return lanes[0];
}

// The result of one split: m, l (summed) and o of every row.
struct SplitResult {
  const float* m;
  const float* l;
  const float* o;
};

// Joins a split to the splits before it, row by row where the row sees some of its keys.
inline void merge_split(const Tile& tile, int split, const SplitResult& result) {
  const AttentionForwardScratch& s = tile.scratch;
  const int split_begin = split * kAttentionSplitKeys;
  const int columns = attention_padded_dim(tile.args.head_dim);
  for (int i = 0; i < tile.args.row_count; ++i) {
    const int position = tile.position(tile.args.row_begin + i);
    const int first = tile.first_key(position);
    const int end = tile.end_key(position);
    if (end <= split_begin || first >= split_begin + kAttentionSplitKeys) continue;
    const float* o = result.o + i * tile.row_floats;
    float* merged = s.merged + i * tile.row_floats;
    if (first >= split_begin) {  // the row's first split
      s.merged_m[i] = result.m[i];
      s.merged_l[i] = result.l[i];
      std::memcpy(merged, o, sizeof(float) * columns);
      continue;
    }
    const float m = s.merged_m[i] > result.m[i] ? s.merged_m[i] : result.m[i];
    const float a = exp_weight_one(s.merged_m[i] - m);
    const float b = exp_weight_one(result.m[i] - m);
    s.merged_m[i] = m;
    s.merged_l[i] = __builtin_fmaf(result.l[i], b, s.merged_l[i] * a);
    for (int c = 0; c < columns; c += F32::kLanes) {
      const F32 kept = F32::load(merged + c) * F32::broadcast(a);
      fma(F32::load(o + c), F32::broadcast(b), kept).store(merged + c);
    }
  }
}

// What a row ends with: O is multiplied with `factor`.
struct RowEnd {
  float m;
  float l;
  float factor;
};

inline RowEnd end_of_row(const SplitResult& result, int row, const float* sink) {
  RowEnd end{result.m[row], result.l[row], 1.0f / result.l[row]};
  if (!sink) return end;
  const float m = end.m > *sink ? end.m : *sink;
  const float a = exp_weight_one(end.m - m);
  end.l = __builtin_fmaf(end.l, a, exp_weight_one(*sink - m));
  end.m = m;
  end.factor = a * (1.0f / end.l);
  return end;
}

inline void write_results(const Tile& tile, const SplitResult& result) {
  const AttentionRows& args = tile.args;
  const int row = args.row_begin;
  int64_t position = row / args.head_count;
  int head = row % args.head_count;
  for (int i = 0; i < args.row_count; ++i) {
    const RowEnd end = end_of_row(result, i, args.sinks ? args.sinks + head : nullptr);
    const F32x16 inverse = F32x16::broadcast(end.factor);
    const int64_t offset = position * args.dst.stride + int64_t{head} * args.head_dim;
    if (i + kWriteRowsAhead < args.row_count) {
      fetch_row(args.dst, offset + kWriteRowsAhead / args.head_count * args.dst.stride,
                args.head_dim);
    }
    with_elements(args.dst, [&](auto* dst) {
      for_each_vector<F32x16>(args.head_dim, [&](int64_t c, int lanes) {
        const F32x16 o = F32x16::load(result.o + i * tile.row_floats + c);
        store_lanes(o * inverse, dst + offset + c, lanes);
      });
    });
    if (args.lse) {
      float lanes[16];
      log(F32x16::broadcast(end.l)).store(lanes);
      args.lse[position * args.lse_stride + head] = end.m + lanes[0];
    }
    if (++head == args.head_count) {
      head = 0;
      ++position;
    }
  }
}

inline Tile make_tile(const AttentionRows& args) {
  return {args, attention_forward_scratch(args.scratch, args.head_dim, args.row_count),
          attention_row_floats(args.head_dim)};
}

// Runs attend(split) for every split, which leaves its m, l (16 lanes) and o in the scratch, and
// does with them what args.partial says. What is merged with nothing is not copied either.
template <typename Attend>
JIGE_INLINE void run_splits(const Tile& tile, Attend&& attend) {
  const AttentionRows& args = tile.args;
  const AttentionForwardScratch& s = tile.scratch;
  float* partial = args.partial;
  const bool one = args.split_end - args.split_begin == 1;
  for (int split = args.split_begin; split < args.split_end; ++split) {
    attend(split);
    for (int i = 0; i < args.row_count; ++i) s.l[i] = horizontal_sum(F32x16::load(s.l + i * 16));
    if (partial) {
      std::memcpy(partial, s.m, sizeof(float) * args.row_count);
      std::memcpy(partial + args.row_count, s.l, sizeof(float) * args.row_count);
      std::memcpy(partial + 2 * args.row_count, s.o,
                  sizeof(float) * args.row_count * tile.row_floats);
      partial += (2 + tile.row_floats) * args.row_count;
    } else if (!one) {
      merge_split(tile, split, {s.m, s.l, s.o});
    }
  }
  if (partial) return;
  write_results(tile,
                one ? SplitResult{s.m, s.l, s.o} : SplitResult{s.merged_m, s.merged_l, s.merged});
}

}  // namespace jige::cpu::JIGE_ISA_NS
