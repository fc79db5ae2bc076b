// A block has a row, which it reads once for each sum and once more for the result.
#include "kernels/cuda/row_spread.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kSpreadThreads = 256;

// body(column) for the vectors of this thread.
template <int W, typename Body>
__device__ void for_columns(int64_t width, Body body) {
  for (int64_t i = int64_t{threadIdx.x} * W; i < width; i += kSpreadThreads * W) body(i);
}

template <int W>
__device__ void load_row(const ConstRows& rows, int64_t row, int64_t column, float (&x)[W]) {
  load_packed<W>(rows, row, column).unpack(rows.type, x);
}

// The mean of (x - center)² over a row, for all threads.
template <int W>
__device__ float mean_square(const ConstRows& rows, int64_t row, int64_t width, float center,
                             float* shared) {
  float sum = 0.0f;
  for_columns<W>(width, [&](int64_t column) {
    float x[W];
    load_row<W>(rows, row, column, x);
    for (int i = 0; i < W; ++i) sum = fmaf(x[i] - center, x[i] - center, sum);
  });
  return block_sum(sum, shared) / static_cast<float>(width);
}

struct Sizes {
  float target, src;  // a, b
  bool floored;
};
template <int W>
__device__ Sizes sizes_of(const ConstRows& src, const ConstRows& target, int64_t row, int64_t width,
                          float floor, float* shared) {
  const float square = mean_square<W>(src, row, width, 0.0f, shared);
  const float of_target = mean_square<W>(target, row, width, 0.0f, shared);
  const bool floored = !(square > floor);
  return {sqrtf(of_target), sqrtf(floored ? floor : square), floored};
}

template <int W>
__global__ void __launch_bounds__(kSpreadThreads) match_kernel(cpu::RowMatchArgs args) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  const Sizes sizes = sizes_of<W>(args.src, args.target, row, args.width, args.floor, shared);
  const float factor = sizes.target / sizes.src;
  for_columns<W>(args.width, [&](int64_t column) {
    float x[W];
    load_row<W>(args.src, row, column, x);
    for (int i = 0; i < W; ++i) x[i] *= factor;
    store_vector(args.dst, row, column, x);
  });
}

template <int W>
__global__ void __launch_bounds__(kSpreadThreads)
    match_backward_kernel(cpu::RowMatchBackwardArgs args) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  const Sizes sizes = sizes_of<W>(args.src, args.target, row, args.width, args.floor, shared);
  float sum = 0.0f;
  for_columns<W>(args.width, [&](int64_t column) {
    float grad[W], x[W];
    load_row<W>(args.grad_dst, row, column, grad);
    load_row<W>(args.src, row, column, x);
    for (int i = 0; i < W; ++i) sum = fmaf(grad[i], x[i], sum);
  });
  const float product = block_sum(sum, shared) / static_cast<float>(args.width);
  const float factor = sizes.target / sizes.src;
  const float along = sizes.floored ? 0.0f : product / (sizes.src * sizes.src);
  const float by_target = sizes.target > 0.0f ? product / (sizes.target * sizes.src) : 0.0f;
  const ConstRows old = {args.grad_target.data, args.grad_target.type, args.grad_target.stride};
  for_columns<W>(args.width, [&](int64_t column) {
    float grad[W], x[W], target[W], of_target[W];
    load_row<W>(args.grad_dst, row, column, grad);
    load_row<W>(args.src, row, column, x);
    load_row<W>(args.target, row, column, target);
    load_row<W>(old, row, column, of_target);
    for (int i = 0; i < W; ++i) {
      of_target[i] = fmaf(target[i], by_target, of_target[i]);
      grad[i] = fmaf(-x[i], along, grad[i]) * factor;
    }
    store_vector(args.grad_target, row, column, of_target);
    store_vector(args.grad_src, row, column, grad);
  });
}

struct Spread {
  float mean, deviation;
};
template <int W>
__device__ Spread spread_of(const ConstRows& rows, int64_t row, int64_t width, float* shared) {
  float sum = 0.0f;
  for_columns<W>(width, [&](int64_t column) {
    float x[W];
    load_row<W>(rows, row, column, x);
    for (int i = 0; i < W; ++i) sum += x[i];
  });
  const float mean = block_sum(sum, shared) / static_cast<float>(width);
  return {mean, sqrtf(mean_square<W>(rows, row, width, mean, shared))};
}

template <int W>
__global__ void __launch_bounds__(kSpreadThreads) cut_kernel(cpu::RowCutArgs args) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  const Spread spread = spread_of<W>(args.src, row, args.width, shared);
  const float bound = spread.mean + spread.deviation * args.deviations;
  for_columns<W>(args.width, [&](int64_t column) {
    float x[W];
    load_row<W>(args.src, row, column, x);
    for (int i = 0; i < W; ++i) x[i] = fmaxf(x[i] - bound, 0.0f);
    store_vector(args.dst, row, column, x);
  });
}

template <int W>
__global__ void __launch_bounds__(kSpreadThreads)
    cut_backward_kernel(cpu::RowCutBackwardArgs args) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  const Spread spread = spread_of<W>(args.src, row, args.width, shared);
  const float bound = spread.mean + spread.deviation * args.deviations;
  float sum = 0.0f;
  for_columns<W>(args.width, [&](int64_t column) {
    float grad[W], x[W];
    load_row<W>(args.grad_dst, row, column, grad);
    load_row<W>(args.src, row, column, x);
    for (int i = 0; i < W; ++i) sum += bound < x[i] ? grad[i] : 0.0f;
  });
  const float all = block_sum(sum, shared) / static_cast<float>(args.width);
  const float along = spread.deviation > 0.0f ? all * args.deviations / spread.deviation : 0.0f;
  for_columns<W>(args.width, [&](int64_t column) {
    float grad[W], x[W];
    load_row<W>(args.grad_dst, row, column, grad);
    load_row<W>(args.src, row, column, x);
    for (int i = 0; i < W; ++i) {
      grad[i] = (bound < x[i] ? grad[i] : 0.0f) - fmaf(along, x[i] - spread.mean, all);
    }
    store_vector(args.grad_src, row, column, grad);
  });
}

template <typename Args>
void launch_row_blocks(const LaunchStream& stream, const Args& args, int64_t rows, bool vectors,
                       void (*by_vectors)(Args), void (*by_elements)(Args)) {
  if (rows == 0) return;
  const bool whole = vectors && args.width % kVector == 0;
  launch(stream, {static_cast<unsigned>(rows), kSpreadThreads}, whole ? by_vectors : by_elements,
         args);
}

}  // namespace

void row_match(const LaunchStream& stream, const cpu::RowMatchArgs& args, int64_t rows) {
  launch_row_blocks(stream, args, rows, aligned(rows, args.dst, args.src, args.target),
                    match_kernel<kVector>, match_kernel<1>);
}

void row_match_backward(const LaunchStream& stream, const cpu::RowMatchBackwardArgs& args,
                        int64_t rows) {
  const bool vectors =
      aligned(rows, args.grad_src, args.grad_target, args.grad_dst, args.src, args.target);
  launch_row_blocks(stream, args, rows, vectors, match_backward_kernel<kVector>,
                    match_backward_kernel<1>);
}

void row_cut(const LaunchStream& stream, const cpu::RowCutArgs& args, int64_t rows) {
  launch_row_blocks(stream, args, rows, aligned(rows, args.dst, args.src), cut_kernel<kVector>,
                    cut_kernel<1>);
}

void row_cut_backward(const LaunchStream& stream, const cpu::RowCutBackwardArgs& args,
                      int64_t rows) {
  launch_row_blocks(stream, args, rows, aligned(rows, args.grad_src, args.grad_dst, args.src),
                    cut_backward_kernel<kVector>, cut_backward_kernel<1>);
}

}  // namespace jige::cuda
