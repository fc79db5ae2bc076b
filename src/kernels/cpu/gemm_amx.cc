// The tile engine on AMX.
//
// Two lane groups of the left times two panels of the right fill four tiles of sums; every tile
// loaded is used twice, so the loads (a tile in 8 cycles) hide behind the products (16 cycles).
// With at most one lane group, four panels take its place: as many sums, and four streams of the
// right. The configuration of the tiles belongs to the thread between begin and end. Threads: tiles
// are thread state; the caller brackets its calls with begin and end.
#include <cstdint>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/cpu/gemm_engine.h"

namespace jige::cpu::amx {

extern const GemmEngine kGemmTile;

namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTileRowBytes = 64;
// Tiles ahead of the products that a panel is fetched.
constexpr int64_t kPrefetchBytes = 4 * kTileBytes;

// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

void begin() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kTileRowBytes;
    config.rows[tile] = 16;
  }
  // The compiler believes that the intrinsic reads eight bytes only.
  asm volatile("" ::"r"(&config) : "memory");
  _tile_loadconfig(&config);
}

void end() { _tile_release(); }

inline void prefetch_tile(const char* tile) {
  for (int64_t line = 0; line < kTileBytes; line += 64) {
    _mm_prefetch(tile + line, _MM_HINT_T0);
  }
}

// Sums in tiles 0 … 3. The intrinsics take tile numbers as literals only.
inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

struct SumsAt {
  float* at[4];
  int64_t row_bytes;
};

inline void load_sums(const SumsAt& sums) {
  _tile_loadd(0, sums.at[0], sums.row_bytes);
  _tile_loadd(1, sums.at[1], sums.row_bytes);
  _tile_loadd(2, sums.at[2], sums.row_bytes);
  _tile_loadd(3, sums.at[3], sums.row_bytes);
}

inline void store_sums(const SumsAt& sums) {
  _tile_stored(0, sums.at[0], sums.row_bytes);
  _tile_stored(1, sums.at[1], sums.row_bytes);
  _tile_stored(2, sums.at[2], sums.row_bytes);
  _tile_stored(3, sums.at[3], sums.row_bytes);
}

// Two lane groups times two panels. Meanwhile the share of the next two panels goes to the second
// level: without that, the first row block of a panel would wait for all of it. The left, which
// comes from the second level, is loaded with the hint that it is not used again soon, all four
// loads stand before the products, and every other line of one lane group is fetched ahead: in this
// order the rate is 99 % of that of the products alone, with loads just before their use 75 %
// (docs/decisions/0001-own-matrix-products.md).
void block_2x2(const GemmMicroArgs& args, const char* right, float* sums) {
  const int64_t depth_bytes = args.depth / kTileDepth * kTileBytes;
  const SumsAt at = {{sums, sums + kTileLanes, sums + kTileLanes * args.sums_stride,
                      sums + kTileLanes * args.sums_stride + kTileLanes},
                     args.sums_stride * 4};
  if (args.from_zero) {
    zero_sums();
  } else {
    load_sums(at);
  }
  const char* left = static_cast<const char*>(args.left);
  const char* next = static_cast<const char*>(args.next);
  int64_t fetch = args.next_begin;
  const int64_t fetch_end = next ? args.next_end : fetch;
  const int64_t fetch_step =
      (fetch_end - fetch) * kTileBytes / (depth_bytes > 0 ? depth_bytes : 1) + 64;
  for (int64_t k = 0; k < depth_bytes; k += kTileBytes) {
    _tile_stream_loadd(4, left + k, kTileRowBytes);
    _tile_loadd(6, right + k, kTileRowBytes);
    _tile_loadd(7, right + args.right_stride + k, kTileRowBytes);
    _tile_stream_loadd(5, left + depth_bytes + k, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    _tile_dpbf16ps(2, 5, 6);
    for (int64_t line = 0; line < kTileBytes; line += 128) {
      _mm_prefetch(left + k + kPrefetchBytes + line, _MM_HINT_T0);
    }
    const int64_t stop = fetch + fetch_step < fetch_end ? fetch + fetch_step : fetch_end;
    for (; fetch < stop; fetch += 64) {
      _mm_prefetch(next + fetch, _MM_HINT_T1);
      _mm_prefetch(next + args.right_stride + fetch, _MM_HINT_T1);
    }
  }
  store_sums(at);
}

// One lane group times four panels, for products bound by the reading of the right.
void block_1x4(const GemmMicroArgs& args, const char* right, float* sums) {
  const int64_t depth_bytes = args.depth / kTileDepth * kTileBytes;
  const int64_t stride = args.right_stride;
  const SumsAt at = {{sums, sums + kTileLanes, sums + 2 * kTileLanes, sums + 3 * kTileLanes},
                     args.sums_stride * 4};
  if (args.from_zero) {
    zero_sums();
  } else {
    load_sums(at);
  }
  const char* left = static_cast<const char*>(args.left);
  for (int64_t k = 0; k < depth_bytes; k += kTileBytes) {
    for (int64_t panel = 0; panel < 4; ++panel) {
      prefetch_tile(right + panel * stride + k + kPrefetchBytes);
    }
    _tile_loadd(4, left + k, kTileRowBytes);
    _tile_loadd(5, right + k, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, right + stride + k, kTileRowBytes);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, right + 2 * stride + k, kTileRowBytes);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, right + 3 * stride + k, kTileRowBytes);
    _tile_dpbf16ps(3, 4, 5);
  }
  store_sums(at);
}

// One lane group times one panel, for what is left over.
void block_1x1(const GemmMicroArgs& args, const char* left, const char* right, float* sums) {
  const int64_t depth_bytes = args.depth / kTileDepth * kTileBytes;
  if (args.from_zero) {
    _tile_zero(0);
  } else {
    _tile_loadd(0, sums, args.sums_stride * 4);
  }
  for (int64_t k = 0; k < depth_bytes; k += kTileBytes) {
    _tile_loadd(4, left + k, kTileRowBytes);
    _tile_loadd(5, right + k, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 5);
  }
  _tile_stored(0, sums, args.sums_stride * 4);
}

void micro(const GemmMicroArgs& args) {
  const char* left = static_cast<const char*>(args.left);
  const char* right = static_cast<const char*>(args.right);
  const int64_t group_bytes = args.depth / kTileDepth * kTileBytes;
  const bool two_groups = args.rows > kTileLanes;
  const int64_t step = two_groups ? 2 : 4;
  int64_t panel = 0;
  for (; panel + step <= args.panels; panel += step) {
    const char* from = right + panel * args.right_stride;
    float* sums = args.sums + panel * kTileLanes;
    two_groups ? block_2x2(args, from, sums) : block_1x4(args, from, sums);
  }
  for (; panel < args.panels; ++panel) {
    const char* from = right + panel * args.right_stride;
    float* sums = args.sums + panel * kTileLanes;
    block_1x1(args, left, from, sums);
    if (two_groups) {
      block_1x1(args, left + group_bytes, from, sums + kTileLanes * args.sums_stride);
    }
  }
}

// Packing: rows of sixteen words, a word being two neighbours along the depth as bf16.

// Two vectors as bf16, `first` in the lower half. Numbers below the normal range become zeros.
inline __m512i round_two(const float* first, const float* second) {
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(second), _mm512_loadu_ps(first));
}

inline __m512i join_halves(const uint16_t* first, const uint16_t* second) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

inline __m512i words_of_lane(const float* src) { return round_two(src, src + 16); }
inline __m512i words_of_lane(const uint16_t* src) { return _mm512_loadu_si512(src); }

// Sixteen lanes of two depths that are `row_stride` apart.
template <typename Element>
inline __m512i words_of_pair(const Element* src, int64_t row_stride, __m512i interleave) {
  __m512i halves;
  if constexpr (sizeof(Element) == 4) {
    halves = round_two(src, src + row_stride);
  } else {
    halves = join_halves(src, src + row_stride);
  }
  return _mm512_permutexvar_epi16(interleave, halves);
}

// rows[i] word j becomes rows[j] word i.
inline void transpose_16x16(__m512i (&rows)[16]) {
  __m512i other[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    other[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    other[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(other[i], other[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(other[i], other[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(other[i + 1], other[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(other[i + 1], other[i + 3]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    other[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    other[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
    other[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    other[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm512_shuffle_i32x4(other[i], other[i + 8], 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(other[i], other[i + 8], 0xdd);
    rows[i + 4] = _mm512_shuffle_i32x4(other[i + 4], other[i + 12], 0x88);
    rows[i + 12] = _mm512_shuffle_i32x4(other[i + 4], other[i + 12], 0xdd);
  }
}

template <typename Element>
void pack_run(const GemmTileRun& run) {
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 16; ++i) {
    order[2 * i] = static_cast<uint16_t>(i);
    order[2 * i + 1] = static_cast<uint16_t>(16 + i);
  }
  const __m512i interleave = _mm512_load_si512(order);
  const Element* src = static_cast<const Element*>(run.src);
  char* dst = static_cast<char*>(run.dst);
  for (int64_t tile = 0; tile < run.tile_count; ++tile) {
    __m512i rows[16];
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) {
      rows[i] = run.depth_across
                    ? words_of_pair(src + 2 * i * run.row_stride, run.row_stride, interleave)
                    : words_of_lane(src + i * run.row_stride);
    }
    if (run.left == run.depth_across) transpose_16x16(rows);
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(dst + i * kTileRowBytes, rows[i]);
    src += run.depth_across ? kTileDepth * run.row_stride : kTileDepth;
    dst += kTileBytes;
  }
}

void pack_tiles(const GemmTileRun& run) {
  run.element_bytes == 4 ? pack_run<float>(run) : pack_run<uint16_t>(run);
}

// As round_lanes_to_bf16 (gemm_source.h); the instruction for it would make zeros of small numbers.
inline __m256i round_to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_add_epi32(bits, half);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(
      _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
}

void store_bf16(const GemmStoreBF16& store) {
  for (int64_t row = 0; row < store.rows; ++row) {
    const float* sums = store.sums + row * store.sums_stride;
    uint16_t* out = store.out + row * store.out_stride;
    for (int64_t i = 0; i < store.columns; i += 16) {
      __m512 value = _mm512_loadu_ps(sums + i);
      if (store.bias) value = _mm512_add_ps(value, _mm512_loadu_ps(store.bias + i));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), round_to_bf16(value));
    }
  }
}

}  // namespace

const GemmEngine kGemmTile = {
    .name = "amx bf16 tiles",
    .layout = GemmLayout::kTileBF16,
    .rows = 2 * kTileLanes,
    .columns = kTileLanes,
    .depth_step = kTileDepth,
    .panel_group = 2,
    .depth_block = 512,    // two panels of it take 32 KiB of a first-level cache of 48
    .task_rows = 256,      // a left block takes 256 KiB of a second-level cache of 2 MiB
    .task_columns = 1024,  // and the sums of bf16 results 1 MiB
    .begin = begin,
    .end = end,
    .micro = micro,
    .pack_tiles = pack_tiles,
    .store_bf16 = store_bf16,
};

}  // namespace jige::cpu::amx
