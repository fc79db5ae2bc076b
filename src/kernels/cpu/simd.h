// Vectors of f32 for sources compiled once per instruction set (*_simd.cc): one source, the same
// bits from AVX2 and AVX-512.
//
//   F32     the native vector, F32::kLanes wide (8 or 16): for kernels in which a lane never meets
//           another lane.
//   F32x16  sixteen lanes on every instruction set (two registers on AVX2): for everything that
//           sums across lanes.
// Both have the same members and free functions, so a kernel may be a template on the vector.
//
// The rule of row reductions: lane j of an F32x16 takes the elements j, j + 16, j + 32, … in
// ascending order; then horizontal_sum adds lane j to lane j + 8, then j + 4, j + 2, j + 1. A part
// that is missing at the end adds zero. So a sum over a row depends on the row's length and values
// only, not on the instruction set, on threads or on how rows are split.
//
// Only IEEE operations are used (add, sub, mul, div, sqrt, fma, conversions to nearest even): no
// approximate reciprocal, no reassociation. Exponentials and the like are in simd_math.h.
//
// A *_simd.cc file includes <cstdint>, <cstring>, <immintrin.h> and kernel headers only: an inline
// function of another header, compiled for AVX-512, could be the copy the linker keeps for all.
// Threads: values.
#pragma once

// GCC 12 takes the undefined pass-through operands of its own AVX-512 header for mistakes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>
#include <cstring>

#include "kernels/cpu/types.h"

#define JIGE_INLINE inline __attribute__((always_inline))
// On a kernel's inner function: everything it calls is inlined, lambdas too.
#define JIGE_FLATTEN __attribute__((flatten))

#if defined(JIGE_ISA_avx512)
#include "kernels/cpu/simd_avx512.h"
#elif defined(JIGE_ISA_avx2)
#include "kernels/cpu/simd_avx2.h"
#else
#error "simd.h is for sources compiled once per instruction set"
#endif

namespace jige::cpu::JIGE_ISA_NS {

// For single values: the same rounding as the vectors.
JIGE_INLINE float to_f32(float value) { return value; }
JIGE_INLINE float to_f32(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
JIGE_INLINE float to_f32(F16 value) { return _cvtsh_ss(value.bits); }

JIGE_INLINE void store_one(float value, float* dst) { *dst = value; }
JIGE_INLINE void store_one(float value, Bf16* dst) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  dst->bits = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded >> 16);
}

// Runs body(offset, lane_count) over [0, count) in steps of `Vector`'s lanes; the last step may be
// short. The body loads and stores with load_partial and store_partial when lane_count < kLanes.
template <typename Vector, typename Body>
JIGE_INLINE void for_each_vector(int64_t count, Body&& body) {
  int64_t i = 0;
  for (; i + Vector::kLanes <= count; i += Vector::kLanes) body(i, Vector::kLanes);
  if (i < count) body(i, static_cast<int>(count - i));
}

// Fetches what a loop over memory reads soon. The processor foresees by itself to the end of a page
// only, and where several arrays are read not even that well.
JIGE_INLINE void fetch_ahead(const void* at) {
  constexpr uintptr_t kAheadBytes = 2048;
  _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(at) + kAheadBytes),
               _MM_HINT_T0);
}

// load and store of `lane_count` lanes: full where it is all of them.
template <typename Vector, typename Element>
JIGE_INLINE Vector load_lanes(const Element* src, int lane_count) {
  return lane_count == Vector::kLanes ? Vector::load(src) : Vector::load_partial(src, lane_count);
}
template <typename Vector, typename Element>
JIGE_INLINE void store_lanes(Vector value, Element* dst, int lane_count) {
  if (lane_count == Vector::kLanes) {
    value.store(dst);
  } else {
    value.store_partial(dst, lane_count);
  }
}

JIGE_INLINE float sqrt(float value) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value))); }

// Calls body(Tag<Element>{}) for the element type of some rows, f32 or bf16.
template <typename Element>
struct Tag {
  using Type = Element;
};
template <typename Body>
JIGE_INLINE void with_element_type(ElementType type, Body&& body) {
  if (type == ElementType::kF32) {
    body(Tag<float>{});
  } else {
    body(Tag<Bf16>{});
  }
}

template <typename Element>
JIGE_INLINE Element* row_of(const Rows& rows, int64_t row) {
  return static_cast<Element*>(rows.data) + row * rows.stride;
}
template <typename Element>
JIGE_INLINE const Element* row_of(const ConstRows& rows, int64_t row) {
  return static_cast<const Element*>(rows.data) + row * rows.stride;
}

// load_lanes and store_lanes of f32 or bf16 rows by a branch on their type: for kernels of so many
// operands that a copy of them for each combination of types would be too much code.
template <typename Vector>
JIGE_INLINE Vector load_any(const ConstRows& rows, int64_t row, int64_t column, int lane_count) {
  return rows.type == ElementType::kF32
             ? load_lanes<Vector>(row_of<float>(rows, row) + column, lane_count)
             : load_lanes<Vector>(row_of<Bf16>(rows, row) + column, lane_count);
}
template <typename Vector>
JIGE_INLINE void store_any(Vector value, const Rows& rows, int64_t row, int64_t column,
                           int lane_count) {
  if (rows.type == ElementType::kF32) {
    store_lanes(value, row_of<float>(rows, row) + column, lane_count);
  } else {
    store_lanes(value, row_of<Bf16>(rows, row) + column, lane_count);
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
