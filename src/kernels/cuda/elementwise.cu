#include "kernels/cuda/elementwise.h"

#include "kernels/cuda/portable.cuh"

namespace jige::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPerBlock = 4 * kThreads;

// Body(row, column) for the elements of a block.
template <typename Body>
__device__ void for_elements(int64_t rows, int64_t columns, Body body) {
  const int64_t count = rows * columns;
  const int64_t begin = blockIdx.x * kPerBlock + threadIdx.x;
  for (int64_t i = begin; i < count && i < (blockIdx.x + int64_t{1}) * kPerBlock; i += kThreads) {
    body(i / columns, i % columns);
  }
}

__global__ void add_kernel(Rows dst, ConstRows a, ConstRows b, int64_t rows, int64_t columns) {
  for_elements(rows, columns, [&](int64_t row, int64_t column) {
    const float sum = load_element(a.data, a.type, row * a.stride + column) +
                      load_element(b.data, b.type, row * b.stride + column);
    store_element(dst.data, dst.type, row * dst.stride + column, sum);
  });
}

}  // namespace

void add(const LaunchStream& stream, const cpu::Rows& dst, const cpu::ConstRows& a,
         const cpu::ConstRows& b, int64_t rows, int64_t columns) {
  launch(stream, {blocks_for(rows * columns, kPerBlock), kThreads}, add_kernel, dst, a, b, rows,
         columns);
}

}  // namespace jige::cuda
