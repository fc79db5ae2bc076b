// Sums of squares of many tensors at once.
//
// A tensor is summed in pieces of kSquarePiece elements, a block each: thread j takes the vectors
// of four j, j + 256, …, and the threads' sums meet in a fixed order; then a block a tensor sums
// its pieces. So the bits depend on the elements only. All in double: a square of an f32 is exact.
// Threads: asynchronous on the stream.
#pragma once

#include "kernels/cuda/launch.h"

namespace jige::cuda {

inline constexpr int64_t kSquarePiece = 32768;
constexpr int64_t square_pieces(int64_t count) { return (count + kSquarePiece - 1) / kSquarePiece; }

struct SquaredTensor {
  const float* data;
  int64_t count;
  int64_t first_piece;  // pieces of the tensors before
};

// All in device memory.
struct SumsOfSquares {
  const SquaredTensor* tensors;
  int64_t tensor_count;
  int64_t piece_count;  // of all
  double* pieces;       // scratch
  double* sums;         // one a tensor
};
void sums_of_squares(const LaunchStream& stream, const SumsOfSquares& args);

}  // namespace jige::cuda
