#include "kernels/cpu/dropout.h"

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

constexpr int64_t kLanes = 8;          // Philox blocks at once
constexpr int64_t kGroupColumns = 32;  // their words

JIGE_INLINE __m256i broadcast(uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }

// Both halves of the 64-bit products of unsigned lanes.
struct Product {
  __m256i high, low;
};
JIGE_INLINE Product multiply(__m256i a, __m256i factor) {
  const __m256i even = _mm256_mul_epu32(a, factor);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factor);
  return {.high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA),
          .low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA)};
}

// Ten rounds over the blocks at counter, counter + 1, … counter + 7. REQUIRES: 8 divides `counter`.
JIGE_INLINE void philox(uint64_t key, uint64_t site, uint64_t counter, __m256i words[4]) {
  const __m256i multiplier0 = broadcast(0xD2511F53u);
  const __m256i multiplier1 = broadcast(0xCD9E8D57u);
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  __m256i c0 = _mm256_add_epi32(broadcast(static_cast<uint32_t>(counter)),
                                _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256i c1 = broadcast(static_cast<uint32_t>(counter >> 32));
  __m256i c2 = broadcast(static_cast<uint32_t>(site));
  __m256i c3 = broadcast(static_cast<uint32_t>(site >> 32));
  for (int round = 0; round < 10; ++round) {
    const Product first = multiply(c0, multiplier0);
    const Product second = multiply(c2, multiplier1);
    c0 = _mm256_xor_si256(_mm256_xor_si256(second.high, c1), broadcast(key0));
    c1 = second.low;
    c2 = _mm256_xor_si256(_mm256_xor_si256(first.high, c3), broadcast(key1));
    c3 = first.low;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// `scale` where an element of the group stays, else 0.
JIGE_INLINE void group_factors(const DropoutArgs& args, uint64_t counter, float* factors) {
  __m256i words[4];
  philox(args.key, args.site, counter, words);
  const __m256i threshold = broadcast(args.threshold);
  const __m256 scale = _mm256_set1_ps(args.scale);
  for (int w = 0; w < 4; ++w) {
    const __m256i stays = _mm256_cmpeq_epi32(_mm256_max_epu32(words[w], threshold), words[w]);
    _mm256_storeu_ps(factors + kLanes * w, _mm256_and_ps(_mm256_castsi256_ps(stays), scale));
  }
}

template <typename Dst, typename Src>
JIGE_FLATTEN void dropout_rows(const DropoutArgs& args, int64_t row_begin, int64_t row_end) {
  const int64_t groups = (args.columns + kGroupColumns - 1) / kGroupColumns;
  float factors[kGroupColumns];
  for (int64_t row = row_begin; row < row_end; ++row) {
    Dst* dst = row_of<Dst>(args.dst, row);
    const Src* src = row_of<Src>(args.src, row);
    const uint64_t token = args.token_begin + args.token_step * static_cast<uint64_t>(row);
    uint64_t counter = token * static_cast<uint64_t>(groups * kLanes);
    for (int64_t begin = 0; begin < args.columns; begin += kGroupColumns, counter += kLanes) {
      group_factors(args, counter, factors);
      const int64_t left = args.columns - begin;
      for_each_vector<F32>(left < kGroupColumns ? left : kGroupColumns, [&](int64_t i, int lanes) {
        store_lanes(load_lanes<F32>(src + begin + i, lanes) * load_lanes<F32>(factors + i, lanes),
                    dst + begin + i, lanes);
      });
    }
  }
}

void dropout(const DropoutArgs& args, int64_t row_begin, int64_t row_end) noexcept {
  with_element_type(args.dst.type, [&](auto dst_tag) {
    with_element_type(args.src.type, [&](auto src_tag) {
      dropout_rows<typename decltype(dst_tag)::Type, typename decltype(src_tag)::Type>(
          args, row_begin, row_end);
    });
  });
}

}  // namespace

extern const DropoutKernels kDropoutKernels;
const DropoutKernels kDropoutKernels = {dropout};

}  // namespace jige::cpu::JIGE_ISA_NS
