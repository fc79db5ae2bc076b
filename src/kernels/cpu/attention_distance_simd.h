// Products of queries and keys with rows by distance, in chains of fused multiply-adds, for forward
// attention compiled once per instruction set (attention_distance_layout.h).
// Threads: values.
#pragma once

#include "kernels/cpu/attention_distance_layout.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/attention_tile.h"

namespace jige::cpu::JIGE_ISA_NS {

// Adds them to the scores of a tile of keys, from `key` on.
class DistanceProducts {
 public:
  DistanceProducts(const Tile& tile, const LoadedTile& keys, int key)
      : tile_(tile),
        keys_(keys),
        key_(key),
        rows_((tile.args.row_count + 15) / 16 * 16),
        blocks_((min_of(tile.args.key_count - key, kAttentionTileKeys) + 15) / 16),
        s_(attention_distance_scratch<float>(tile.args.distance_scratch, tile.row_floats,
                                             tile.args.row_count)) {}

  void add() {
    load();
    if (of_keys()) multiply_keys();
    for (int row = 0; row < tile_.args.row_count; row += 16) {
      const int count = min_of(tile_.args.row_count - row, 16);
      if (of_queries()) multiply_queries(row, count);
      for (int i = 0; i < count; ++i) add_to_row(row + i, i);
    }
  }

 private:
  bool of_queries() const { return tile_.args.distance_rows.for_queries.data != nullptr; }
  bool of_keys() const { return tile_.args.distance_rows.for_keys.data != nullptr; }

  void copy(const AttentionSource& source, int64_t row, float scale, float* dst) const {
    with_elements(source, [&](const auto* from) {
      pack_rows(from + row * source.stride, 0, 1, tile_.args.head_dim, scale, dst,
                tile_.row_floats);
    });
  }

  // The rows of all distances between the tile's keys and queries.
  void load() {
    const AttentionRows& args = tile_.args;
    const int64_t first = key_ - tile_.position_first() - (rows_ - 1);
    for (int x = 0; x < rows_ + blocks_ * 16; ++x) {
      const int64_t row = tile_.distance_row(first + x);
      if (of_keys()) {
        copy(args.distance_rows.for_keys, row, args.scale, s_.for_keys + x * tile_.row_floats);
      }
      if (!of_queries()) continue;
      copy(args.distance_rows.for_queries, row, 1.0f, s_.block + x % 16 * tile_.row_floats);
      if (x % 16 < 15) continue;
      pack_columns(s_.block, tile_.row_floats, 16, args.head_dim,
                   s_.for_queries + x / 16 * 16 * args.head_dim);
    }
  }

  ScoresTile<float> product(const float* left, float* scores, AttentionRange columns,
                            int row_count) {
    for (int i = 0; i < row_count; ++i) s_.ranges[i] = columns;
    ScoresTile<float> made;
    made.q = left;
    made.q_stride = tile_.row_floats;
    made.head_dim = tile_.args.head_dim;
    made.scores = scores;
    made.ranges = s_.ranges;
    return made;
  }

  void multiply_keys() {
    for (int block = 0; block < blocks_; ++block) {
      if (!keys_.k_columns[block]) continue;  // no row sees them
      // By the distances that the block's keys have to some row.
      for (int x = block * 16; x < block * 16 + rows_ + 16; x += kAttentionRowsMax) {
        const int count = min_of(block * 16 + rows_ + 16 - x, kAttentionRowsMax);
        ScoresTile<float> one = product(s_.for_keys + x * tile_.row_floats,
                                        s_.by_key + x * kAttentionTileKeys, {0, 16}, count);
        one.k_columns[0] = static_cast<const float*>(keys_.k_columns[block]);
        one.scores += block * 16;
        scores_tile<false>(one, count);
      }
    }
  }

  // The first 64 of the distances of sixteen rows, then the last 16.
  void multiply_queries(int row, int count) {
    const float* columns = s_.for_queries + int64_t{rows_ - row - 16} * tile_.args.head_dim;
    const float* queries = tile_.scratch.q + row * tile_.row_floats;
    const int first = min_of(blocks_ + 1, 4);
    ScoresTile<float> one = product(queries, s_.by_query, {0, first * 16}, count);
    for (int block = 0; block < first; ++block) {
      one.k_columns[block] = columns + int64_t{block} * 16 * tile_.args.head_dim;
    }
    scores_tile<false>(one, count);
    if (blocks_ < 4) return;
    one = product(queries, last_of_queries(), {0, 16}, count);
    one.k_columns[0] = columns + int64_t{4} * 16 * tile_.args.head_dim;
    scores_tile<false>(one, count);
  }
  float* last_of_queries() const { return s_.by_query + 16 * kAttentionTileKeys; }

  // What row i of sixteen, `row` of the tile, gets.
  void add_to_row(int row, int i) const {
    float line[kAttentionTileKeys + 16];
    if (of_queries()) {
      std::memcpy(line, s_.by_query + i * kAttentionTileKeys, sizeof(float) * kAttentionTileKeys);
      std::memcpy(line + kAttentionTileKeys, last_of_queries() + i * kAttentionTileKeys,
                  sizeof(float) * 16);
    }
    float* scores = tile_.scratch.scores + row * kAttentionTileKeys;
    const float* by_key = s_.by_key + (rows_ - 1 - row) * kAttentionTileKeys;
    for (int block = 0; block < blocks_; ++block) {
      F32x16 sum = F32x16::load(scores + block * 16);
      if (of_queries()) sum = sum + F32x16::load(line + block * 16 + 15 - i);
      if (of_keys()) {
        float lanes[16];
        for (int j = 0; j < 16; ++j) {
          lanes[j] = by_key[(block * 16 + j) * (kAttentionTileKeys + 1)];
        }
        sum = sum + F32x16::load(lanes);
      }
      sum.store(scores + block * 16);
    }
  }

  const Tile& tile_;
  const LoadedTile& keys_;
  const int key_;
  const int rows_;    // of the tile, rounded up
  const int blocks_;  // of 16 keys that there are
  const AttentionDistanceScratch<float> s_;
};

}  // namespace jige::cpu::JIGE_ISA_NS
