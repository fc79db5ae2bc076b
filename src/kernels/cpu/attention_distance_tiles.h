// Products of queries and keys with rows by distance, on matrix tiles or in pairs, for forward
// attention in bf16 (attention_distance_layout.h). For sources named *_tiles.cc. Threads: values.
#pragma once

#include "kernels/cpu/attention_distance_layout.h"
#include "kernels/cpu/attention_load_tiles.h"

namespace jige::cpu::JIGE_ISA_NS {

// Those of a tile of keys, from `key` on, whose packed keys are in the scratch.
class DistanceProducts {
 public:
  DistanceProducts(const Tiled& t, int key)
      : t_(t),
        key_(key),
        rows_((t.tile.args.row_count + 15) / 16 * 16),
        blocks_((min_of(t.tile.args.key_count - key, kKeys) + 15) / 16),
        s_(attention_distance_scratch<uint16_t>(t.tile.args.distance_scratch, t.depth(),
                                                t.tile.args.row_count)) {
    load();
    if (of_keys()) multiply_keys();
  }

  // Adds them to the scores of sixteen rows or fewer, from `row` of the tile on.
  void add_to(int row, int count, float* scores) const {
    if (of_queries()) multiply_queries(row, count);
    for (int i = 0; i < count; ++i) add_to_row(row + i, i, scores + i * kAttentionScoresStride);
  }

 private:
  bool of_queries() const { return t_.tile.args.distance_rows.for_queries.data != nullptr; }
  bool of_keys() const { return t_.tile.args.distance_rows.for_keys.data != nullptr; }

  void copy(const AttentionSource& source, int64_t row, uint16_t* dst) const {
    copy_row(halves_of(source) + row * source.stride, t_.tile.args.head_dim, dst, t_.depth());
  }

  // The rows of all distances between the tile's keys and queries.
  void load() const {
    const AttentionDistanceRows& tables = t_.tile.args.distance_rows;
    const int depth = t_.depth();
    const int64_t first = key_ - t_.tile.position_first() - (rows_ - 1);
    for (int x = 0; x < rows_ + blocks_ * 16; ++x) {
      const int64_t row = t_.tile.distance_row(first + x);
      if (of_keys()) copy(tables.for_keys, row, s_.for_keys + x * depth);
      if (!of_queries()) continue;
      copy(tables.for_queries, row, s_.block + x % 16 * depth);
      if (x % 16 < 15) continue;
      uint16_t* tiles = s_.for_queries + x / 16 * t_.steps * kTileElements;
      for (int step = 0; step < t_.steps; ++step) {
        transpose_tile(s_.block + step * 32, depth, tiles + step * kTileElements);
      }
    }
  }

  // Those of each sixteen keys by the distances that they have to some row.
  void multiply_keys() const {
    TileProduct product;
    product.left_row_bytes = t_.depth() * 2;
    product.left_step_bytes = kTileRowBytes;
    product.panel_bytes = t_.steps * kTileBytes;
    product.steps = t_.steps;
    product.panels = 1;
    product.sums_stride = kAttentionByKeyStride;
    for (int block = 0; block < blocks_; ++block) {
      product.right = t_.scratch.k_tiles + block * t_.steps * kTileElements;
      for (int x = block * 16; x < block * 16 + rows_ + 16; x += 16) {
        product.left = s_.for_keys + x * t_.depth();
        product.sums = s_.by_key + x * kAttentionByKeyStride + block * 16;
        multiply(product);
      }
    }
  }

  void multiply_queries(int row, int count) const {
    TileProduct product;
    product.left = t_.scratch.q + row * t_.depth();
    product.left_row_bytes = t_.depth() * 2;
    product.left_step_bytes = kTileRowBytes;
    product.right = s_.for_queries + (rows_ - row - 16) / 16 * t_.steps * kTileElements;
    product.panel_bytes = t_.steps * kTileBytes;
    product.steps = t_.steps;
    product.panels = blocks_ + 1;
    product.rows = count;
    product.sums = s_.by_query;
    product.sums_stride = kAttentionByQueryStride;
    multiply(product);
  }

  // What row i of sixteen, `row` of the tile, gets.
  void add_to_row(int row, int i, float* scores) const {
    const float* by_query = s_.by_query + i * kAttentionByQueryStride + 15 - i;
    const float* by_key = s_.by_key + (rows_ - 1 - row) * kAttentionByKeyStride;
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i places = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(kAttentionByKeyStride + 1));
    for (int key = 0; key < blocks_ * 16; key += 16) {
      __m512 sum = _mm512_loadu_ps(scores + key);
      if (of_queries()) sum = _mm512_add_ps(sum, _mm512_loadu_ps(by_query + key));
      if (of_keys()) {
        const float* from = by_key + key * (kAttentionByKeyStride + 1);
        sum = _mm512_add_ps(sum, _mm512_i32gather_ps(places, from, 4));
      }
      _mm512_storeu_ps(scores + key, sum);
    }
  }

  const Tiled& t_;
  const int key_;
  const int rows_;    // of the tile, rounded up
  const int blocks_;  // of 16 keys that there are
  const AttentionDistanceScratch<uint16_t> s_;
};

}  // namespace jige::cpu::JIGE_ISA_NS
