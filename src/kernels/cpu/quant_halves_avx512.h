// Weights in halves of bytes, for kernels of AVX-512.
// Included by sources compiled for one instruction set. Threads: pure functions.
#pragma once

#include "kernels/cpu/quant_format.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

// Halves of bytes, each in a byte, as the unsigned weights they stand for.
template <QuantFormat kFormat>
JIGE_INLINE __m512i weights_of(__m512i halves) {
  if constexpr (!QuantTraits<kFormat>::kLooksUp) return halves;
  const auto* table = reinterpret_cast<const __m128i*>(QuantTraits<kFormat>::kUnsigned);
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table)), halves);
}

}  // namespace jige::cpu::JIGE_ISA_NS
