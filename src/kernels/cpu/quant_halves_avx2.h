// Weights in halves of bytes, for kernels of AVX2.
// Included by sources compiled for one instruction set. Threads: pure functions.
#pragma once

#include "kernels/cpu/quant_format.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

// The lower or upper halves of bytes, each in a byte.
JIGE_INLINE __m256i lower_halves(__m256i bytes) {
  return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}
JIGE_INLINE __m256i upper_halves(__m256i bytes) {
  return lower_halves(_mm256_srli_epi16(bytes, 4));
}

// What halves are looked up in.
template <QuantFormat kFormat>
JIGE_INLINE __m256i unsigned_table() {
  const auto* table = reinterpret_cast<const __m128i*>(QuantTraits<kFormat>::kUnsigned);
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(table));
}

// Halves as the unsigned weights they stand for.
template <QuantFormat kFormat>
JIGE_INLINE __m256i weights_of(__m256i halves) {
  if constexpr (!QuantTraits<kFormat>::kLooksUp) return halves;
  return _mm256_shuffle_epi8(unsigned_table<kFormat>(), halves);
}

}  // namespace jige::cpu::JIGE_ISA_NS
