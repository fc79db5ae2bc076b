// Quantised products on AVX512_VNNI: one instruction multiplies four depths of sixteen columns,
// unsigned weights by signed numbers of a row, and adds them. Since the weights are z too large,
// the sums start at minus z times the sum of the row's block.
#include <cstring>

#include "kernels/cpu/quant_micro.h"

namespace jige::cpu::JIGE_ISA_NS {

extern const QuantEngine kQuantVnni;

namespace {

struct VnniSums {
  static constexpr int kRows = 6;  // 12 sums and 12 chains, 2 vectors of weights, 6 to spare
  // One stream at a time reads memory fastest; more rows share what they broadcast.
  static constexpr int panels_of(int rows) { return rows <= 4 ? 1 : 2; }

  static JIGE_INLINE __m512i four_of(const QuantBlock* block, int group) {
    int32_t values;
    std::memcpy(&values, block->values + kQuantGroup * group, sizeof values);
    return _mm512_set1_epi32(values);
  }

  template <int kRowCount, int kPanels>
  static JIGE_INLINE void add_group(const QuantBlock* const (&row)[kRowCount], int group,
                                    const __m512i (&weights)[kPanels],
                                    __m512i (&sums)[kRowCount][kPanels]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRowCount; ++r) {
      const __m512i four = four_of(row[r], group);
#pragma GCC unroll 2
      for (int c = 0; c < kPanels; ++c) {
        sums[r][c] = _mm512_dpbusd_epi32(sums[r][c], weights[c], four);
      }
    }
  }

  template <QuantFormat kFormat, int kRowCount, int kPanels>
  static JIGE_INLINE void dots(const QuantBlock* const (&row)[kRowCount],
                               const char* const (&data)[kPanels],
                               F32x16 (&out)[kRowCount][kPanels]) {
    __m512i sums[kRowCount][kPanels];
#pragma GCC unroll 16
    for (int r = 0; r < kRowCount; ++r) {
      for (int c = 0; c < kPanels; ++c) sums[r][c] = _mm512_set1_epi32(row[r]->offset);
    }
    constexpr int kGroups = kQuantBlock / kQuantGroup;
    constexpr bool kHalves = QuantTraits<kFormat>::kHalves;
#pragma GCC unroll 8
    for (int group = 0; group < kGroups; group += kHalves ? 2 : 1) {
      __m512i weights[kPanels];
      __m512i high[kPanels];
      for (int c = 0; c < kPanels; ++c) {
        const int line = kHalves ? group / 2 : group;
        weights[c] = _mm512_loadu_si512(data[c] + line * kQuantGroupBytes);
        if constexpr (kHalves) {
          const __m512i half = _mm512_set1_epi8(15);
          high[c] = _mm512_and_si512(_mm512_srli_epi16(weights[c], 4), half);
          weights[c] = _mm512_and_si512(weights[c], half);
        }
      }
      add_group(row, group, weights, sums);
      if constexpr (kHalves) add_group(row, group + 1, high, sums);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRowCount; ++r) {
      for (int c = 0; c < kPanels; ++c) out[r][c] = {_mm512_cvtepi32_ps(sums[r][c])};
    }
  }
};

}  // namespace

const QuantEngine kQuantVnni = {
    .name = "avx512_vnni quantised",
    .rows = VnniSums::kRows,
    .micro = {quant_micro<VnniSums, QuantFormat::kQ8>, quant_micro<VnniSums, QuantFormat::kQ4>},
};

}  // namespace jige::cpu::JIGE_ISA_NS
