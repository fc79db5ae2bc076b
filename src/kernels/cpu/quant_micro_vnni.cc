// Quantised products on AVX512_VNNI: one instruction multiplies four depths of sixteen columns,
// unsigned weights by signed numbers of a row, and adds them. Since the weights are z too large,
// the sums start at minus z times the sum of the row's block.
#include <cstring>

#include "kernels/cpu/quant_halves_avx512.h"
#include "kernels/cpu/quant_micro.h"

namespace jige::cpu::JIGE_ISA_NS {

extern const QuantEngine kQuantVnni;

namespace {

struct VnniSums {
  static constexpr int kRows = 6;     // 12 sums and 12 chains, 2 vectors of weights, 6 to spare
  static constexpr int kRowsMax = 8;  // 16 sums; memory is read once, which pays for the chains

  static JIGE_INLINE __m512i four_of(const QuantBlock& block, int group) {
    int32_t values;
    std::memcpy(&values, block.values + kQuantGroup * group, sizeof values);
    return _mm512_set1_epi32(values);
  }

  template <int kRowCount>
  static JIGE_INLINE void add_group(const QuantBlock* rows, int group, const __m512i (&weights)[2],
                                    __m512i (&sums)[kRowCount][2]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRowCount; ++r) {
      const __m512i four = four_of(rows[r], group);
      sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], weights[0], four);
      sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], weights[1], four);
    }
  }

  template <QuantFormat kFormat, int kRowCount>
  static JIGE_INLINE void dots(const QuantBlock* rows, const char* data,
                               F32x16 (&out)[kRowCount][2]) {
    __m512i sums[kRowCount][2];
#pragma GCC unroll 16
    for (int r = 0; r < kRowCount; ++r) {
      sums[r][0] = sums[r][1] = _mm512_set1_epi32(rows[r].offset);
    }
    constexpr bool kHalves = QuantTraits<kFormat>::kHalves;
    constexpr int kLines = QuantTraits<kFormat>::kDataBytes / kQuantGroupBytes;
#pragma GCC unroll 8
    for (int line = 0; line < kLines; ++line) {
      const char* at = data + line * kQuantGroupBytes;
      __m512i weights[2] = {_mm512_loadu_si512(at), _mm512_loadu_si512(at + kQuantGroupBytes / 2)};
      if constexpr (kHalves) {
        const __m512i half = _mm512_set1_epi8(15);
        __m512i upper[2];
        for (int i = 0; i < 2; ++i) {
          upper[i] = weights_of<kFormat>(_mm512_and_si512(_mm512_srli_epi16(weights[i], 4), half));
          weights[i] = weights_of<kFormat>(_mm512_and_si512(weights[i], half));
        }
        add_group(rows, 2 * line, weights, sums);
        add_group(rows, 2 * line + 1, upper, sums);
      } else {
        add_group(rows, line, weights, sums);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRowCount; ++r) {
      out[r][0] = {_mm512_cvtepi32_ps(sums[r][0])};
      out[r][1] = {_mm512_cvtepi32_ps(sums[r][1])};
    }
  }
};

}  // namespace

const QuantEngine kQuantVnni = {
    .name = "avx512_vnni bytes",
    .rows = VnniSums::kRows,
    .rows_max = VnniSums::kRowsMax,
    .micro = {quant_micro<VnniSums, QuantFormat::kQ8>, quant_micro<VnniSums, QuantFormat::kQ4>,
              quant_micro<VnniSums, QuantFormat::kFp4>,
              quant_micro<VnniSums, QuantFormat::kUneven4>},
};

}  // namespace jige::cpu::JIGE_ISA_NS
