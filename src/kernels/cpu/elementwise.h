// Sums and scalings of arrays, f32 or bf16 each, and the functions of simd_math.h on arrays.
//
// Arithmetic is f32; a bf16 result is rounded once. dst may be an operand of the same type.
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct Array {
  void* data;
  ElementType type;  // f32 or bf16
};

struct ConstArray {
  const void* data;
  ElementType type;  // f32 or bf16
};

struct ElementwiseKernels {
  // dst = a + b
  void (*add)(Array dst, ConstArray a, ConstArray b, int64_t count) noexcept;
  // dst = factor · src
  void (*scale)(Array dst, ConstArray src, float factor, int64_t count) noexcept;
  // dst = factor · src + addend, one number each; null: 1 and 0
  void (*scale_columns)(Array dst, ConstArray src, const float* factor, const float* addend,
                        int64_t count) noexcept;
  // data = cap · tanh(data · (1/cap)), f32
  void (*soft_cap)(float* data, float cap, int64_t count) noexcept;
};

const ElementwiseKernels& elementwise_kernels(Isa isa);

// The functions of simd_math.h, element by element; dst may be src.
struct VectorMath {
  using Function = void (*)(float* dst, const float* src, int64_t count) noexcept;
  Function exp;
  Function log;
  Function tanh;
  Function sigmoid;
  Function erf;
};

const VectorMath& vector_math(Isa isa);

}  // namespace jige::cpu
