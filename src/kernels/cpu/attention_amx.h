// The matrix tiles of AMX as the attention kernels use them, and the vector functions beside them.
//
// A tile product adds to sums[16][16] the product of a left tile [16 lanes][32 depth] and a right
// tile [16 depth pairs][16 lanes][2], both bf16: even and odd depths are two chains of fused
// multiply-adds from zero, which are added to each other and then to the sum. A row of sums depends
// on its own row of the left only. Numbers below the normal range count as zeros.
//
// For sources named *_amx.cc. Threads: the configuration of the tiles belongs to the thread between
// construction and destruction of a TileUnit.
#pragma once

#include "kernels/cpu/attention_layout.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile_config.h"

namespace jige::cpu::JIGE_ISA_NS {

inline constexpr int64_t kTileBytes = 1024;
inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int kTileElements = 512;

// Configures the tiles: sums and left of `rows` rows, right tiles in full.
class TileUnit {
 public:
  explicit TileUnit(int rows) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) config.set(tile, tile <= 4 ? rows : 16, kTileRowBytes);
    config.load();
  }
  ~TileUnit() { _tile_release(); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;
};

// Makes vector arithmetic of this thread treat numbers below the normal range as tiles do: as
// zeros, as operands and as results. REQUIRES: the arithmetic in its scope is in functions that are
// not inlined; the compiler moves arithmetic across a change of mode.
class ZeroDenormals {
 public:
  ZeroDenormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | 0x8040);  // flush to zero, denormals are zeros
  }
  ~ZeroDenormals() { _mm_setcsr(before_); }
  ZeroDenormals(const ZeroDenormals&) = delete;
  ZeroDenormals& operator=(const ZeroDenormals&) = delete;

 private:
  unsigned before_;
};

// sums[16][16·panels] = left · right, or += it.
struct TileProduct {
  const void* left = nullptr;
  int64_t left_row_bytes = kTileRowBytes;
  int64_t left_step_bytes = kTileBytes;  // from one 32 of the depth to the next
  const void* right = nullptr;           // tiles; those of a panel follow each other
  int64_t panel_bytes = 0;
  int steps = 0;
  int panels = 0;
  float* sums = nullptr;
  int64_t sums_stride = 0;  // floats
  bool accumulate = false;
};

// Panels [panel, panel + kPanels) of a product. Tile numbers must be literals.
template <int kPanels>
inline void multiply_panels(const TileProduct& product, int panel) {
  const char* left = static_cast<const char*>(product.left);
  const char* right = static_cast<const char*>(product.right) + panel * product.panel_bytes;
  float* sums = product.sums + panel * 16;
  const int64_t row = product.sums_stride * 4;
  if (product.accumulate) {
    _tile_loadd(0, sums, row);
    if constexpr (kPanels > 1) _tile_loadd(1, sums + 16, row);
    if constexpr (kPanels > 2) _tile_loadd(2, sums + 32, row);
    if constexpr (kPanels > 3) _tile_loadd(3, sums + 48, row);
  } else {
    _tile_zero(0);
    if constexpr (kPanels > 1) _tile_zero(1);
    if constexpr (kPanels > 2) _tile_zero(2);
    if constexpr (kPanels > 3) _tile_zero(3);
  }
  for (int step = 0; step < product.steps; ++step) {
    _tile_loadd(4, left, product.left_row_bytes);
    _tile_loadd(5, right, kTileRowBytes);
    if constexpr (kPanels > 1) _tile_loadd(6, right + product.panel_bytes, kTileRowBytes);
    if constexpr (kPanels > 2) _tile_loadd(7, right + 2 * product.panel_bytes, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kPanels > 3) _tile_loadd(5, right + 3 * product.panel_bytes, kTileRowBytes);
    if constexpr (kPanels > 1) _tile_dpbf16ps(1, 4, 6);
    if constexpr (kPanels > 2) _tile_dpbf16ps(2, 4, 7);
    if constexpr (kPanels > 3) _tile_dpbf16ps(3, 4, 5);
    left += product.left_step_bytes;
    right += kTileBytes;
  }
  _tile_stored(0, sums, row);
  if constexpr (kPanels > 1) _tile_stored(1, sums + 16, row);
  if constexpr (kPanels > 2) _tile_stored(2, sums + 32, row);
  if constexpr (kPanels > 3) _tile_stored(3, sums + 48, row);
}

// Up to four panels from `panel` on.
inline void multiply_some(const TileProduct& product, int panel) {
  // Tile loads do not tell the compiler what they read: everything must be in memory before.
  asm volatile("" ::: "memory");
  switch (product.panels - panel) {
    case 1:
      return multiply_panels<1>(product, panel);
    case 2:
      return multiply_panels<2>(product, panel);
    case 3:
      return multiply_panels<3>(product, panel);
    default:
      return multiply_panels<4>(product, panel);
  }
}

inline void multiply(const TileProduct& product) {
  for (int panel = 0; panel < product.panels; panel += 4) multiply_some(product, panel);
}

// Products that are put, a few panels at a time, between the instructions of other work: the tile
// unit runs beside the vector units, but a core looks only some hundred instructions ahead.
class TileQueue {
 public:
  // REQUIRES: at most two products, before any of them is run.
  void add(const TileProduct& product) {
    products_[count_++] = product;
    chunks_ += (product.panels + 3) / 4;
  }
  // Runs what is due when `part` of four parts of the other work are done.
  void run(int part) {
    for (; done_ < chunks_ * part / 4; ++done_) {
      multiply_some(products_[at_], panel_);
      panel_ += 4;
      if (panel_ < products_[at_].panels) continue;
      ++at_;
      panel_ = 0;
    }
  }

 private:
  TileProduct products_[2];
  int count_ = 0;
  int chunks_ = 0;
  int done_ = 0;
  int at_ = 0;
  int panel_ = 0;
};

// The lanes of block 16·i … 16·i + 15 that are in a range.
JIGE_INLINE __mmask16 lanes_of(AttentionRange range, int block) {
  const auto below = [](int count) {
    return (1u << (count < 0 ? 0 : count > 16 ? 16 : count)) - 1;
  };
  return static_cast<__mmask16>(below(range.end - block * 16) & ~below(range.begin - block * 16));
}

inline constexpr float kLog2E = 1.44269504088896f;
inline constexpr float kLn2 = 0.693147180559945f;

// 2^x where x >= -125, else zero; NaN stays one. With n = round(x) and r = x − n: the chain of
// c[4] r + c[3] … + 1, its exponent raised by n. Exact for whole x; else within 3e-6 of the value.
// REQUIRES: x < 127.
JIGE_INLINE __m512 power_of_two(__m512 x, __mmask16 normal) {
  const __m512 shift = _mm512_set1_ps(kRoundShift);
  const __m512 shifted = _mm512_add_ps(x, shift);
  const __m512 r = _mm512_sub_ps(x, _mm512_sub_ps(shifted, shift));
  __m512 sum = _mm512_set1_ps(0.009582852944731712f);
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.055906426161527634f));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.24024099111557007f));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(0.6931241750717163f));
  sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(1.0f));
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_maskz_add_epi32(normal, _mm512_castps_si512(sum), exponent));
}
JIGE_INLINE __m512 power_of_two(__m512 x) {
  return power_of_two(x, _mm512_cmp_ps_mask(x, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ));
}
// The same in some lanes, zero in the others.
JIGE_INLINE __m512 power_of_two_in(__mmask16 lanes, __m512 x) {
  return power_of_two(x, _mm512_mask_cmp_ps_mask(lanes, x, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ));
}

// Whether a range covers a block of `size` lanes.
JIGE_INLINE bool covers(AttentionRange range, int block, int size) {
  return range.begin <= block * size && range.end >= (block + 1) * size;
}

// Thirty-two bf16, `low` first.
JIGE_INLINE __m512i narrow_two(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

}  // namespace jige::cpu::JIGE_ISA_NS
