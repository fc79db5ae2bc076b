// Attention's products in pairs of depths, by the instruction of AVX512_BF16: a sum is one chain
// over the depth, a pair at a time, from zero or from the value already there. Of a pair the odd
// product is added first, then the even one, each addition rounded.
// Included by attention_products.h. Threads: values.
#pragma once

namespace jige::cpu::JIGE_ISA_NS {

// There is nothing to configure.
class TileUnit {
 public:
  explicit TileUnit(int) {}
  ~TileUnit() {}
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;
};

// Words of two depths.
JIGE_INLINE __m512bh pairs_at(const void* words) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(words));
}
JIGE_INLINE __m512bh pair_everywhere(const void* word) {
  int32_t pair;
  std::memcpy(&pair, word, sizeof(pair));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

// Rows [row, row + kRows) of panels [panel, panel + kPanels).
template <int kRows, int kPanels>
inline void multiply_block(const TileProduct& product, int row, int panel) {
  const char* left = static_cast<const char*>(product.left) + row * product.left_row_bytes;
  const char* right = static_cast<const char*>(product.right) + panel * product.panel_bytes;
  float* sums = product.sums + row * product.sums_stride + panel * 16;
  __m512 chains[kRows][kPanels];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      chains[r][p] = product.accumulate ? _mm512_loadu_ps(sums + r * product.sums_stride + p * 16)
                                        : _mm512_setzero_ps();
    }
  }
  for (int step = 0; step < product.steps; ++step) {
#pragma GCC unroll 2
    for (int pair = 0; pair < 16; ++pair) {
      __m512bh columns[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        columns[p] = pairs_at(right + p * product.panel_bytes + pair * kTileRowBytes);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m512bh value = pair_everywhere(left + r * product.left_row_bytes + pair * 4);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          chains[r][p] = _mm512_dpbf16_ps(chains[r][p], value, columns[p]);
        }
      }
    }
    left += product.left_step_bytes;
    right += kTileBytes;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      _mm512_storeu_ps(sums + r * product.sums_stride + p * 16, chains[r][p]);
    }
  }
}

// Panels [panel, panel + kPanels) of a product, four rows at a time: sixteen sums, which the
// registers hold beside four vectors of the right.
template <int kPanels>
inline void multiply_panels(const TileProduct& product, int panel) {
  int row = 0;
  for (; row + 4 <= product.rows; row += 4) multiply_block<4, kPanels>(product, row, panel);
  switch (product.rows - row) {
    case 1:
      return multiply_block<1, kPanels>(product, row, panel);
    case 2:
      return multiply_block<2, kPanels>(product, row, panel);
    case 3:
      return multiply_block<3, kPanels>(product, row, panel);
    default:
      return;
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
