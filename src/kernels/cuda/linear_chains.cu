// Products in f32 whose every element is one chain of fused multiply-adds, the same on every
// device. A block has a square tile of the output, a thread kPerThread² elements of it; the
// operands go through shared memory, and the next part of them is under way meanwhile.
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/quant_layout.cuh"

namespace jige::cuda {
namespace {

constexpr int kChainSide = 16;  // threads along a side of the tile
constexpr int kChainThreads = kChainSide * kChainSide;
constexpr int kDepth = 16;  // of a part
constexpr int kGroup = 4;   // elements side by side, that a thread reads at once

template <int kPerThread>
struct Tile {
  static constexpr int kSize = kChainSide * kPerThread;
  static constexpr int kStride = kSize + kGroup;  // shared memory: [kDepth][kStride]
  static constexpr int kLoads = kSize * kDepth / kChainThreads;
};

// kSize lines of an operand from `begin` on, of `count`.
struct Lines {
  ConstRows rows;
  bool across;
  int64_t begin;
  int64_t count;
  __device__ float at(int64_t line, int64_t d) const {
    const int64_t element = across ? d * rows.stride + line : line * rows.stride + d;
    return load_element(rows.data, rows.type, element);
  }
};
// The same of one that is a weight of blocks.
struct QuantLines {
  QuantWeight weight;
  bool rounds;  // to bf16
  bool across;
  int64_t begin;
  int64_t count;
  __device__ float at(int64_t line, int64_t d) const {
    const float number = across ? quant_number(weight, d, line) : quant_number(weight, line, d);
    return rounds ? to_float(Bf16{float_to_bf16(number)}) : number;
  }
};

// Where element `index` of a part goes: threads of a warp read along the rows of memory.
template <int kPerThread>
__device__ void part_place(bool across, int index, int& line, int& d) {
  line = across ? index % Tile<kPerThread>::kSize : index / kDepth;
  d = across ? index / Tile<kPerThread>::kSize : index % kDepth;
}

template <int kPerThread, typename AnyLines>
__device__ void fetch(const AnyLines& lines, int64_t depth_begin, int64_t depth,
                      float (&part)[Tile<kPerThread>::kLoads]) {
  for (int i = 0; i < Tile<kPerThread>::kLoads; ++i) {
    int line, d;
    part_place<kPerThread>(lines.across, static_cast<int>(threadIdx.x) + i * kChainThreads, line,
                           d);
    const int64_t row = lines.begin + line;
    const int64_t at = depth_begin + d;
    part[i] = row < lines.count && at < depth ? lines.at(row, at) : 0.0f;
  }
}

template <int kPerThread>
__device__ void keep(bool across, const float (&part)[Tile<kPerThread>::kLoads], float* shared) {
  for (int i = 0; i < Tile<kPerThread>::kLoads; ++i) {
    int line, d;
    part_place<kPerThread>(across, static_cast<int>(threadIdx.x) + i * kChainThreads, line, d);
    shared[d * Tile<kPerThread>::kStride + line] = part[i];
  }
}

// The line of a thread's element i: groups of kGroup, the threads' side by side.
__device__ int line_of(int thread, int i) {
  return i / kGroup * kGroup * kChainSide + thread * kGroup + i % kGroup;
}

template <int kPerThread>
__device__ void load_lines(const float* shared, int thread, float (&values)[kPerThread]) {
  for (int i = 0; i < kPerThread; i += kGroup) {
    const float4 four = *reinterpret_cast<const float4*>(shared + line_of(thread, i));
    values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
  }
}

template <int kPerThread>
__device__ void multiply_add(const float* left, const float* right, int row, int column,
                             float (&sums)[kPerThread][kPerThread]) {
  float a[kPerThread], b[kPerThread];
  load_lines(left, row, a);
  load_lines(right, column, b);
  for (int i = 0; i < kPerThread; ++i) {
    for (int j = 0; j < kPerThread; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
  }
}

// Body(i, j, row, column) for the elements of this thread that are in the output.
template <int kPerThread, typename Body>
__device__ void for_own(const Product& product, int64_t first_row, int64_t first_column,
                        Body body) {
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t row = first_row + line_of(static_cast<int>(threadIdx.x) / kChainSide, i);
    for (int j = 0; j < kPerThread; ++j) {
      const int64_t column = first_column + line_of(static_cast<int>(threadIdx.x) % kChainSide, j);
      if (row < product.rows && column < product.columns) body(i, j, row, column);
    }
  }
}

// The tile of lines of the operands.
template <int kPerThread, typename Right>
__device__ void multiply_lines(const Product& product, const Lines& left, const Right& right) {
  using Part = Tile<kPerThread>;
  __align__(16) __shared__ float left_part[kDepth * Part::kStride];
  __align__(16) __shared__ float right_part[kDepth * Part::kStride];
  const int row = static_cast<int>(threadIdx.x) / kChainSide;
  const int column = static_cast<int>(threadIdx.x) % kChainSide;
  float sums[kPerThread][kPerThread] = {};
  if (product.accumulate) {
    for_own<kPerThread>(product, left.begin, right.begin, [&](int i, int j, int64_t r, int64_t c) {
      sums[i][j] = static_cast<const float*>(product.out.data)[r * product.out.stride + c];
    });
  }
  float next_left[Part::kLoads], next_right[Part::kLoads];
  fetch<kPerThread>(left, 0, product.depth, next_left);
  fetch<kPerThread>(right, 0, product.depth, next_right);
  for (int64_t begin = 0; begin < product.depth; begin += kDepth) {
    keep<kPerThread>(left.across, next_left, left_part);
    keep<kPerThread>(right.across, next_right, right_part);
    __syncthreads();
    fetch<kPerThread>(left, begin + kDepth, product.depth, next_left);
    fetch<kPerThread>(right, begin + kDepth, product.depth, next_right);
    const auto step = [&](int d) {
      multiply_add<kPerThread>(left_part + d * Part::kStride, right_part + d * Part::kStride, row,
                               column, sums);
    };
    if (begin + kDepth <= product.depth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) step(d);
    } else {  // no products with zeros: they would make a sum of -0 one of 0
      for (int d = 0; d < product.depth - begin; ++d) step(d);
    }
    __syncthreads();
  }
  const auto* bias = static_cast<const float*>(product.bias);
  for_own<kPerThread>(product, left.begin, right.begin, [&](int i, int j, int64_t r, int64_t c) {
    const float sum = bias ? sums[i][j] + bias[c] : sums[i][j];
    store_element(product.out.data, product.out.type, r * product.out.stride + c, sum);
  });
}

// That whose first element is (first_row, first_column).
template <int kPerThread>
__device__ void multiply_tile(const Product& product, int64_t first_row, int64_t first_column) {
  const Lines left = {product.left, product.left_across, first_row, product.rows};
  const Lines right = {product.right, product.right_across, first_column, product.columns};
  multiply_lines<kPerThread>(product, left, right);
}

template <int kPerThread>
__global__ __launch_bounds__(kChainThreads) void chains_kernel(Product product,
                                                               int64_t column_tiles) {
  begin_kernel();
  constexpr int kSize = Tile<kPerThread>::kSize;
  multiply_tile<kPerThread>(product, blockIdx.x / column_tiles * kSize,
                            blockIdx.x % column_tiles * kSize);
}

template <int kPerThread>
__global__ __launch_bounds__(kChainThreads) void grouped_chains_kernel(GroupedProduct grouped,
                                                                       GroupTiles tiles) {
  begin_kernel();
  constexpr int kSize = Tile<kPerThread>::kSize;
  const GroupTile tile = take_tile<kSize, kSize>(grouped, tiles);
  if (tile.given) multiply_tile<kPerThread>(tile.product, tile.row, tile.column);
}

template <int kPerThread>
__global__ __launch_bounds__(kChainThreads) void quant_chains_kernel(GroupedProduct grouped,
                                                                     GroupTiles tiles,
                                                                     QuantWeight weight,
                                                                     bool rounds) {
  begin_kernel();
  constexpr int kSize = Tile<kPerThread>::kSize;
  const GroupTile tile = take_tile<kSize, kSize>(grouped, tiles);
  if (!tile.given) return;
  weight.data += tile.group * weight.step_bytes;
  const Product& product = tile.product;
  const Lines left = {product.left, product.left_across, tile.row, product.rows};
  const QuantLines right = {weight, rounds, product.right_across, tile.column, product.columns};
  multiply_lines<kPerThread>(product, left, right);
}

// Of products by group.
constexpr int kGroupPerThread = 4;
constexpr int kGroupSize = Tile<kGroupPerThread>::kSize;

template <int kPerThread>
int64_t tiles_along(int64_t count) {
  return (count + Tile<kPerThread>::kSize - 1) / Tile<kPerThread>::kSize;
}

template <int kPerThread>
void launch_chains(const LaunchStream& stream, const Product& product) {
  const int64_t column_tiles = tiles_along<kPerThread>(product.columns);
  const int64_t blocks = tiles_along<kPerThread>(product.rows) * column_tiles;
  launch(stream, {static_cast<unsigned>(blocks), kChainThreads}, chains_kernel<kPerThread>, product,
         column_tiles);
}

}  // namespace

void multiply_in_chains(const LaunchStream& stream, const Product& product) {
  constexpr int kLarge = 8;
  constexpr int kSmall = 4;
  const int64_t blocks = tiles_along<kLarge>(product.rows) * tiles_along<kLarge>(product.columns);
  if (blocks >= stream.multiprocessors) {
    launch_chains<kLarge>(stream, product);
  } else {
    launch_chains<kSmall>(stream, product);
  }
}

void multiply_groups_in_chains(const LaunchStream& stream, const GroupedProduct& grouped) {
  const GroupTiles tiles = tiles_of(grouped, kGroupSize, kGroupSize);
  launch(stream, {static_cast<unsigned>(tiles.count()), kChainThreads},
         grouped_chains_kernel<kGroupPerThread>, grouped, tiles);
}

void multiply_groups_in_chains(const LaunchStream& stream, const GroupedProduct& grouped,
                               const QuantWeight& weight, ElementType type) {
  const GroupTiles tiles = tiles_of(grouped, kGroupSize, kGroupSize);
  launch(stream, {static_cast<unsigned>(tiles.count()), kChainThreads},
         quant_chains_kernel<kGroupPerThread>, grouped, tiles, weight, type == ElementType::kBf16);
}

}  // namespace jige::cuda
