// Copies of rows from one type to another, and sums of columns.
#include "kernels/cuda/linear.h"
#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kLinearRowsThreads = 256;
constexpr int kCopyElements = 8;  // of a thread, side by side

template <bool kVector>
__device__ void load_elements(const ConstRows& rows, int64_t at, int64_t count,
                              float (&values)[kCopyElements]) {
  if constexpr (kVector) {
    if (rows.type == ElementType::kF32) {
      const auto* from = reinterpret_cast<const float4*>(static_cast<const float*>(rows.data) + at);
      const float4 low = from[0];
      const float4 high = from[1];
      values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
      values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
      return;
    }
    const uint4 four =
        *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(rows.data) + at);
    const unsigned pairs[] = {four.x, four.y, four.z, four.w};
    for (int i = 0; i < kCopyElements; ++i) {
      const auto bits = static_cast<uint16_t>(pairs[i / 2] >> (i % 2 * 16));
      values[i] = rows.type == ElementType::kBf16 ? to_float(Bf16{bits}) : to_float(F16{bits});
    }
  } else {
    for (int i = 0; i < kCopyElements; ++i) {
      values[i] = i < count ? load_element(rows.data, rows.type, at + i) : 0.0f;
    }
  }
}

template <bool kVector>
__device__ void store_elements(const Rows& rows, int64_t at, int64_t count,
                               const float (&values)[kCopyElements]) {
  if constexpr (kVector) {
    if (rows.type == ElementType::kF32) {
      auto* to = reinterpret_cast<float4*>(static_cast<float*>(rows.data) + at);
      to[0] = make_float4(values[0], values[1], values[2], values[3]);
      to[1] = make_float4(values[4], values[5], values[6], values[7]);
      return;
    }
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(rows.data) + at) =
        make_uint4(floats_to_bf16x2(values[0], values[1]), floats_to_bf16x2(values[2], values[3]),
                   floats_to_bf16x2(values[4], values[5]), floats_to_bf16x2(values[6], values[7]));
  } else {
    for (int i = 0; i < kCopyElements && i < count; ++i) {
      store_element(rows.data, rows.type, at + i, values[i]);
    }
  }
}

// row_threads of a block share a row.
template <bool kVector>
__global__ void __launch_bounds__(kLinearRowsThreads)
    copy_rows_kernel(RowsCopy copy, int row_threads) {
  begin_kernel();
  const int block_rows = kLinearRowsThreads / row_threads;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t column = (int64_t{blockIdx.x} * row_threads + thread % row_threads) * kCopyElements;
  if (column >= copy.columns) return;
  const int64_t count = copy.columns - column;
  const int64_t step = int64_t{gridDim.y} * block_rows;
  for (int64_t row = int64_t{blockIdx.y} * block_rows + thread / row_threads; row < copy.rows;
       row += step) {
    float values[kCopyElements];
    load_elements<kVector>(copy.src, row * copy.src.stride + column, count, values);
    const int64_t at = row * copy.dst.stride + column;
    if (copy.accumulate) {
      float old[kCopyElements];
      load_elements<kVector>({copy.dst.data, copy.dst.type, copy.dst.stride}, at, count, old);
      for (int i = 0; i < kCopyElements; ++i) values[i] += old[i];
    }
    store_elements<kVector>(copy.dst, at, count, values);
  }
}

// A block turns a square.
constexpr int kTurnSide = 32;
__global__ void __launch_bounds__(kLinearRowsThreads)
    copy_turned_kernel(RowsCopy copy, int64_t along) {
  begin_kernel();
  __shared__ float square[kTurnSide][kTurnSide + 1];
  const int64_t first_row = blockIdx.x / along * kTurnSide;
  const int64_t first_column = blockIdx.x % along * kTurnSide;
  for (int i = warp_id(); i < kTurnSide; i += kLinearRowsThreads / kWarp) {
    const int64_t row = first_row + i;
    const int64_t column = first_column + lane_id();
    if (row >= copy.rows || column >= copy.columns) continue;
    square[i][lane_id()] =
        load_element(copy.src.data, copy.src.type, row * copy.src.stride + column);
  }
  __syncthreads();
  for (int i = warp_id(); i < kTurnSide; i += kLinearRowsThreads / kWarp) {
    const int64_t column = first_column + i;
    const int64_t row = first_row + lane_id();
    if (row >= copy.rows || column >= copy.columns) continue;
    store_element(copy.dst.data, copy.dst.type, column * copy.dst.stride + row,
                  square[lane_id()][i]);
  }
}

// Sums of columns: a block sums kPieceRows rows of kBlockColumns columns, then pieces are added.
constexpr int kPieceRows = 128;
constexpr int kColumnSumLaneColumns = 2;
constexpr int kBlockColumns = kColumnSumLaneColumns * kWarp;
constexpr int kColumnSumWarps = kLinearRowsThreads / kWarp;

// Threads [0, kBlockColumns) get a sum of the piece each.
__device__ float piece_sum(const ConstRows& src, int64_t first_row, int64_t rows,
                           int64_t first_column, int64_t columns) {
  __shared__ float shared[kColumnSumWarps][kBlockColumns];
  float sums[kColumnSumLaneColumns] = {};
#pragma unroll 4
  for (int i = 0; i < kPieceRows / kColumnSumWarps; ++i) {
    const int64_t row = first_row + i * kColumnSumWarps + warp_id();
    for (int c = 0; c < kColumnSumLaneColumns; ++c) {
      const int64_t column = first_column + c * kWarp + lane_id();
      if (row < rows && column < columns) {
        sums[c] += load_element(src.data, src.type, row * src.stride + column);
      }
    }
  }
  for (int c = 0; c < kColumnSumLaneColumns; ++c)
    shared[warp_id()][c * kWarp + lane_id()] = sums[c];
  __syncthreads();
  float sum = 0.0f;
  if (threadIdx.x < kBlockColumns) {
    for (int warp = 0; warp < kColumnSumWarps; ++warp) sum += shared[warp][threadIdx.x];
  }
  return sum;
}

// partial[piece][column]; where there is one piece, added to sums.
__global__ void __launch_bounds__(kLinearRowsThreads)
    column_sums_kernel(float* sums, float* partial, ConstRows src, int64_t rows, int64_t columns,
                       int64_t pieces) {
  begin_kernel();
  const int64_t piece = blockIdx.x % pieces;
  const int64_t first_column = blockIdx.x / pieces * kBlockColumns;
  const float sum = piece_sum(src, piece * kPieceRows, rows, first_column, columns);
  const int64_t column = first_column + threadIdx.x;
  if (threadIdx.x >= kBlockColumns || column >= columns) return;
  if (pieces == 1) {
    sums[column] += sum;
  } else {
    partial[piece * columns + column] = sum;
  }
}

__global__ void __launch_bounds__(kWarp)
    add_pieces_kernel(float* sums, const float* partial, int64_t columns, int64_t pieces) {
  begin_kernel();
  const int64_t column = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  if (column >= columns) return;
  float sum = sums[column];
#pragma unroll 8
  for (int64_t piece = 0; piece < pieces; ++piece) sum += partial[piece * columns + column];
  sums[column] = sum;
}

int64_t pieces_of(int64_t rows) { return (rows + kPieceRows - 1) / kPieceRows; }

}  // namespace

void copy_rows(const LaunchStream& stream, const RowsCopy& copy) {
  if (copy.rows <= 0 || copy.columns <= 0) return;
  constexpr unsigned kGridRowsMax = 65535;
  RowsCopy flat = copy;
  if (copy.dst.stride == copy.columns && copy.src.stride == copy.columns) {
    flat.columns = flat.dst.stride = flat.src.stride = copy.rows * copy.columns;
    flat.rows = 1;
  }
  int row_threads = kLinearRowsThreads;
  while (row_threads > 1 && (row_threads / 2) * kCopyElements >= flat.columns) row_threads /= 2;
  const unsigned grid_rows = static_cast<unsigned>(
      min(int64_t{kGridRowsMax}, int64_t{blocks_for(flat.rows, kLinearRowsThreads / row_threads)}));
  const LaunchShape shape = {
      {blocks_for(flat.columns, int64_t{row_threads} * kCopyElements), grid_rows},
      kLinearRowsThreads};
  const bool vector = flat.columns % kCopyElements == 0 && aligned(flat.rows, flat.dst, flat.src);
  launch(stream, shape, vector ? copy_rows_kernel<true> : copy_rows_kernel<false>, flat,
         row_threads);
}

void copy_turned(const LaunchStream& stream, const RowsCopy& copy) {
  const int64_t along = blocks_for(copy.columns, kTurnSide);
  const auto blocks = static_cast<unsigned>(along * blocks_for(copy.rows, kTurnSide));
  launch(stream, {blocks, kLinearRowsThreads}, copy_turned_kernel, copy, along);
}

int64_t column_sums_bytes(int64_t rows, int64_t columns) {
  return pieces_of(rows) * columns * static_cast<int64_t>(sizeof(float));
}

void add_column_sums(const LaunchStream& stream, float* sums, const cpu::ConstRows& src,
                     int64_t rows, int64_t columns, void* scratch) {
  const int64_t pieces = pieces_of(rows);
  if (pieces == 0) return;
  const int64_t blocks = blocks_for(columns, kBlockColumns) * pieces;
  launch(stream, {static_cast<unsigned>(blocks), kLinearRowsThreads}, column_sums_kernel, sums,
         static_cast<float*>(scratch), src, rows, columns, pieces);
  if (pieces == 1) return;
  launch(stream, {blocks_for(columns, kWarp), kWarp}, add_pieces_kernel, sums,
         static_cast<const float*>(scratch), columns, pieces);
}

}  // namespace jige::cuda
