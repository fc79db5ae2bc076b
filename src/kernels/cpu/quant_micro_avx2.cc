// Quantised products on AVX2, whose instruction multiplies unsigned by signed bytes and adds two of
// them in 16 bits, where they must not saturate.
//   kQ8, kUneven4  the sign of a weight moves to the row's number: two products are at most
//        2 · 127 · 127.
//   kQ4  weights are unsigned halves, 15 at most: the sixteen products that meet in one 16-bit sum
//        are at most 16 · 15 · 127, so that it holds a whole block's.
//   kFp4 weights are 24 at most, looked up: a 16-bit sum holds the eight products of half a block.
#include <cstring>

#include "kernels/cpu/quant_halves_avx2.h"
#include "kernels/cpu/quant_micro.h"

namespace jige::cpu::JIGE_ISA_NS {

extern const QuantEngine kQuantAvx2;

namespace {

static_assert(2 * 127 * 127 <= 32767 && 16 * 15 * 127 <= 32767 && 8 * 24 * 127 <= 32767);

struct Avx2Sums {
  static constexpr int kRows = 3;
  static constexpr int kRowsMax = kRows;

  static JIGE_INLINE __m256i load_line(const char* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }
  static JIGE_INLINE __m256i four_of(const QuantBlock& block, int group) {
    int32_t values;
    std::memcpy(&values, block.values + kQuantGroup * group, sizeof values);
    return _mm256_set1_epi32(values);
  }
  static JIGE_INLINE F32 to_floats(__m256i sums) { return {_mm256_cvtepi32_ps(sums)}; }

  template <QuantFormat kFormat, int kRowCount>
  static JIGE_INLINE void dots(const QuantBlock* rows, const char* data,
                               F32x16 (&out)[kRowCount][2]) {
    for (int half = 0; half < 2; ++half) {  // the registers hold the sums of one
      const char* lines = data + half * (kQuantGroupBytes / 2);
      if constexpr (QuantTraits<kFormat>::kZero == 128) {
        byte_dots<kFormat>(rows, lines, half, out);
      } else {
        half_dots<kFormat>(rows, lines, half, out);
      }
    }
  }

  // The signed weights of a group at vector `i` of a line, those of eight bits.
  template <QuantFormat kFormat>
  static JIGE_INLINE __m256i signed_weights(const char* data, int group, int i) {
    const __m256i sign = _mm256_set1_epi8(-128);
    if constexpr (!QuantTraits<kFormat>::kHalves) {
      return _mm256_xor_si256(load_line(data + kQuantGroupBytes * group + 32 * i), sign);
    }
    const __m256i line = load_line(data + kQuantGroupBytes * (group / 2) + 32 * i);
    const __m256i table = _mm256_xor_si256(unsigned_table<kFormat>(), sign);
    return _mm256_shuffle_epi8(table, group % 2 == 0 ? lower_halves(line) : upper_halves(line));
  }

  template <QuantFormat kFormat, int kRowCount>
  static JIGE_INLINE void byte_dots(const QuantBlock* rows, const char* data, int half_of_out,
                                    F32x16 (&out)[kRowCount][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sums[kRowCount][2];
    for (auto& pair : sums) pair[0] = pair[1] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int group = 0; group < kQuantBlock / kQuantGroup; ++group) {
      __m256i weights[2], sizes[2];
      for (int i = 0; i < 2; ++i) {
        weights[i] = signed_weights<kFormat>(data, group, i);
        sizes[i] = _mm256_abs_epi8(weights[i]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRowCount; ++r) {
        const __m256i four = four_of(rows[r], group);
        for (int i = 0; i < 2; ++i) {
          const __m256i twos = _mm256_maddubs_epi16(sizes[i], _mm256_sign_epi8(four, weights[i]));
          sums[r][i] = _mm256_add_epi32(sums[r][i], _mm256_madd_epi16(twos, ones));
        }
      }
    }
    for (int r = 0; r < kRowCount; ++r)
      out[r][half_of_out] = {to_floats(sums[r][0]), to_floats(sums[r][1])};
  }

  template <QuantFormat kFormat, int kRowCount>
  static JIGE_INLINE void half_dots(const QuantBlock* rows, const char* data, int half_of_out,
                                    F32x16 (&out)[kRowCount][2]) {
    constexpr int kLines = kQuantBlock / (2 * kQuantGroup);
    constexpr bool kTwice = kFormat == QuantFormat::kFp4;  // sums of half a block
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i twos[kRowCount][2], sums[kRowCount][2];
    for (auto& pair : twos) pair[0] = pair[1] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int line = 0; line < kLines; ++line) {
      __m256i low[2], high[2];
      for (int i = 0; i < 2; ++i) {
        const __m256i bytes = load_line(data + kQuantGroupBytes * line + 32 * i);
        low[i] = weights_of<kFormat>(lower_halves(bytes));
        high[i] = weights_of<kFormat>(upper_halves(bytes));
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRowCount; ++r) {
        const __m256i even = four_of(rows[r], 2 * line);
        const __m256i odd = four_of(rows[r], 2 * line + 1);
        for (int i = 0; i < 2; ++i) {
          twos[r][i] = _mm256_add_epi16(twos[r][i], _mm256_maddubs_epi16(low[i], even));
          twos[r][i] = _mm256_add_epi16(twos[r][i], _mm256_maddubs_epi16(high[i], odd));
        }
      }
      if (!kTwice || line != kLines / 2 - 1) continue;
      for (int r = 0; r < kRowCount; ++r) {
        for (int i = 0; i < 2; ++i) {
          sums[r][i] = _mm256_madd_epi16(twos[r][i], ones);
          twos[r][i] = _mm256_setzero_si256();
        }
      }
    }
    for (int r = 0; r < kRowCount; ++r) {
      for (int i = 0; i < 2; ++i) {
        __m256i start = _mm256_set1_epi32(rows[r].offset);
        if constexpr (kTwice) start = _mm256_add_epi32(start, sums[r][i]);
        twos[r][i] = _mm256_add_epi32(start, _mm256_madd_epi16(twos[r][i], ones));
      }
      out[r][half_of_out] = {to_floats(twos[r][0]), to_floats(twos[r][1])};
    }
  }
};

}  // namespace

const QuantEngine kQuantAvx2 = {
    .name = "avx2 bytes",
    .rows = Avx2Sums::kRows,
    .rows_max = Avx2Sums::kRowsMax,
    .micro = {quant_micro<Avx2Sums, QuantFormat::kQ8>, quant_micro<Avx2Sums, QuantFormat::kQ4>,
              quant_micro<Avx2Sums, QuantFormat::kFp4>,
              quant_micro<Avx2Sums, QuantFormat::kUneven4>},
};

}  // namespace jige::cpu::JIGE_ISA_NS
