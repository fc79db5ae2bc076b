// Brings query rows, and tiles of 64 keys and values of flat rows or a paged cache, into the
// scratch of forward attention in bf16. Threads: values.
#pragma once

#include "kernels/cpu/attention_pack_tiles.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/attention_tiled_layout.h"

namespace jige::cpu::JIGE_ISA_NS {

inline constexpr int kKeys = kAttentionTileKeys;
inline constexpr int kKeySteps = kKeys / 32;

struct Tiled {
  Tile tile;
  AttentionTiledScratch scratch;
  int steps;     // of the head dimension
  int columns;   // tiles of 16 of the result
  float factor;  // scale · log2 e; under a cap, cap · log2 e
  float inner;   // under a cap, scale / cap; else 0

  int depth() const { return steps * 32; }
  bool in_8_bits() const { return tile.args.keys.scales != nullptr; }
};

// A tile of keys of which some are in the scratch, and whether their values are all finite.
struct Loaded {
  int tile_begin;
  bool finite;
};

// Asks for a cache line that will be needed later.
JIGE_INLINE void fetch(const void* line) {
  _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T0);
}

inline const uint16_t* halves_of(const AttentionSource& source) {
  return static_cast<const uint16_t*>(source.data);
}
inline const int8_t* bytes_of(const AttentionSource& source) {
  return static_cast<const int8_t*>(source.data);
}

inline void load_queries(const Tiled& t) {
  const AttentionRows& args = t.tile.args;
  const int row = args.row_begin;
  const uint16_t* position = halves_of(args.q) + row / args.head_count * args.q.stride;
  int head = row % args.head_count;
  for (int i = 0; i < (args.row_count + 15) / 16 * 16; ++i) {
    uint16_t* to = t.scratch.q + i * t.depth();
    if (i >= args.row_count) {
      zero_row(to, t.depth());
      continue;
    }
    const int64_t column = int64_t{head} * args.head_dim;
    if (i + kReadRowsAhead < args.row_count) {
      fetch_row({position, 0, true}, kReadRowsAhead / args.head_count * args.q.stride + column,
                args.head_dim);
    }
    copy_row(position + column, args.head_dim, to, t.depth());
    if (++head == args.head_count) {
      head = 0;
      position += args.q.stride;
    }
  }
}

// Where sixteen rows of keys or values lie.
struct RowBlock {
  const uint16_t* data;
  int64_t stride;
};

// Asks for the sixteen rows of keys or values that lie behind those of `key`.
inline void fetch_next_block(const Tiled& t, const AttentionSource& rows, int64_t key) {
  for (int64_t i = 16; i < 32; ++i) fetch_row(rows, (key + i) * rows.stride, t.tile.args.head_dim);
}

// The same rows with zeros instead of rows outside `present` and of columns that are missing to
// `multiple`: in place where nothing is missing, else a copy.
inline RowBlock padded(const Tiled& t, const RowBlock& rows, AttentionRange present, int multiple) {
  const int dim = t.tile.args.head_dim;
  if (present.begin <= 0 && present.end >= 16 && dim % multiple == 0) return rows;
  for (int i = 0; i < 16; ++i) {
    uint16_t* to = t.scratch.block + i * t.depth();
    if (i >= present.begin && i < present.end) {
      copy_row(rows.data + i * rows.stride, dim, to, t.depth());
    } else {
      zero_row(to, t.depth());
    }
  }
  return {t.scratch.block, t.depth()};
}

// Where a block of 16 keys lies in a paged cache, and one that comes later: the next, or, of bytes,
// which are sooner done with, that of the next tile.
struct PagedBlock {
  int64_t offset;
  int64_t next;
};

inline PagedBlock paged_block(const Tiled& t, int block) {
  const AttentionKeys& keys = t.tile.args.keys;
  const int last = t.tile.block_last();
  const int ahead = t.in_8_bits() ? kKeys / 16 : 1;
  return {keys.blocks[block] * keys.block_stride,
          keys.blocks[min_of(block + ahead, last)] * keys.block_stride};
}

// Keys of a cache block, [d][16], as right tiles: two rows are one line of a tile.
inline void pack_paged_keys(const Tiled& t, const PagedBlock& block, uint16_t* dst) {
  const int dim = t.tile.args.head_dim;
  const uint16_t* src = halves_of(t.tile.args.keys.k) + block.offset;
  const uint16_t* next = halves_of(t.tile.args.keys.k) + block.next;
  int c = 0;
  for (; c + 2 <= dim; c += 2) {
    fetch(next + c * 16);
    _mm512_storeu_si512(dst + c * 16, interleave(_mm512_loadu_si512(src + c * 16)));
  }
  for (; c < t.depth(); c += 2) {
    const __mmask32 lanes = c < dim ? 0xffff : 0;
    _mm512_storeu_si512(dst + c * 16, interleave(_mm512_maskz_loadu_epi16(lanes, src + c * 16)));
  }
}

// The same of a cache in 8 bits.
inline void pack_byte_keys(const Tiled& t, const PagedBlock& block, uint16_t* dst) {
  const int dim = t.tile.args.head_dim;
  const int8_t* src = bytes_of(t.tile.args.keys.k) + block.offset;
  const int8_t* next = bytes_of(t.tile.args.keys.k) + block.next;
  int c = 0;
  for (; c + 2 <= dim; c += 2) {
    if (c % 4 == 0) fetch(next + c * 16);
    _mm512_storeu_si512(dst + c * 16, pair_of_bytes(src + c * 16, 16));
  }
  for (; c < t.depth(); c += 2) {
    const __m512i last = c < dim ? widen_bytes(src + c * 16) : _mm512_setzero_si512();
    _mm512_storeu_si512(dst + c * 16, pair_of_widened(last, _mm512_setzero_si512()));
  }
}

inline void pack_keys(const Tiled& t, int tile_begin, AttentionRange range) {
  const AttentionKeys& keys = t.tile.args.keys;
  for (int block = range.begin / 16; block * 16 < range.end; ++block) {
    uint16_t* dst = t.scratch.k_tiles + block * t.steps * kTileElements;
    const int key = tile_begin + block * 16;
    if (keys.blocks) {
      const PagedBlock paged = paged_block(t, key / 16);
      t.in_8_bits() ? pack_byte_keys(t, paged, dst) : pack_paged_keys(t, paged, dst);
      continue;
    }
    fetch_next_block(t, keys.k, key);
    const RowBlock rows = padded(t, {halves_of(keys.k) + key * keys.k.stride, keys.k.stride},
                                 {range.begin - block * 16, range.end - block * 16}, 32);
    for (int step = 0; step < t.steps; ++step) {
      transpose_tile(rows.data + step * 32, rows.stride, dst + step * kTileElements);
    }
  }
}

// Values as right tiles whose depth are keys; zeros for keys of a step outside the range. Returns
// the largest magnitude as bits.
inline uint32_t pack_values(const Tiled& t, int tile_begin, AttentionRange range) {
  const AttentionKeys& keys = t.tile.args.keys;
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  __m512i largest = _mm512_setzero_si512();
  for (int block = range.begin / 32 * 2; block < (range.end + 31) / 32 * 2; ++block) {
    const AttentionRange present{range.begin - block * 16, range.end - block * 16};
    const bool any = present.end > 0 && present.begin < 16;
    RowBlock rows{nullptr, 0};
    if (any && keys.blocks) {
      const PagedBlock paged = paged_block(t, tile_begin / 16 + block);
      const uint16_t* next = halves_of(keys.v) + paged.next;
      for (int i = 0; i < 16 * t.tile.args.head_dim; i += 32) fetch(next + i);
      rows = {halves_of(keys.v) + paged.offset, t.tile.args.head_dim};
    } else if (any) {
      fetch_next_block(t, keys.v, tile_begin + block * 16);
      rows = {halves_of(keys.v) + (tile_begin + block * 16) * keys.v.stride, keys.v.stride};
    }
    rows = padded(t, rows, any ? present : AttentionRange{0, 0}, 16);
    for (int column = 0; column < t.columns; ++column) {
      uint16_t* dst =
          t.scratch.v_tiles + (column * kKeySteps + block / 2) * kTileElements + block % 2 * 256;
      for (int pair = 0; pair < 8; ++pair) {
        const __m512i line =
            pair_of_rows(rows.data + 2 * pair * rows.stride + column * 16, rows.stride);
        largest = _mm512_max_epu16(largest, _mm512_and_si512(line, magnitude));
        _mm512_storeu_si512(dst + pair * 32, line);
      }
    }
  }
  const __m512i odd = _mm512_srli_epi32(largest, 16);
  const __m512i even = _mm512_and_si512(largest, _mm512_set1_epi32(0xffff));
  return _mm512_reduce_max_epu32(_mm512_max_epu32(odd, even));
}

// The same of a cache in 8 bits, whose numbers are all finite: only blocks that are not there need
// zeros. What is read behind a block's last value are its scales.
inline void pack_byte_values(const Tiled& t, int tile_begin, AttentionRange range) {
  const int dim = t.tile.args.head_dim;
  const int8_t* values = bytes_of(t.tile.args.keys.v);
  for (int block = range.begin / 32 * 2; block < (range.end + 31) / 32 * 2; ++block) {
    const bool any = range.end > block * 16 && range.begin < block * 16 + 16;
    const PagedBlock paged = any ? paged_block(t, tile_begin / 16 + block) : PagedBlock{0, 0};
    const int bytes = any ? 16 * dim + 4 * kAttentionBlockKeys : 0;  // with the scales behind
    for (int i = 0; i < bytes; i += 64) fetch(values + paged.next + i);
    for (int column = 0; column < t.columns; ++column) {
      uint16_t* dst =
          t.scratch.v_tiles + (column * kKeySteps + block / 2) * kTileElements + block % 2 * 256;
      const int present = any ? min_of(dim - column * 16, 16) : 0;
      const auto lanes = static_cast<__mmask16>((1u << present) - 1);
      const int8_t* src = values + paged.offset + column * 16;
      for (int pair = 0; pair < 8; ++pair) {
        const __m512i line =
            any ? pair_of_bytes(src + 2 * pair * int64_t{dim}, dim, lanes) : _mm512_setzero_si512();
        _mm512_storeu_si512(dst + pair * 32, line);
      }
    }
  }
}

// What scores and weights of the blocks [begin, end) of a tile are multiplied by, of a cache in 8
// bits.
inline void load_scales(const Tiled& t, int tile_begin, int begin, int end) {
  const AttentionTiledScratch& s = t.scratch;
  const bool capped = t.inner > 0;
  const __m512 factor = _mm512_set1_ps(capped ? t.inner : t.factor);
  for (int block = begin; block < end; ++block) {
    const AttentionKeys& keys = t.tile.args.keys;
    const Bf16* scales = scales_at(keys, keys.blocks[tile_begin / 16 + block] * keys.block_stride);
    const __m512 of_keys = _mm512_mul_ps(F32x16::load(scales).v, factor);
    _mm512_storeu_ps((capped ? s.cap_factors : s.score_factors) + block * 16, of_keys);
    if (capped) _mm512_storeu_ps(s.score_factors + block * 16, _mm512_set1_ps(t.factor));
    F32x16::load(scales + kAttentionBlockKeys).store(s.value_scales + block * 16);
  }
}

inline Loaded load_tile(const Tiled& t, int tile_begin, AttentionRange range) {
  pack_keys(t, tile_begin, range);
  if (t.in_8_bits()) {
    pack_byte_values(t, tile_begin, range);
    load_scales(t, tile_begin, range.begin / 16, (range.end + 15) / 16);
    return {tile_begin, true};
  }
  constexpr uint32_t kInfinity = 0x7f80;
  return {tile_begin, pack_values(t, tile_begin, range) < kInfinity};
}

}  // namespace jige::cpu::JIGE_ISA_NS
