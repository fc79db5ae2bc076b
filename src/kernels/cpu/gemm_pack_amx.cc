// Packing the operands of the tile engine with vectors of 512 bits.
//
// Rows of a tile are sixteen words, a word being two neighbours along the depth as bf16. Threads:
// no state.
#include <cstdint>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/cpu/gemm_engine.h"

namespace jige::cpu::amx {

void pack_tiles(const GemmTileRun& run);

namespace {

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kTileRowBytes = 64;
// Tiles of a whole right ahead of the one that is written: they come from far away.
constexpr int64_t kFetchTiles = 1;

template <bool kPastCaches>
inline void store_row(char* dst, __m512i row) {
  if constexpr (kPastCaches) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst), row);
  } else {
    _mm512_storeu_si512(dst, row);
  }
}

// Asks for the line behind the one at `src` to come to the second level: rows that are depths are
// read a line each, far apart, which the processor does not foresee. Nothing need be there.
inline void fetch_next_line(const void* src) {
  const uintptr_t line = reinterpret_cast<uintptr_t>(src) + 64;
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1);
}
inline bool begins_line(const void* src) { return reinterpret_cast<uintptr_t>(src) % 64 == 0; }

// Two vectors as bf16, `first` in the lower half. Numbers below the normal range become zeros.
inline __m512i round_two(const float* first, const float* second) {
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(second), _mm512_loadu_ps(first));
}

inline __m512i join_halves(const uint16_t* first, const uint16_t* second) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// 16 bytes at each of four places, one after the other.
inline __m512i join_quarters(const char* src, int64_t stride) {
  const auto quarter = [&](int64_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i * stride));
  };
  __m512i joined = _mm512_castsi128_si512(quarter(0));
  joined = _mm512_inserti32x4(joined, quarter(1), 1);
  joined = _mm512_inserti32x4(joined, quarter(2), 2);
  return _mm512_inserti32x4(joined, quarter(3), 3);
}

// In each quarter: rows[i] word j becomes rows[j] word i.
inline void transpose_quarters(__m512i (&rows)[4]) {
  const __m512i low01 = _mm512_unpacklo_epi32(rows[0], rows[1]);
  const __m512i high01 = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(rows[2], rows[3]);
  const __m512i high23 = _mm512_unpackhi_epi32(rows[2], rows[3]);
  rows[0] = _mm512_unpacklo_epi64(low01, low23);
  rows[1] = _mm512_unpackhi_epi64(low01, low23);
  rows[2] = _mm512_unpacklo_epi64(high01, high23);
  rows[3] = _mm512_unpackhi_epi64(high01, high23);
}

// Transpositions take the half of their steps that moves quarters of vectors while loading, since
// only one unit of the processor shuffles: dst row j word i = src row i word j, 16 x 16.
template <bool kPastCaches>
inline void transpose_16x16(const char* src, char* dst) {
#pragma GCC unroll 4
  for (int64_t quarter = 0; quarter < 4; ++quarter) {
    __m512i rows[4];
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      rows[i] = join_quarters(src + i * kTileRowBytes + 16 * quarter, 4 * kTileRowBytes);
    }
    transpose_quarters(rows);
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      store_row<kPastCaches>(dst + (4 * quarter + i) * kTileRowBytes, rows[i]);
    }
  }
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

// A tile whose rows are lanes from bf16 memory rows that are depths: eight lanes at a time, a
// quarter of a vector for every eight depths.
inline void lanes_of_depths(const uint16_t* src, int64_t row_stride, char* dst) {
  const char* bytes = reinterpret_cast<const char*>(src);
  const int64_t stride = 2 * row_stride;
  if (begins_line(src)) {
    for (int64_t depth = 0; depth < kTileDepth; ++depth) fetch_next_line(bytes + depth * stride);
  }
  for (int64_t half = 0; half < 2; ++half) {
    __m512i low[4];  // lanes 0 … 3 of the half, pairs 0 … 3 of each quarter
    __m512i high[4];
#pragma GCC unroll 4
    for (int64_t pair = 0; pair < 4; ++pair) {
      const char* at = bytes + 2 * pair * stride + 16 * half;
      const __m512i even = join_quarters(at, 8 * stride);
      const __m512i odd = join_quarters(at + stride, 8 * stride);
      low[pair] = _mm512_unpacklo_epi16(even, odd);
      high[pair] = _mm512_unpackhi_epi16(even, odd);
    }
    transpose_quarters(low);
    transpose_quarters(high);
#pragma GCC unroll 4
    for (int64_t lane = 0; lane < 4; ++lane) {
      _mm512_storeu_si512(dst + (8 * half + lane) * kTileRowBytes, low[lane]);
      _mm512_storeu_si512(dst + (8 * half + 4 + lane) * kTileRowBytes, high[lane]);
    }
  }
}

// Words that alternate between two vectors, from a half of each.
struct alignas(64) Interleave {
  uint16_t at[2][32];
};
constexpr Interleave make_interleave() {
  Interleave order{};
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 16; ++i) {
      order.at[half][2 * i] = static_cast<uint16_t>(16 * half + i);
      order.at[half][2 * i + 1] = static_cast<uint16_t>(32 + 16 * half + i);
    }
  }
  return order;
}

// Two tiles side by side, whose rows are pairs of bf16 memory rows that are depths: every line of
// memory is read once.
inline void pairs_of_depths(const uint16_t* src, int64_t row_stride, char* dst, char* dst_next) {
  static constexpr Interleave kOrder = make_interleave();
  const __m512i low = _mm512_load_si512(kOrder.at[0]);
  const __m512i high = _mm512_load_si512(kOrder.at[1]);
#pragma GCC unroll 16
  for (int64_t i = 0; i < 16; ++i) {
    const int64_t at = i * kTileRowBytes;
    __builtin_prefetch(dst + at + kFetchTiles * kTileBytes, 1, 3);
    __builtin_prefetch(dst_next + at + kFetchTiles * kTileBytes, 1, 3);
    const uint16_t* first = src + 2 * i * row_stride;
    fetch_next_line(first);
    fetch_next_line(first + row_stride);
    const __m512i even = _mm512_loadu_si512(first);
    const __m512i odd = _mm512_loadu_si512(first + row_stride);
    _mm512_storeu_si512(dst + at, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_storeu_si512(dst_next + at, _mm512_permutex2var_epi16(even, high, odd));
  }
}

// The rows of a tile in memory order: lanes, or pairs of depths.
template <bool kPastCaches, typename Element>
inline void write_rows(const GemmTileRun& run, const Element* src, __m512i interleave, char* dst) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < 16; ++i) {
    const __m512i row =
        run.depth_across ? words_of_pair(src + 2 * i * run.row_stride, run.row_stride, interleave)
                         : words_of_lane(src + i * run.row_stride);
    store_row<kPastCaches>(dst + i * kTileRowBytes, row);
  }
}

void pack_two_panels(const GemmTileRun& run) {
  const auto* src = static_cast<const uint16_t*>(run.src);
  for (int64_t tile = 0; tile < run.tile_count; ++tile) {
    pairs_of_depths(src + tile * kTileDepth * run.row_stride, run.row_stride,
                    static_cast<char*>(run.dst) + tile * kTileBytes,
                    static_cast<char*>(run.dst_next) + tile * kTileBytes);
  }
}

template <typename Element, bool kPastCaches>
void pack_run(const GemmTileRun& run) {
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 16; ++i) {
    order[2 * i] = static_cast<uint16_t>(i);
    order[2 * i + 1] = static_cast<uint16_t>(16 + i);
  }
  const __m512i interleave = _mm512_load_si512(order);
  const Element* src = static_cast<const Element*>(run.src);
  char* dst = static_cast<char*>(run.dst);
  alignas(64) char rows[kTileBytes];
  for (int64_t tile = 0; tile < run.tile_count; ++tile) {
    if (run.left != run.depth_across) {
      write_rows<kPastCaches>(run, src, interleave, dst);
    } else if (sizeof(Element) == 2 && run.depth_across) {
      lanes_of_depths(reinterpret_cast<const uint16_t*>(src), run.row_stride, dst);
    } else {
      write_rows<false>(run, src, interleave, rows);
      transpose_16x16<kPastCaches>(rows, dst);
    }
    src += run.depth_across ? kTileDepth * run.row_stride : kTileDepth;
    dst += kTileBytes;
  }
}

}  // namespace

void pack_tiles(const GemmTileRun& run) {
  if (run.dst_next) return pack_two_panels(run);
  if (run.element_bytes == 2) return pack_run<uint16_t, false>(run);
  run.past_caches ? pack_run<float, true>(run) : pack_run<float, false>(run);
}

}  // namespace jige::cpu::amx
