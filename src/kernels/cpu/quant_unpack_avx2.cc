#include "kernels/cpu/quant_unpack.h"

#include "kernels/cpu/quant_halves_avx2.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

constexpr int kUnpackVectors = kQuantColumns / F32::kLanes;

// Finite numbers, or NaNs whose lower halves are zero, rounded to bf16 in the lower halves.
JIGE_INLINE __m256i rounded_halves(F32 value) {
  const __m256i bits = _mm256_castps_si256(value.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff));
  return _mm256_srli_epi32(_mm256_add_epi32(up, odd), 16);
}

// Sixteen columns of one depth.
JIGE_INLINE void store_pair(float* dst, F32 first, F32 second) {
  first.store(dst);
  second.store(dst + F32::kLanes);
}
JIGE_INLINE void store_pair(Bf16* dst, F32 first, F32 second) {
  const __m256i joined = _mm256_packus_epi32(rounded_halves(first), rounded_halves(second));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), _mm256_permute4x64_epi64(joined, 0xd8));
}

// Eight columns of a block: their scales, and what an unsigned zero stands for.
struct Columns {
  F32 scale, start;
};

template <QuantFormat kFormat>
JIGE_INLINE Columns load_columns(const std::byte* block, int vector) {
  const auto* scales = reinterpret_cast<const __m128i*>(block) + vector;
  const F32 scale = {_mm256_cvtph_ps(_mm_loadu_si128(scales))};
  return {scale, scale * F32::broadcast(-static_cast<float>(QuantTraits<kFormat>::kZero))};
}

// The unsigned weights at one place of the four-byte groups of eight columns, as numbers. Scale
// times such a weight, and what is added, have few bits: the result is exact.
template <int kShift>
JIGE_INLINE F32 numbers_at(__m256i groups, const Columns& columns) {
  const __m256i whole = _mm256_and_si256(_mm256_srli_epi32(groups, kShift), _mm256_set1_epi32(255));
  return fma({_mm256_cvtepi32_ps(whole)}, columns.scale, columns.start);
}

template <int kShift, typename Element>
JIGE_INLINE void unpack_depth(const __m256i (&groups)[2], const Columns (&columns)[2],
                              Element* dst) {
  store_pair(dst, numbers_at<kShift>(groups[0], columns[0]),
             numbers_at<kShift>(groups[1], columns[1]));
}

// Four depths of sixteen columns.
template <typename Element>
JIGE_INLINE void unpack_group(const __m256i (&groups)[2], const Columns (&columns)[2], Element* dst,
                              int64_t stride) {
  unpack_depth<0>(groups, columns, dst);
  unpack_depth<8>(groups, columns, dst + stride);
  unpack_depth<16>(groups, columns, dst + 2 * stride);
  unpack_depth<24>(groups, columns, dst + 3 * stride);
}

// Sixteen columns of a block, from vector `first` on.
template <QuantFormat kFormat, typename Element>
JIGE_INLINE void unpack_half(const std::byte* block, int first, Element* dst, int64_t stride) {
  using Traits = QuantTraits<kFormat>;
  const Columns columns[2] = {load_columns<kFormat>(block, first),
                              load_columns<kFormat>(block, first + 1)};
  const std::byte* data = block + kQuantScaleBytes;
  for (int line = 0; line < Traits::kDataBytes / kQuantGroupBytes; ++line) {
    const auto* at = reinterpret_cast<const __m256i*>(data + line * kQuantGroupBytes) + first;
    __m256i groups[2] = {_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)};
    if constexpr (Traits::kHalves) {
      const __m256i lower[2] = {weights_of<kFormat>(lower_halves(groups[0])),
                                weights_of<kFormat>(lower_halves(groups[1]))};
      unpack_group(lower, columns, dst, stride);
      dst += kQuantGroup * stride;
      for (__m256i& group : groups) group = weights_of<kFormat>(upper_halves(group));
    }
    unpack_group(groups, columns, dst, stride);
    dst += kQuantGroup * stride;
  }
}

template <QuantFormat kFormat, typename Element>
JIGE_FLATTEN void unpack_blocks(const QuantUnpack& args) {
  auto* dst = static_cast<Element*>(args.dst);
  const std::byte* block = args.blocks;
  for (int64_t i = 0; i < args.block_count; ++i) {
    for (int first = 0; first < kUnpackVectors; first += 2) {
      unpack_half<kFormat>(block, first, dst + first * F32::kLanes, args.dst_stride);
    }
    block += QuantTraits<kFormat>::kBlockBytes;
    dst += kQuantBlock * args.dst_stride;
  }
}

template <QuantFormat kFormat>
void unpack_as(const QuantUnpack& args) {
  args.to_bf16 ? unpack_blocks<kFormat, Bf16>(args) : unpack_blocks<kFormat, float>(args);
}

}  // namespace
}  // namespace jige::cpu::JIGE_ISA_NS

namespace jige::cpu {

void quant_unpack(const QuantUnpack& args) noexcept {
  with_format(args.format, [&]<QuantFormat kFormat>() { JIGE_ISA_NS::unpack_as<kFormat>(args); });
}

}  // namespace jige::cpu
