#include "kernels/cuda/sums.h"

#include "kernels/cuda/portable.cuh"

namespace jige::cuda {
namespace {

constexpr int kSumsThreads = 256;
constexpr int kSumsLoads = 4;  // vectors that a thread has on the way

// The tensor that a piece is of: the last one that begins at or before it.
__device__ inline const SquaredTensor& tensor_of(const SumsOfSquares& args, int64_t piece) {
  int64_t low = 0;
  int64_t high = args.tensor_count - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (args.tensors[middle].first_piece <= piece) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return args.tensors[low];
}

// Four elements, zeros behind the end.
__device__ inline float4 four_or_zeros(const float* data, int64_t first, int64_t count,
                                       bool aligned) {
  if (aligned && first + 4 <= count) return *reinterpret_cast<const float4*>(data + first);
  return make_float4(first < count ? data[first] : 0.0f, first + 1 < count ? data[first + 1] : 0.0f,
                     first + 2 < count ? data[first + 2] : 0.0f,
                     first + 3 < count ? data[first + 3] : 0.0f);
}

__device__ inline double square(float value) {
  return static_cast<double>(value) * static_cast<double>(value);
}

__global__ void __launch_bounds__(kSumsThreads) pieces_kernel(SumsOfSquares args) {
  begin_kernel();
  __shared__ double shared[kWarp];
  const int64_t piece = blockIdx.x;
  const SquaredTensor& tensor = tensor_of(args, piece);
  const int64_t begin = (piece - tensor.first_piece) * kSquarePiece;
  const int64_t count = min(tensor.count - begin, kSquarePiece);
  const float* data = tensor.data + begin;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % 16 == 0;
  constexpr int64_t kStep = int64_t{4} * kSumsThreads;
  double sum = 0;
  for (int64_t first = int64_t{4} * threadIdx.x; first < count; first += kSumsLoads * kStep) {
    float4 fours[kSumsLoads];
    for (int i = 0; i < kSumsLoads; ++i)
      fours[i] = four_or_zeros(data, first + i * kStep, count, aligned);
    for (int i = 0; i < kSumsLoads; ++i) {
      sum += (square(fours[i].x) + square(fours[i].y)) + (square(fours[i].z) + square(fours[i].w));
    }
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) args.pieces[piece] = sum;
}

__global__ void __launch_bounds__(kSumsThreads) tensors_kernel(SumsOfSquares args) {
  begin_kernel();
  __shared__ double shared[kWarp];
  const SquaredTensor* tensor = args.tensors + blockIdx.x;
  const bool last = blockIdx.x + int64_t{1} == args.tensor_count;
  const int64_t end = last ? args.piece_count : tensor[1].first_piece;
  double sum = 0;
  for (int64_t piece = tensor->first_piece + threadIdx.x; piece < end; piece += kSumsThreads) {
    sum += args.pieces[piece];
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) args.sums[blockIdx.x] = sum;
}

}  // namespace

void sums_of_squares(const LaunchStream& stream, const SumsOfSquares& args) {
  launch(stream, {blocks_for(args.piece_count, 1), kSumsThreads}, pieces_kernel, args);
  launch(stream, {blocks_for(args.tensor_count, 1), kSumsThreads}, tensors_kernel, args);
}

}  // namespace jige::cuda
