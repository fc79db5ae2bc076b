// Writing the sums of pair and tile engines as bf16. Threads: no state.
#include <cstdint>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "kernels/cpu/gemm_engine.h"

namespace jige::cpu::bf16 {

void store_bf16(const GemmStoreBF16& store);

namespace {

// As round_lanes_to_bf16 (gemm_source.h); the instruction for it makes zeros of small numbers.
inline __m256i round_to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_add_epi32(bits, half);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
}

// Rounds sums as pairs and tiles leave them: none of them is below the normal range, so that the
// instruction gives what round_to_bf16 gives, in a quarter of the time.
struct RoundSums {
  __m512i line(const float* sums, int64_t) const {
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(sums + 16), _mm512_loadu_ps(sums));
  }
  __m256i half_line(const float* sums, int64_t) const {
    return (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(sums));
  }
};

// Rounds sums + bias, which may be any number.
struct RoundBiased {
  const float* bias;

  __m512i line(const float* sums, int64_t column) const {
    return _mm512_inserti64x4(_mm512_castsi256_si512(half_line(sums, column)),
                              half_line(sums + 16, column + 16), 1);
  }
  __m256i half_line(const float* sums, int64_t column) const {
    return round_to_bf16(_mm512_add_ps(_mm512_loadu_ps(sums), _mm512_loadu_ps(bias + column)));
  }
};

template <typename Round>
inline void store_rows(const GemmStoreBF16& store, const Round& round) {
  for (int64_t row = 0; row < store.rows; ++row) {
    const float* sums = store.sums + row * store.sums_stride;
    uint16_t* out = store.out + row * store.out_stride;
    int64_t i = 0;
    for (; i + 32 <= store.columns; i += 32) {
      const __m512i line = round.line(sums + i, i);
      if (store.past_caches) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), line);
      } else {
        _mm512_storeu_si512(out + i, line);
      }
    }
    if (i < store.columns) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), round.half_line(sums + i, i));
    }
  }
}

}  // namespace

void store_bf16(const GemmStoreBF16& store) {
  store.bias ? store_rows(store, RoundBiased{store.bias}) : store_rows(store, RoundSums{});
}

}  // namespace jige::cpu::bf16
