// How the scratch of the attention kernels on tiles and in pairs is laid out; shared by the kernels
// and by attention.cc, which states its size.
//
// A "step" is 32 of a product's depth, a tile 1 KiB. Head dimensions are padded with zeros: to
// steps where they are depth, to tiles of 16 columns where they are the result's.
//
// Threads: values. Every function here is inlined: no copy is shared between instruction sets.
#pragma once

#include "kernels/cpu/attention_layout.h"

namespace jige::cpu {

#define JIGE_LAYOUT static inline __attribute__((always_inline))

JIGE_LAYOUT int32_t attention_depth_steps(int32_t head_dim) { return (head_dim + 31) / 32; }
JIGE_LAYOUT int32_t attention_column_tiles(int32_t head_dim) { return (head_dim + 15) / 16; }

// Up to so many rows of one position are computed where keys and values lie (attention_few.h).
inline constexpr int kAttentionFewRows = 8;
// Floats from one row of scores to the next: an odd number of cache lines.
inline constexpr int kAttentionScoresStride = kAttentionTileKeys + 16;

struct AttentionTiledScratch {
  AttentionForwardScratch rows;
  uint16_t* q;           // rows, padded to steps
  uint16_t* k_tiles;     // [16 keys][step]: right tiles
  uint16_t* v_tiles;     // [16 columns][step of keys]: right tiles
  uint16_t* v_seen;      // likewise, for a row alone
  uint16_t* block;       // 16 keys or values, padded
  float* scores[2];      // [16 rows][kAttentionScoresStride]
  uint16_t* weights[2];  // [16 rows][keys]
  float* product;        // [16 rows][columns]
  float* factors;        // few rows: q, every number eight times
  float* few_weights;    // [few rows][keys]
  // Of a cache in 8 bits, [keys]: what scores are multiplied by to be weighed, and before that
  // under a cap; what weights are multiplied by.
  float* score_factors;
  float* cap_factors;
  float* value_scales;
  int64_t bytes;
};

JIGE_LAYOUT AttentionTiledScratch attention_tiled_scratch(void* base, int32_t head_dim,
                                                          int32_t row_count) {
  const int64_t rows = (int64_t{row_count} + 15) / 16 * 16;
  constexpr int64_t keys = kAttentionTileKeys;
  const int64_t depth = int64_t{attention_depth_steps(head_dim)} * 32;
  const int64_t columns = attention_padded_dim(head_dim);
  AttentionPieces pieces{static_cast<char*>(base)};
  AttentionTiledScratch s{};
  attention_take_rows(&pieces, rows, attention_row_floats(head_dim), &s.rows);
  s.q = pieces.take<uint16_t>(rows * depth);
  s.k_tiles = pieces.take<uint16_t>(keys * depth);
  s.v_tiles = pieces.take<uint16_t>(keys * columns);
  s.v_seen = pieces.take<uint16_t>(keys * columns);
  s.block = pieces.take<uint16_t>(16 * depth);
  for (float*& scores : s.scores) {
    scores = pieces.take<float>(16 * kAttentionScoresStride);
  }
  for (uint16_t*& weights : s.weights) weights = pieces.take<uint16_t>(16 * keys);
  s.product = pieces.take<float>(16 * columns);
  s.factors = pieces.take<float>(kAttentionFewRows * 8 * depth);
  s.few_weights = pieces.take<float>(kAttentionFewRows * keys);
  s.score_factors = pieces.take<float>(keys);
  s.cap_factors = pieces.take<float>(keys);
  s.value_scales = pieces.take<float>(keys);
  s.bytes = pieces.used;
  return s;
}

inline constexpr int kAttentionRowSteps = kAttentionRowsMax / 32;

// The keys and values of a tile of 64, padded to steps.
struct AttentionTiledKeys {
  uint16_t* k_rows;     // left tiles, one after the other in every row
  uint16_t* v_rows;     // likewise
  uint16_t* k_columns;  // [16 columns][step of keys]: left tiles whose depth are keys
};

struct AttentionTiledGradients {
  AttentionTiledKeys keys;  // of the first tile of keys
  int64_t keys_step;        // elements from one tile of keys to the next
  uint16_t* rows;           // 32 rows, padded to steps
  uint16_t* q_depth;        // [16 rows][step]: right tiles
  uint16_t* grad_depth;     // likewise, of grad_dst
  uint16_t* q_rows;         // [16 columns][step of rows]: right tiles whose depth are rows
  uint16_t* grad_rows;
  float* lse;              // rows: times log2 e
  float* dots;             // rows: D
  AttentionRange* ranges;  // of rows, a key
  float* scores;           // [64 keys][32 rows]
  float* products;         // likewise: dP
  uint16_t* weights;       // [16 keys][step of rows]: P, left tiles
  uint16_t* slopes;        // likewise, dS
  uint16_t* slope_pairs;   // [16 rows][step of keys]: dS, right tiles
  float* grad_q;           // [columns][rows]
  float* block;            // 16 rows of columns
  float* grad_k;           // rows of keys: a tile's, or a sequence's
  float* grad_v;
  int64_t bytes;
};

JIGE_LAYOUT AttentionTiledGradients attention_tiled_gradients(void* base, int32_t head_dim,
                                                              int64_t key_count) {
  const int64_t depth = int64_t{attention_depth_steps(head_dim)} * 32;
  const int64_t columns = attention_padded_dim(head_dim);
  const int64_t row = attention_row_floats(head_dim);
  const int64_t tile_count = (key_count + kAttentionTileKeys - 1) / kAttentionTileKeys;
  constexpr int64_t kRows = kAttentionRowsMax;
  constexpr int64_t kKeys = kAttentionTileKeys;
  AttentionPieces pieces{static_cast<char*>(base)};
  AttentionTiledGradients s{};
  s.keys_step = kKeys * (2 * depth + columns);
  s.keys.k_rows = pieces.take<uint16_t>(s.keys_step * tile_count);
  s.keys.v_rows = s.keys.k_rows + kKeys * depth;
  s.keys.k_columns = s.keys.v_rows + kKeys * depth;
  s.rows = pieces.take<uint16_t>(32 * depth);
  s.q_depth = pieces.take<uint16_t>(kRows * depth);
  s.grad_depth = pieces.take<uint16_t>(kRows * depth);
  s.q_rows = pieces.take<uint16_t>(kRows * columns);
  s.grad_rows = pieces.take<uint16_t>(kRows * columns);
  s.lse = pieces.take<float>(kRows);
  s.dots = pieces.take<float>(kRows);
  s.ranges = pieces.take<AttentionRange>(kKeys);
  s.scores = pieces.take<float>(kKeys * 32);
  s.products = pieces.take<float>(kKeys * 32);
  s.weights = pieces.take<uint16_t>(kKeys * kRows);
  s.slopes = pieces.take<uint16_t>(kKeys * kRows);
  s.slope_pairs = pieces.take<uint16_t>(kKeys * kRows);
  s.grad_q = pieces.take<float>(columns * kRows);
  s.block = pieces.take<float>(16 * row);
  s.grad_k = pieces.take<float>(tile_count * kKeys * row);
  s.grad_v = pieces.take<float>(tile_count * kKeys * row);
  s.bytes = pieces.used;
  return s;
}

#undef JIGE_LAYOUT

}  // namespace jige::cpu
