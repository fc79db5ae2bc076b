// A token's numbers, those of its map or its gains, are read anew by every thread that needs them:
// they stay in a cache. Where sums over columns are made, a block has a row.
#include "kernels/cuda/altup.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kStreams = static_cast<int>(cpu::kAltUpStreamsMax);
constexpr int kStreamThreads = 256;

__device__ const float* numbers_of(const ConstRows& rows, int64_t row) {
  return static_cast<const float*>(rows.data) + row * rows.stride;
}
__device__ float* numbers_of(const Rows& rows, int64_t row) {
  return static_cast<float*>(rows.data) + row * rows.stride;
}

struct Predict {
  cpu::AltUpPredictArgs args;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const int count = static_cast<int>(args.streams);
    const float* const map = numbers_of(args.map, row);
    float x[kStreams][W];
    for (int j = 0; j < kStreams; ++j) {
      if (j >= count) continue;
      load_packed<W>(args.src, row, j * args.width + column).unpack(ElementType::kF32, x[j]);
    }
    for (int k = 0; k < kStreams; ++k) {
      if (k >= count) continue;
      float sum[W];
      for (int i = 0; i < W; ++i) sum[i] = x[k][i];
      for (int j = 0; j < kStreams; ++j) {
        if (j >= count) continue;
        const float factor = map[k * count + j];
        for (int i = 0; i < W; ++i) sum[i] = fmaf(factor, x[j][i], sum[i]);
      }
      if (k == 0) {
        store_vector(args.active, row, column, sum);
      } else {
        store_vector(args.others, row, (k - 1) * args.width + column, sum);
      }
    }
  }
};

struct Correct {
  cpu::AltUpCorrectArgs args;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const float* const gains = numbers_of(args.gains, row);
    float before[W], news[W];
    load_packed<W>(args.active, row, column).unpack(ElementType::kF32, before);
    load_packed<W>(args.result, row, column).unpack(ElementType::kF32, news);
    for (int i = 0; i < W; ++i) news[i] -= before[i];
    const ConstRows old = {args.dst.data, args.dst.type, args.dst.stride};
    for (int k = 0; k < static_cast<int>(args.streams); ++k) {
      const int64_t place = k * args.width + column;
      float x[W];
      load_packed<W>(old, row, place).unpack(ElementType::kF32, x);
      for (int i = 0; i < W; ++i) {
        x[i] = fmaf(1.0f + gains[k], news[i], k == 0 ? before[i] : x[i]);
      }
      store_vector(args.dst, row, place, x);
    }
  }
};

template <int W>
__global__ void __launch_bounds__(kStreamThreads)
    predict_backward_kernel(cpu::AltUpPredictBackwardArgs args) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  const int count = static_cast<int>(args.streams);
  const float* const map = numbers_of(args.map, row);
  const ConstRows old = {args.grad.data, args.grad.type, args.grad.stride};
  float sums[kStreams][kStreams] = {};
  for (int64_t at = int64_t{threadIdx.x} * W; at < args.width; at += kStreamThreads * W) {
    float x[kStreams][W], g[kStreams][W];
    for (int j = 0; j < kStreams; ++j) {
      if (j >= count) continue;
      load_packed<W>(args.src, row, j * args.width + at).unpack(ElementType::kF32, x[j]);
      load_packed<W>(old, row, j * args.width + at).unpack(ElementType::kF32, g[j]);
    }
    for (int j = 0; j < kStreams; ++j) {
      if (j >= count) continue;
      float sum[W];
      for (int i = 0; i < W; ++i) sum[i] = g[j][i];
      for (int k = 0; k < kStreams; ++k) {
        if (k >= count) continue;
        const float factor = map[k * count + j];
        for (int i = 0; i < W; ++i) {
          sum[i] = fmaf(factor, g[k][i], sum[i]);
          sums[k][j] = fmaf(g[k][i], x[j][i], sums[k][j]);
        }
      }
      store_vector(args.grad, row, j * args.width + at, sum);
    }
  }
  for (int k = 0; k < kStreams; ++k) {
    for (int j = 0; j < kStreams; ++j) {
      if (k >= count || j >= count) continue;
      const float sum = block_sum(sums[k][j], shared);
      if (threadIdx.x == 0) numbers_of(args.grad_map, row)[k * count + j] = sum;
    }
  }
}

template <int W>
__global__ void __launch_bounds__(kStreamThreads)
    correct_backward_kernel(cpu::AltUpCorrectBackwardArgs args) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  const int count = static_cast<int>(args.streams);
  const float* const gains = numbers_of(args.gains, row);
  const ConstRows old = {args.grad.data, args.grad.type, args.grad.stride};
  float sums[kStreams] = {};
  for (int64_t at = int64_t{threadIdx.x} * W; at < args.width; at += kStreamThreads * W) {
    float before[W], news[W], first[W], of_result[W];
    load_packed<W>(args.active, row, at).unpack(ElementType::kF32, before);
    load_packed<W>(args.result, row, at).unpack(ElementType::kF32, news);
    for (int i = 0; i < W; ++i) {
      news[i] -= before[i];
      of_result[i] = 0.0f;
    }
    for (int k = 0; k < kStreams; ++k) {
      if (k >= count) continue;
      float g[W];
      load_packed<W>(old, row, k * args.width + at).unpack(ElementType::kF32, g);
      for (int i = 0; i < W; ++i) {
        if (k == 0) first[i] = g[i];
        of_result[i] = fmaf(1.0f + gains[k], g[i], of_result[i]);
        sums[k] = fmaf(g[i], news[i], sums[k]);
      }
    }
    store_vector(args.grad_result, row, at, of_result);
    for (int i = 0; i < W; ++i) first[i] -= of_result[i];
    store_vector(args.grad, row, at, first);
  }
  for (int k = 0; k < kStreams; ++k) {
    if (k >= count) continue;
    const float sum = block_sum(sums[k], shared);
    if (threadIdx.x == 0) numbers_of(args.grad_gains, row)[k] = sum;
  }
}

struct ScaleByFactors {
  Rows dst;
  ConstRows src;
  const float* factors;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    float x[W], by[W];
    load_packed<W>(src, row, column).unpack(src.type, x);
    load_vector<W>(factors, column, by);
    for (int i = 0; i < W; ++i) x[i] *= by[i];
    store_vector(dst, row, column, x);
  }
};

}  // namespace

void altup_predict(const LaunchStream& stream, const cpu::AltUpPredictArgs& args, int64_t rows) {
  const bool vectors =
      whole_vectors(args.width) && aligned(rows, args.active, args.others, args.src);
  launch_elementwise(stream, {rows, args.width}, vectors, Predict{args});
}

void altup_predict_backward(const LaunchStream& stream, const cpu::AltUpPredictBackwardArgs& args,
                            int64_t rows) {
  if (rows == 0) return;
  const bool vectors = whole_vectors(args.width) && aligned(rows, args.grad, args.src);
  launch(stream, {static_cast<unsigned>(rows), kStreamThreads},
         vectors ? predict_backward_kernel<kVector> : predict_backward_kernel<1>, args);
}

void altup_correct(const LaunchStream& stream, const cpu::AltUpCorrectArgs& args, int64_t rows) {
  const bool vectors =
      whole_vectors(args.width) && aligned(rows, args.dst, args.active, args.result);
  launch_elementwise(stream, {rows, args.width}, vectors, Correct{args});
}

void altup_correct_backward(const LaunchStream& stream, const cpu::AltUpCorrectBackwardArgs& args,
                            int64_t rows) {
  if (rows == 0) return;
  const bool vectors = whole_vectors(args.width) &&
                       aligned(rows, args.grad, args.grad_result, args.active, args.result);
  launch(stream, {static_cast<unsigned>(rows), kStreamThreads},
         vectors ? correct_backward_kernel<kVector> : correct_backward_kernel<1>, args);
}

void scale_columns(const LaunchStream& stream, const cpu::ScaleColumnsArgs& args, int64_t rows) {
  const bool vectors = aligned(args.factors) && aligned(rows, args.dst, args.src);
  launch_elementwise(stream, {rows, args.width}, vectors,
                     ScaleByFactors{args.dst, args.src, args.factors});
}

}  // namespace jige::cuda
