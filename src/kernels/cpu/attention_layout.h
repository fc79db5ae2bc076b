// How the scratch of the attention kernels is laid out; shared by the kernels, which use it, and by
// attention.cc, which states its size.
//
// Rows of q, o, v and gradients are kept in f32, padded to an odd number of cache lines, so that a
// column of 64 rows falls into different cache sets.
// Threads: values. Every function here is inlined: no copy is shared between instruction sets.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention.h"

namespace jige::cpu {

#define JIGE_LAYOUT static inline __attribute__((always_inline))

// A half-open range of keys of a tile (or of rows, for a key).
struct AttentionRange {
  int32_t begin;
  int32_t end;
};

// Columns of a head rounded up to 16.
JIGE_LAYOUT int32_t attention_padded_dim(int32_t head_dim) { return (head_dim + 15) / 16 * 16; }
// Floats from one row in scratch to the next.
JIGE_LAYOUT int64_t attention_row_floats(int32_t head_dim) {
  return ((attention_padded_dim(head_dim) / 16) | 1) * int64_t{16};
}

// Bytes of a head's part of a cache block in 8 bits: keys, values, and the scales of both.
JIGE_LAYOUT int64_t attention_block_head_bytes(int32_t head_dim) {
  return 2 * int64_t{kAttentionBlockKeys} * (head_dim + 2);
}

// Hands out aligned pieces of a buffer; from a null base it only counts.
struct AttentionPieces {
  char* base;
  int64_t used = 0;

  template <typename T>
  inline __attribute__((always_inline)) T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(base + used);
    used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return base ? piece : nullptr;
  }
};

// A tile of packed keys and values.
struct AttentionTileScratch {
  float* k_columns;  // 4 × [d][16]
  float* v_columns;  // likewise; backward only
  float* k_rows;     // 64 rows; backward only
  float* v_rows;     // 64 rows; forward only
};

struct AttentionForwardScratch {
  AttentionTileScratch tile;
  float* q;       // rows
  float* o;       // rows, of the split
  float* merged;  // rows, of all splits so far
  float* scores;  // rows × 64
  float* l;       // rows × 16
  float* m;       // rows
  float* m_next;
  float* alpha;
  float* merged_m;
  float* merged_l;
  AttentionRange* ranges;
  int64_t bytes;
};

// What both ways to compute a split, and the merging of splits, keep of `rows` rows.
JIGE_LAYOUT void attention_take_rows(AttentionPieces* pieces, int64_t rows, int64_t row_floats,
                                     AttentionForwardScratch* s) {
  s->o = pieces->take<float>(rows * row_floats);
  s->merged = pieces->take<float>(rows * row_floats);
  s->l = pieces->take<float>(rows * 16);
  s->m = pieces->take<float>(rows);
  s->m_next = pieces->take<float>(rows);
  s->alpha = pieces->take<float>(rows);
  s->merged_m = pieces->take<float>(rows);
  s->merged_l = pieces->take<float>(rows);
  s->ranges = pieces->take<AttentionRange>(rows);
}

JIGE_LAYOUT AttentionForwardScratch attention_forward_scratch(void* base, int32_t head_dim,
                                                              int32_t row_count) {
  const int64_t rows = (int64_t{row_count} + 15) / 16 * 16;
  const int64_t row = attention_row_floats(head_dim);
  const int64_t columns = int64_t{kAttentionTileKeys} * head_dim;
  AttentionPieces pieces{static_cast<char*>(base)};
  AttentionForwardScratch s{};
  attention_take_rows(&pieces, rows, row, &s);
  s.tile.k_columns = pieces.take<float>(columns);
  s.tile.v_rows = pieces.take<float>(kAttentionTileKeys * row);
  s.q = pieces.take<float>(rows * row);
  s.scores = pieces.take<float>(rows * kAttentionTileKeys);
  s.bytes = pieces.used;
  return s;
}

struct AttentionBackwardScratch {
  AttentionTileScratch tile;
  float* q;                    // rows, scaled
  float* grad_dst;             // rows
  float* grad_q;               // rows
  float* scores;               // rows × 64: scores, then P
  float* products;             // rows × 64: dP, then dS
  float* lse;                  // rows
  float* dots;                 // rows: D
  AttentionRange* ranges;      // of keys, a row
  AttentionRange* key_ranges;  // of rows, a key
  float* grad_k;               // rows of keys: a tile's, or a sequence's
  float* grad_v;
  int64_t bytes;
};

JIGE_LAYOUT AttentionBackwardScratch attention_backward_scratch(void* base, int32_t head_dim,
                                                                int32_t key_count) {
  const int64_t row = attention_row_floats(head_dim);
  const int64_t columns = int64_t{kAttentionTileKeys} * head_dim;
  const int64_t key_rows =
      (int64_t{key_count} + kAttentionTileKeys - 1) / kAttentionTileKeys * kAttentionTileKeys;
  AttentionPieces pieces{static_cast<char*>(base)};
  AttentionBackwardScratch s{};
  s.tile.k_columns = pieces.take<float>(columns);
  s.tile.v_columns = pieces.take<float>(columns);
  s.tile.k_rows = pieces.take<float>(kAttentionTileKeys * row);
  s.q = pieces.take<float>(kAttentionRowsMax * row);
  s.grad_dst = pieces.take<float>(kAttentionRowsMax * row);
  s.grad_q = pieces.take<float>(kAttentionRowsMax * row);
  s.scores = pieces.take<float>(kAttentionRowsMax * kAttentionTileKeys);
  s.products = pieces.take<float>(kAttentionRowsMax * kAttentionTileKeys);
  s.lse = pieces.take<float>(kAttentionRowsMax);
  s.dots = pieces.take<float>(kAttentionRowsMax);
  s.ranges = pieces.take<AttentionRange>(kAttentionRowsMax);
  s.key_ranges = pieces.take<AttentionRange>(kAttentionTileKeys);
  s.grad_k = pieces.take<float>(key_rows * row);
  s.grad_v = pieces.take<float>(key_rows * row);
  s.bytes = pieces.used;
  return s;
}

#undef JIGE_LAYOUT

}  // namespace jige::cpu
