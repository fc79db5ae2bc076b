// Walks over the elements of matrices in vectors of eight, for kernels that wait for memory.
//
// An elementwise kernel is a struct with a member at<W>(row, column) for W elements of a row, W
// being kVector or 1; launch_elementwise() gives every vector to a thread of its own. It takes
// W = 1 where an operand is not aligned, and for what is left at the end of a row.
// Threads: device code; launch_elementwise() as launch.h says.
#pragma once

#include <cstdint>

#include "kernels/cuda/portable.cuh"

namespace jige::cuda {

constexpr int kVector = 8;  // elements
constexpr int kElementwiseThreads = 256;

__host__ __device__ inline int64_t element_bytes(ElementType type) {
  return type == ElementType::kF32 ? 4 : 2;
}
__host__ __device__ inline int64_t ceil_div(int64_t count, int64_t by) {
  return (count + by - 1) / by;
}

// W neighbouring elements as they lie in memory, so that loads need not wait for one another.
template <int W>
struct Packed;

template <>
struct Packed<kVector> {
  uint4 low, high;  // 16 bits an element: low only

  // REQUIRES: aligned to 16 bytes.
  __device__ static Packed load(const void* data, ElementType type, int64_t index) {
    const auto* at = static_cast<const unsigned char*>(data) + index * element_bytes(type);
    Packed packed;
    packed.low = *reinterpret_cast<const uint4*>(at);
    packed.high = type == ElementType::kF32 ? *reinterpret_cast<const uint4*>(at + 16)
                                            : make_uint4(0, 0, 0, 0);
    return packed;
  }
  __device__ static Packed zero() { return {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)}; }
  __device__ void unpack(ElementType type, float (&x)[kVector]) const {
    const uint32_t words[kVector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (type == ElementType::kF32) {
      for (int i = 0; i < kVector; ++i) x[i] = bits_to_float(words[i]);
    } else if (type == ElementType::kBf16) {
      for (int i = 0; i < kVector / 2; ++i) {
        x[2 * i] = bits_to_float(words[i] << 16);
        x[2 * i + 1] = bits_to_float(words[i] & 0xffff0000u);
      }
    } else {
      for (int i = 0; i < kVector / 2; ++i) {
        x[2 * i] = half_to_float(static_cast<uint16_t>(words[i]));
        x[2 * i + 1] = half_to_float(static_cast<uint16_t>(words[i] >> 16));
      }
    }
  }
};

template <>
struct Packed<1> {
  float value;

  __device__ static Packed load(const void* data, ElementType type, int64_t index) {
    return {load_element(data, type, index)};
  }
  __device__ static Packed zero() { return {0.0f}; }
  __device__ void unpack(ElementType, float (&x)[1]) const { x[0] = value; }
};

template <int W>
__device__ Packed<W> load_packed(const ConstRows& rows, int64_t row, int64_t column) {
  return Packed<W>::load(rows.data, rows.type, row * rows.stride + column);
}
template <int W>
__device__ void load_vector(const float* data, int64_t index, float (&x)[W]) {
  Packed<W>::load(data, ElementType::kF32, index).unpack(ElementType::kF32, x);
}

// f32 or bf16; a vector is aligned to 16 bytes.
__device__ inline void store_vector(void* data, ElementType type, int64_t index,
                                    const float (&x)[1]) {
  store_element(data, type, index, x[0]);
}
__device__ inline void store_vector(void* data, ElementType type, int64_t index,
                                    const float (&x)[kVector]) {
  auto* to =
      reinterpret_cast<uint4*>(static_cast<unsigned char*>(data) + index * element_bytes(type));
  if (type == ElementType::kF32) {
    to[0] = make_uint4(float_to_bits(x[0]), float_to_bits(x[1]), float_to_bits(x[2]),
                       float_to_bits(x[3]));
    to[1] = make_uint4(float_to_bits(x[4]), float_to_bits(x[5]), float_to_bits(x[6]),
                       float_to_bits(x[7]));
  } else {
    to[0] = make_uint4(floats_to_bf16x2(x[0], x[1]), floats_to_bf16x2(x[2], x[3]),
                       floats_to_bf16x2(x[4], x[5]), floats_to_bf16x2(x[6], x[7]));
  }
}
template <int W>
__device__ void store_vector(const Rows& rows, int64_t row, int64_t column, const float (&x)[W]) {
  store_vector(rows.data, rows.type, row * rows.stride + column, x);
}

// Quotient and remainder; 32-bit division wherever it suffices.
struct Divided {
  int64_t quotient, remainder;
};
__device__ inline Divided divide(int64_t value, int64_t by) {
  if (((value | by) >> 32) == 0) {
    const uint32_t quotient = static_cast<uint32_t>(value) / static_cast<uint32_t>(by);
    return {quotient, static_cast<uint32_t>(value) - quotient * static_cast<uint32_t>(by)};
  }
  return {value / by, value % by};
}

// 1 / (1 + e^-x), to a few units in the last place; 0 below the normal range.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// log(1 + e^x).
constexpr float kSoftplusLinearFrom = 20.0f;  // above it softplus(x) is taken for x
__device__ inline float softplus(float x) { return x > kSoftplusLinearFrom ? x : log1pf(expf(x)); }

// A number as a type, for calls with what is known when they are compiled.
template <int kCount>
struct Count {};

// Rows and columns that a walk covers. Matrices without gaps are one row.
struct Extent {
  int64_t rows, columns;
};
template <typename... AnyRows>
Extent merged_extent(int64_t rows, int64_t columns, const AnyRows&... operands) {
  if (rows > 1 && ((operands.stride == columns) && ...)) return {1, rows * columns};
  return {rows, columns};
}

// Whether vectors at multiples of kVector columns are aligned in all rows.
constexpr int64_t kVectorAlignment = 16;
inline bool aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kVectorAlignment == 0;
}
template <typename... AnyRows>
bool aligned(int64_t rows, const AnyRows&... operands) {
  return ((aligned(operands.data) &&
           (rows <= 1 || operands.stride * element_bytes(operands.type) % kVectorAlignment == 0)) &&
          ...);
}

// Whether rows of this width are whole vectors.
inline bool whole_vectors(int64_t width) { return width % kVector == 0; }

// The rows from column `column` on.
__host__ __device__ inline Rows from_column(const Rows& rows, int64_t column) {
  auto* const data = static_cast<unsigned char*>(rows.data);
  return {data + column * element_bytes(rows.type), rows.type, rows.stride};
}
__host__ __device__ inline ConstRows from_column(const ConstRows& rows, int64_t column) {
  const auto* const data = static_cast<const unsigned char*>(rows.data);
  return {data + column * element_bytes(rows.type), rows.type, rows.stride};
}

template <int W, typename Op>
__global__ void __launch_bounds__(kElementwiseThreads)
    elementwise_kernel(Op op, Extent extent, int64_t vectors_per_row) {
  begin_kernel();
  const int64_t index = int64_t{blockIdx.x} * kElementwiseThreads + threadIdx.x;
  const Divided at = divide(index, vectors_per_row);
  if (at.quotient >= extent.rows) return;
  const int64_t column = at.remainder * W;
  if (column + W <= extent.columns) {
    op.template at<W>(at.quotient, column);
    return;
  }
  for (int64_t i = column; i < extent.columns; ++i) op.template at<1>(at.quotient, i);
}

// `vectors`: whether all operands are aligned.
template <int W = kVector, typename Op>
void launch_elementwise(const LaunchStream& stream, const Extent& extent, bool vectors,
                        const Op& op) {
  if (extent.rows == 0 || extent.columns == 0) return;
  const int64_t vectors_per_row = ceil_div(extent.columns, vectors ? W : 1);
  const LaunchShape shape = {blocks_for(extent.rows * vectors_per_row, kElementwiseThreads),
                             kElementwiseThreads};
  launch(stream, shape, vectors ? elementwise_kernel<W, Op> : elementwise_kernel<1, Op>, op, extent,
         vectors_per_row);
}

}  // namespace jige::cuda
