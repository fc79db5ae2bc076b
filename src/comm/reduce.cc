#include "comm/reduce.h"

#include <immintrin.h>

#include <cstring>

#include "base/check.h"

// Eight elements at a time; what is left over goes through a padded copy, so that there is one
// definition of every operation.
namespace jige::comm {
namespace {

struct F32 {
  using Vector = __m256;
  static constexpr int64_t kBytes = 4;
  static Vector load(const std::byte* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
  static void store(std::byte* p, Vector v) { _mm256_storeu_ps(reinterpret_cast<float*>(p), v); }
};

struct BF16 {
  using Vector = __m256;
  static constexpr int64_t kBytes = 2;
  static Vector load(const std::byte* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static void store(std::byte* p, Vector v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
    const __m256i high = _mm256_srli_epi32(rounded, 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
};

struct F16 {
  using Vector = __m256;
  static constexpr int64_t kBytes = 2;
  static Vector load(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store(std::byte* p, Vector v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
};

struct I32 {
  using Vector = __m256i;
  static constexpr int64_t kBytes = 4;
  static Vector load(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void store(std::byte* p, Vector v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
};

// The sum of the two where one is NaN is NaN.
__m256 with_nan(__m256 a, __m256 b, __m256 chosen) {
  return _mm256_blendv_ps(chosen, _mm256_add_ps(a, b), _mm256_cmp_ps(a, b, _CMP_UNORD_Q));
}

struct Sum {
  static __m256 apply(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
  static __m256i apply(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
};
struct Min {
  static __m256 apply(__m256 a, __m256 b) { return with_nan(a, b, _mm256_min_ps(a, b)); }
  static __m256i apply(__m256i a, __m256i b) { return _mm256_min_epi32(a, b); }
};
struct Max {
  static __m256 apply(__m256 a, __m256 b) { return with_nan(a, b, _mm256_max_ps(a, b)); }
  static __m256i apply(__m256i a, __m256i b) { return _mm256_max_epi32(a, b); }
};

template <typename Type, typename Op>
void combine_rows(const std::byte* left, const std::byte* right, std::byte* out, int64_t count) {
  constexpr int64_t kStep = 8 * Type::kBytes;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const int64_t at = i * Type::kBytes;
    Type::store(out + at, Op::apply(Type::load(left + at), Type::load(right + at)));
  }
  if (i == count) return;
  std::byte a[kStep] = {};
  std::byte b[kStep] = {};
  const int64_t at = i * Type::kBytes;
  const auto rest = static_cast<size_t>((count - i) * Type::kBytes);
  std::memcpy(a, left + at, rest);
  std::memcpy(b, right + at, rest);
  Type::store(a, Op::apply(Type::load(a), Type::load(b)));
  std::memcpy(out + at, a, rest);
}

template <typename Type>
void combine_typed(RedOp op, const std::byte* left, const std::byte* right, std::byte* out,
                   int64_t count) {
  switch (op) {
    case RedOp::kSum:
    case RedOp::kAvg:
      return combine_rows<Type, Sum>(left, right, out, count);
    case RedOp::kMin:
      return combine_rows<Type, Min>(left, right, out, count);
    case RedOp::kMax:
      return combine_rows<Type, Max>(left, right, out, count);
  }
}

template <typename Type>
void divide_floats(std::byte* data, int64_t count, int parts) {
  const __m256 divisor = _mm256_set1_ps(static_cast<float>(parts));
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::byte* at = data + i * Type::kBytes;
    Type::store(at, _mm256_div_ps(Type::load(at), divisor));
  }
  if (i == count) return;
  std::byte rest[8 * Type::kBytes] = {};
  const auto bytes = static_cast<size_t>((count - i) * Type::kBytes);
  std::memcpy(rest, data + i * Type::kBytes, bytes);
  Type::store(rest, _mm256_div_ps(Type::load(rest), divisor));
  std::memcpy(data + i * Type::kBytes, rest, bytes);
}

void divide_integers(std::byte* data, int64_t count, int parts) {
  for (int64_t i = 0; i < count; ++i) {
    int32_t value;
    std::memcpy(&value, data + i * 4, 4);
    value /= parts;
    std::memcpy(data + i * 4, &value, 4);
  }
}

}  // namespace

void combine(DType dtype, RedOp op, const std::byte* left, const std::byte* right, std::byte* out,
             int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return combine_typed<F32>(op, left, right, out, count);
    case DType::kBF16:
      return combine_typed<BF16>(op, left, right, out, count);
    case DType::kF16:
      return combine_typed<F16>(op, left, right, out, count);
    case DType::kI32:
      return combine_typed<I32>(op, left, right, out, count);
    default:
      JIGE_CHECK(false, "{} cannot be reduced", dtype_info(dtype).name);
  }
}

void divide(DType dtype, std::byte* data, int64_t count, int parts) {
  switch (dtype) {
    case DType::kF32:
      return divide_floats<F32>(data, count, parts);
    case DType::kBF16:
      return divide_floats<BF16>(data, count, parts);
    case DType::kF16:
      return divide_floats<F16>(data, count, parts);
    case DType::kI32:
      return divide_integers(data, count, parts);
    default:
      JIGE_CHECK(false, "{} cannot be reduced", dtype_info(dtype).name);
  }
}

}  // namespace jige::comm
