// Brings a tile of 64 keys and values before the products of attention: packs flat rows, and reads
// a paged cache where it lies or widens it.
// Threads: values.
#pragma once

#include "kernels/cpu/attention_layout.h"
#include "kernels/cpu/attention_pack.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

JIGE_INLINE int min_of(int a, int b) { return a < b ? a : b; }
JIGE_INLINE int max_of(int a, int b) { return a > b ? a : b; }

// Calls body with the data as f32 or bf16.
template <typename Body>
JIGE_INLINE void with_elements(const AttentionSource& source, Body&& body) {
  if (source.is_bf16) {
    body(static_cast<const Bf16*>(source.data));
  } else {
    body(static_cast<const float*>(source.data));
  }
}
template <typename Body>
JIGE_INLINE void with_elements(const AttentionTarget& target, Body&& body) {
  if (target.is_bf16) {
    body(static_cast<Bf16*>(target.data));
  } else {
    body(static_cast<float*>(target.data));
  }
}

// The same of keys or values of a paged cache, which may be int8.
template <typename Body>
JIGE_INLINE void with_cache_elements(const AttentionKeys& keys, const AttentionSource& source,
                                     Body&& body) {
  if (keys.scales) {
    body(static_cast<const int8_t*>(source.data));
  } else {
    with_elements(source, body);
  }
}

// Rows of a sequence lie apart, one head of each is short, and the processor foresees neither: they
// are asked for so many rows before they are read or written.
inline constexpr int kReadRowsAhead = 32;
inline constexpr int kWriteRowsAhead = 8;

// Asks for the lines of a row of `count` elements from `offset` on. Nothing need be there.
template <bool kWrite>
JIGE_INLINE void fetch_row(uintptr_t data, int64_t offset, int count, bool is_bf16) {
  const int64_t bytes = is_bf16 ? 2 : 4;
  const uintptr_t at = data + static_cast<uintptr_t>(offset * bytes);
  for (int64_t line = 0; line < count * bytes; line += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(at + static_cast<uintptr_t>(line)), kWrite, 3);
  }
}
JIGE_INLINE void fetch_row(const AttentionSource& source, int64_t offset, int count) {
  fetch_row<false>(reinterpret_cast<uintptr_t>(source.data), offset, count, source.is_bf16);
}
JIGE_INLINE void fetch_row(const AttentionTarget& target, int64_t offset, int count) {
  fetch_row<true>(reinterpret_cast<uintptr_t>(target.data), offset, count, target.is_bf16);
}

// Where the blocks of 16 keys of a tile are; those outside the asked range are null.
struct LoadedTile {
  const void* k_columns[4] = {};  // [d][16]
  const void* v_rows[4] = {};     // [16][d], v_stride apart
  int64_t v_stride = 0;
  bool k_is_bf16 = false;
  bool v_is_bf16 = false;
  bool in_place = false;  // both are read in the cache
  // Of the 16 keys and values of a block, whose numbers are int8 in place and whole where they were
  // widened; null where there are no scales.
  const Bf16* k_scales[4] = {};
  const Bf16* v_scales[4] = {};
};

inline void load_flat_block(const AttentionKeys& keys, int head_dim, int64_t key, int key_count,
                            float* k_columns, float* v_rows) {
  with_elements(keys.k, [&](const auto* k) {
    pack_columns(k + key * keys.k.stride, keys.k.stride, key_count, head_dim, k_columns);
  });
  with_elements(keys.v, [&](const auto* v) {
    pack_rows(v + key * keys.v.stride, keys.v.stride, key_count, head_dim, 1.0f, v_rows,
              attention_row_floats(head_dim));
  });
}

// Widened copies of a cache block, of the parts that are not read in place.
inline void load_paged_block(const AttentionKeys& keys, int head_dim, int cache_block,
                             int key_count, float* k_columns, float* v_rows) {
  const int64_t offset = cache_block * keys.block_stride;
  if (k_columns) {
    with_cache_elements(keys, keys.k, [&](const auto* k) {
      for (int c = 0; c < head_dim; ++c) {
        F32x16::load(k + offset + c * 16).store(k_columns + c * 16);
      }
    });
  }
  if (v_rows) {
    with_cache_elements(keys, keys.v, [&](const auto* v) {
      pack_rows(v + offset, head_dim, key_count, head_dim, 1.0f, v_rows,
                attention_row_floats(head_dim));
    });
  }
}

// The scales of the cache block that lies `offset` bytes behind block 0.
JIGE_INLINE const Bf16* scales_at(const AttentionKeys& keys, int64_t offset) {
  return reinterpret_cast<const Bf16*>(static_cast<const char*>(keys.scales) + offset);
}

// Keys [tile_begin + first, tile_begin + end) of a sequence, for the blocks of 16 they fall in.
// `in_place`: leave in the cache what the products can read there.
inline LoadedTile load_tile(const AttentionKeys& keys, int head_dim, int tile_begin, int first,
                            int end, bool in_place, const AttentionTileScratch& scratch) {
  const int64_t row = attention_row_floats(head_dim);
  const bool paged = keys.blocks != nullptr;
  const bool keep_v = paged && in_place && head_dim % 16 == 0;
  const bool keep_k = keys.scales ? keep_v : paged && (in_place || !keys.k.is_bf16);
  LoadedTile tile;
  tile.k_is_bf16 = keep_k && keys.k.is_bf16;
  tile.v_is_bf16 = keep_v && keys.v.is_bf16;
  tile.v_stride = keep_v ? head_dim : row;
  tile.in_place = in_place && keep_k && keep_v;
  for (int block = first / 16; block * 16 < end; ++block) {
    float* k_columns = scratch.k_columns + block * 16 * head_dim;
    float* v_rows = scratch.v_rows + block * 16 * row;
    const int key_count = min_of(end - block * 16, 16);
    tile.k_columns[block] = k_columns;
    tile.v_rows[block] = v_rows;
    if (!paged) {
      load_flat_block(keys, head_dim, tile_begin + block * 16, key_count, k_columns, v_rows);
      continue;
    }
    const int cache_block = keys.blocks[tile_begin / 16 + block];
    load_paged_block(keys, head_dim, cache_block, key_count, keep_k ? nullptr : k_columns,
                     keep_v ? nullptr : v_rows);
    const int64_t offset = cache_block * keys.block_stride;
    with_cache_elements(keys, keys.k, [&](const auto* k) {
      if (keep_k) tile.k_columns[block] = k + offset;
    });
    with_cache_elements(keys, keys.v, [&](const auto* v) {
      if (keep_v) tile.v_rows[block] = v + offset;
    });
    if (keys.scales) {
      tile.k_scales[block] = scales_at(keys, offset);
      tile.v_scales[block] = tile.k_scales[block] + kAttentionBlockKeys;
    }
  }
  return tile;
}

}  // namespace jige::cpu::JIGE_ISA_NS
