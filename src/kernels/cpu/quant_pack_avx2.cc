#include "kernels/cpu/quant_pack.h"

#include <cstring>

#include "kernels/cpu/quant_blocks_avx2.h"
#include "kernels/cpu/quant_uneven_avx2.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

// Blocks of one column written before the next column's, so that their part of a panel stays in a
// first-level cache and memory is read in long pieces.
constexpr int64_t kBlocksInTurn = 16;

JIGE_INLINE int32_t sum_of_lanes(__m256i v) {
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtsi128_si32(four);
}

JIGE_INLINE void store_bytes(void* dst, __m256i bytes) {
  _mm256_storeu_si256(static_cast<__m256i*>(dst), bytes);
}

JIGE_INLINE void write_row_block(const Numbers& x, int zero, QuantBlock* dst) {
  const uint32_t bits = largest_bits(x);
  if (bits < kQuantLeast || bits >= kQuantInfinity) {
    store_bytes(dst->values, _mm256_setzero_si256());
    dst->scale = bits < kQuantLeast ? 0.0f : as_float(0x7fc00000);
    dst->offset = 0;
    return;
  }
  const float most = as_float(bits);
  const F32 inverse = F32::broadcast(127.0f / most);
  Numbers scaled;
  for (int i = 0; i < kBlockVectors; ++i) scaled.v[i] = x.v[i] * inverse;
  const __m256i bytes = to_bytes(scaled);
  store_bytes(dst->values, bytes);
  dst->scale = most / 127.0f;
  const __m256i twos = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
  dst->offset = -zero * sum_of_lanes(_mm256_madd_epi16(twos, _mm256_set1_epi16(1)));
}

// Whether all are within half a step of what there is.
JIGE_INLINE bool all_within(const Numbers& x, float least, float most) {
  F32 low = x.v[0], high = x.v[0];
  for (int i = 1; i < kBlockVectors; ++i) {
    low = min(low, x.v[i]);
    high = max(high, x.v[i]);
  }
  const F32::Mask within =
      (F32::broadcast(least - 0.5f) <= low) & (high <= F32::broadcast(most + 0.5f));
  return mask_bits(within) == (1u << F32::kLanes) - 1;
}

// The block with the scale that is given, if its integers reach so far.
JIGE_INLINE bool take_given(const Numbers& x, uint16_t given, float least, float most,
                            WeightBlock* block) {
  const float value = _cvtsh_ss(given);
  if (value == 0) return false;
  const F32 inverse = F32::broadcast(1.0f / value);
  Numbers scaled;
  for (int i = 0; i < kBlockVectors; ++i) scaled.v[i] = x.v[i] * inverse;
  if (!all_within(scaled, least, most)) return false;
  for (F32& v : scaled.v) v = max(min(v, F32::broadcast(most)), F32::broadcast(least));
  *block = {to_bytes(scaled), given};
  return true;
}

JIGE_INLINE WeightBlock quantise_q8(const Numbers& x, uint32_t bits) {
  const Scale scale = scale_of(as_float(bits) / 127.0f);
  return {to_bytes(scaled_numbers(x, scale, -127, 127)), scale.bits};
}

JIGE_INLINE float squared_error(const Numbers& x, const Numbers& scaled, float scale) {
  F32 sum = F32::zero();
  for (int i = 0; i < kBlockVectors; ++i) {
    const F32 whole = {
        _mm256_round_ps(scaled.v[i].v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
    const F32 rest = fma(F32::broadcast(-scale), whole, x.v[i]);
    sum = fma(rest, rest, sum);
  }
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum.v), _mm256_extractf128_ps(sum.v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Scales of all candidates, a lane each, and 1 / d, or zero where d is.
struct Scales {
  uint16_t bits[F32::kLanes];
  float values[F32::kLanes];
  float inverses[F32::kLanes];
};

JIGE_INLINE void scales_of(float extreme, Scales* scales) {
  static_assert(sizeof kQ4Divisors == sizeof scales->values);
  const F32 wanted = F32::broadcast(extreme) / -F32::load(kQ4Divisors);
  const F32 most = F32::broadcast(kQuantScaleMax);
  const __m128i bits = _mm256_cvtps_ph(max(min(wanted, most), -most).v, _MM_FROUND_TO_NEAREST_INT);
  const F32 values = {_mm256_cvtph_ps(bits)};
  const F32::Mask none = values == F32::zero();
  select(none, F32::zero(), F32::broadcast(1) / values).store(scales->inverses);
  values.store(scales->values);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(scales->bits), bits);
}

// Without a branch on which candidate is better, which nothing could foresee.
JIGE_INLINE WeightBlock quantise_q4(const Numbers& x, uint32_t bits) {
  Scales scales;
  scales_of(extreme_of(x, bits), &scales);
  const auto scale_at = [&](int i) {
    return Scale{scales.bits[i], scales.values[i], scales.inverses[i]};
  };
  float errors[F32::kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < F32::kLanes; ++i) {
    const Scale scale = scale_at(i);
    errors[i] = squared_error(x, scaled_numbers(x, scale, -8, 7), scale.value);
  }
  int best = 0;
#pragma GCC unroll 8
  for (int i = 1; i < F32::kLanes; ++i) best = errors[i] < errors[best] ? i : best;
  const Scale scale = scale_at(best);
  return {to_bytes(scaled_numbers(x, scale, -8, 7)), scale.value == 0 ? uint16_t{0} : scale.bits};
}

// FP4's nearest numbers, in halves.
JIGE_INLINE F32 nearest_fp4(F32 u) {
  const F32 sign = F32::broadcast(-0.0f);
  const F32 size = {_mm256_andnot_ps(sign.v, u.v)};
  const F32 small = F32::broadcast(4), middle = F32::broadcast(8);
  const auto below = [&](F32 bound, F32 yes, F32 no) {
    return F32{_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(size.v, bound.v, _CMP_LE_OQ))};
  };
  const F32 one = F32::broadcast(1), two = F32::broadcast(2);
  const F32 step = below(small, one, below(middle, two, small));
  const F32 inverse = below(small, one, below(middle, F32::broadcast(0.5f), F32::broadcast(0.25f)));
  const F32 whole = {
      _mm256_round_ps((u * inverse).v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  return whole * step;
}

JIGE_INLINE WeightBlock quantise_fp4(const Numbers& x, uint32_t bits) {
  constexpr uint32_t kExponent = 0x7f800000, kEighth = 3u << 23;
  const uint32_t power = bits & kExponent;  // of two, the largest in the block; 0 below normal ones
  const Scale scale = scale_of(power > kEighth ? as_float(power - kEighth) : 0.0f);
  Numbers whole = scaled_numbers(x, scale, -kFp4Largest, kFp4Largest);
  for (F32& v : whole.v) v = nearest_fp4(v);
  return {to_bytes(whole), scale.bits};
}

template <QuantFormat kFormat>
JIGE_INLINE WeightBlock quantise_weights(const Numbers& x, uint16_t given) {
  const uint32_t bits = largest_bits(x);
  if (bits >= kQuantInfinity) return zeros_of<kFormat>(kQuantScaleNan);
  if constexpr (kFormat == QuantFormat::kFp4) return quantise_fp4(x, bits);
  if constexpr (kFormat == QuantFormat::kUneven4) return quantise_uneven(x, bits);
  constexpr bool kEight = kFormat == QuantFormat::kQ8;
  WeightBlock block;
  if (take_given(x, given, kEight ? -127 : -8, kEight ? 127 : 7, &block)) return block;
  return kEight ? quantise_q8(x, bits) : quantise_q4(x, bits);
}

// Weights as the panels keep them, a byte each.
template <QuantFormat kFormat>
JIGE_INLINE __m256i stored_bytes(__m256i weights) {
  using Traits = QuantTraits<kFormat>;
  if constexpr (kFormat == QuantFormat::kUneven4) return weights;
  if constexpr (kFormat == QuantFormat::kFp4) {
    const __m256i bits_of_size =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 0, 5, 0, 6, 0, 0, 0, 7, 0, 0, 0));
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi16(weights, 4), _mm256_set1_epi8(8));
    return _mm256_or_si256(sign, _mm256_shuffle_epi8(bits_of_size, _mm256_abs_epi8(weights)));
  }
  return _mm256_add_epi8(weights, _mm256_set1_epi8(static_cast<char>(Traits::kZero)));
}

// Where the blocks of one column go.
template <QuantFormat kFormat>
struct ColumnWriter {
  using Traits = QuantTraits<kFormat>;
  std::byte* panel;
  int64_t column;  // of the panel

  JIGE_INLINE void write(int64_t block, const WeightBlock& weights) const {
    std::byte* at = panel + block * Traits::kBlockBytes;
    std::memcpy(at + column * 2, &weights.scale, sizeof weights.scale);
    std::byte* data = at + kQuantScaleBytes + column * kQuantGroup;
    const __m256i bytes = stored_bytes<kFormat>(weights.bytes);
    uint32_t words[8];
    if constexpr (Traits::kHalves) {  // the second group of two becomes the upper halves
      store_bytes(words, _mm256_or_si256(bytes, _mm256_srli_epi64(bytes, 28)));
    } else {
      store_bytes(words, bytes);
    }
    constexpr int kLines = Traits::kDataBytes / kQuantGroupBytes;
#pragma GCC unroll 8
    for (int line = 0; line < kLines; ++line) {
      std::memcpy(data + line * kQuantGroupBytes, &words[line * 8 / kLines], 4);
    }
  }
};

template <QuantFormat kFormat>
JIGE_INLINE ColumnWriter<kFormat> writer_of(const QuantWeights& args, int64_t column) {
  return {
      args.panels + (column / kQuantColumns - args.column_begin / kQuantColumns) * args.panel_bytes,
      column % kQuantColumns};
}

JIGE_INLINE int64_t block_count(int64_t depth) { return (depth + kQuantBlock - 1) / kQuantBlock; }

template <QuantFormat kFormat, typename Element>
JIGE_FLATTEN void write_columns(const QuantWeights& args) {
  const int64_t blocks = block_count(args.depth);
  int64_t column = args.column_begin;
  const int64_t end = column + args.column_count;
  while (column < end) {  // those of one panel together
    const int64_t panel_end = (column / kQuantColumns + 1) * kQuantColumns;
    const int64_t stop = panel_end < end ? panel_end : end;
    for (int64_t first = 0; first < blocks; first += kBlocksInTurn) {
      const int64_t last = first + kBlocksInTurn < blocks ? first + kBlocksInTurn : blocks;
      for (int64_t at = column; at < stop; ++at) {
        const Element* src = row_of<Element>(args.src, at - args.column_begin);
        const auto writer = writer_of<kFormat>(args, at);
        for (int64_t block = first; block < last; ++block) {
          const int64_t depth = block * kQuantBlock;
          const uint16_t given = args.scales.at(at - args.column_begin, block);
          writer.write(block, quantise_weights<kFormat>(
                                  load_numbers(src + depth, args.depth - depth), given));
        }
      }
    }
    column = stop;
  }
}

template <QuantFormat kFormat>
void write_zero_columns(const QuantWeights& args) {
  const int64_t blocks = block_count(args.depth);
  for (int64_t i = 0; i < args.column_count; ++i) {
    const auto writer = writer_of<kFormat>(args, args.column_begin + i);
    for (int64_t block = 0; block < blocks; ++block) {
      writer.write(block, zeros_of<kFormat>(0));
    }
  }
}

template <typename Element>
JIGE_FLATTEN void write_rows(const QuantRows& args) {
  const int zero =
      with_format(args.weights, []<QuantFormat kFormat>() { return QuantTraits<kFormat>::kZero; });
  for (int64_t row = 0; row < args.row_count; ++row) {
    const Element* src = row_of<Element>(args.src, row);
    QuantBlock* dst = args.dst + row;
    for (int64_t depth = 0; depth < args.depth; depth += kQuantBlock) {
      write_row_block(load_numbers(src + depth, args.depth - depth), zero, dst);
      dst += args.row_count;
    }
  }
}

template <QuantFormat kFormat>
void write_weights(const QuantWeights& args) {
  switch (args.src.type) {
    case ElementType::kF32:
      return write_columns<kFormat, float>(args);
    case ElementType::kBf16:
      return write_columns<kFormat, Bf16>(args);
    case ElementType::kF16:
      return write_columns<kFormat, F16>(args);
  }
}

}  // namespace
}  // namespace jige::cpu::JIGE_ISA_NS

namespace jige::cpu {

void quant_rows(const QuantRows& args) noexcept {
  args.src.type == ElementType::kF32 ? JIGE_ISA_NS::write_rows<float>(args)
                                     : JIGE_ISA_NS::write_rows<Bf16>(args);
}

void quant_weights(const QuantWeights& args) noexcept {
  with_format(args.format,
              [&]<QuantFormat kFormat>() { JIGE_ISA_NS::write_weights<kFormat>(args); });
}

void quant_zero_columns(const QuantWeights& args) noexcept {
  with_format(args.format,
              [&]<QuantFormat kFormat>() { JIGE_ISA_NS::write_zero_columns<kFormat>(args); });
}

}  // namespace jige::cpu
