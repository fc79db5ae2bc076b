// Products by group on tensor cores (linear_groups.cu, quant_groups.cu): a block's parts of the
// operands in shared memory, and what its warps make of them.
//
// A line of a part, or a row of it where the operand lies across, is followed by 16 bytes, so that
// matrices are read from all banks. Warps share the tile of the output, and each its 16 by 8
// products; a sum goes through the depth in ascending order, whatever the tile's size.
// Threads: device code.
#pragma once

#include "kernels/cuda/groups.cuh"

namespace jige::cuda {

constexpr int kGroupThreads = 256;
constexpr int kGroupWarpsAlong = 4;  // and two down
constexpr int kGroupDepth = 64;      // of a part
constexpr int kGroupStages = 3;      // parts whose copies are under way or in use
constexpr int kGroupColumns = 128;   // of a tile
constexpr int kGroupWarpColumns = kGroupColumns / kGroupWarpsAlong;
constexpr int kGroupChunk = 8;  // elements that a copy brings

// Lines of an operand in shared memory: [line][depth], or across [depth][line].
template <int kLines, bool kAcross>
struct GroupPart {
  static constexpr int kRows = kAcross ? kGroupDepth : kLines;
  static constexpr int kLength = kAcross ? kLines : kGroupDepth;
  static constexpr int kStride = kLength + kGroupChunk;
  static constexpr int kElements = kRows * kStride;
};

// Of tiles of kRows rows what a warp has, and the parts: the V of what follows.
template <int kRowsIn, bool kLeftAcrossIn, bool kRightAcrossIn>
struct GroupShape {
  static constexpr int kRows = kRowsIn;
  static constexpr int kWarpRows = kRows / 2;
  static constexpr int kM = kWarpRows / 16;
  static constexpr int kN = kGroupWarpColumns / 8;
  static constexpr bool kLeftAcross = kLeftAcrossIn;
  static constexpr bool kRightAcross = kRightAcrossIn;
  using Left = GroupPart<kRows, kLeftAcross>;
  using Right = GroupPart<kGroupColumns, kRightAcross>;
};

// Where a thread's copies come from: lines [first, count) of an operand.
struct GroupSource {
  const Bf16* data;
  int64_t stride, first, count, depth;
};

// Starts copies of a part from `depth_begin` on; zeros stand for what is not there.
template <int kLines, bool kAcross>
__device__ void fetch_group_part(const GroupSource& from, int64_t depth_begin, Bf16* part) {
  using P = GroupPart<kLines, kAcross>;
  constexpr int kChunks = P::kLength / kGroupChunk;
  constexpr int kCopies = P::kRows * kChunks;
  static_assert(kCopies % kGroupThreads == 0 && kGroupThreads % kChunks == 0);
  const int first_row = static_cast<int>(threadIdx.x) / kChunks;
  const int column = static_cast<int>(threadIdx.x) % kChunks * kGroupChunk;
  const int64_t rows = kAcross ? from.depth - depth_begin : from.count - from.first;
  const int64_t columns = kAcross ? from.count - from.first : from.depth - depth_begin;
  const Bf16* data = kAcross ? from.data + depth_begin * from.stride + from.first
                             : from.data + from.first * from.stride + depth_begin;
#pragma unroll
  for (int i = 0; i < kCopies / kGroupThreads; ++i) {
    const int row = first_row + i * (kGroupThreads / kChunks);
    const bool valid = row < rows && column < columns;
    copy_async_16(part + row * P::kStride + column,
                  valid ? data + row * from.stride + column : from.data, valid);
  }
}

// Matrices of 16 rows at `line` and 16 columns at `depth` of the left operand.
template <typename P, bool kAcross>
__device__ void load_group_left(uint32_t (&r)[4], const Bf16* part, int line, int depth) {
  const int lane = lane_id();
  if constexpr (kAcross) {
    load_matrices_x4_transposed(
        r, part + (depth + lane / 16 * 8 + lane % 8) * P::kStride + line + lane / 8 % 2 * 8);
  } else {
    load_matrices_x4(r, part + (line + lane % 16) * P::kStride + depth + lane / 16 * 8);
  }
}
// Of the right one, two products' columns at `line`.
template <typename P, bool kAcross>
__device__ void load_group_right(uint32_t (&r)[4], const Bf16* part, int line, int depth) {
  const int lane = lane_id();
  if constexpr (kAcross) {
    load_matrices_x4_transposed(r, part + (depth + lane % 16) * P::kStride + line + lane / 16 * 8);
  } else {
    load_matrices_x4(
        r, part + (line + lane / 16 * 8 + lane % 8) * P::kStride + depth + lane / 8 % 2 * 8);
  }
}

template <typename V>
__device__ void multiply_group_part(const Bf16* left, const Bf16* right,
                                    float (&sums)[V::kM][V::kN][4]) {
  const int row = warp_id() / kGroupWarpsAlong * V::kWarpRows;
  const int column = warp_id() % kGroupWarpsAlong * kGroupWarpColumns;
#pragma unroll
  for (int depth = 0; depth < kGroupDepth; depth += 16) {
    uint32_t a[V::kM][4];
#pragma unroll
    for (int m = 0; m < V::kM; ++m) {
      load_group_left<typename V::Left, V::kLeftAcross>(a[m], left, row + m * 16, depth);
    }
#pragma unroll
    for (int n = 0; n < V::kN; n += 2) {
      uint32_t b[4];
      load_group_right<typename V::Right, V::kRightAcross>(b, right, column + n * 8, depth);
      const uint32_t first[2] = {b[0], b[1]};
      const uint32_t second[2] = {b[2], b[3]};
#pragma unroll
      for (int m = 0; m < V::kM; ++m) {
        mma_bf16(sums[m][n], a[m], first);
        mma_bf16(sums[m][n + 1], a[m], second);
      }
    }
  }
}

// Two neighbouring sums to where they belong.
__device__ inline void store_group_pair(const Product& product, int64_t row, int64_t column,
                                        float low, float high) {
  if (row >= product.rows || column >= product.columns) return;
  const int64_t at = row * product.out.stride + column;
  if (product.out.type == ElementType::kBf16) {
    *reinterpret_cast<uint32_t*>(static_cast<Bf16*>(product.out.data) + at) =
        floats_to_bf16x2(low, high);
    return;
  }
  auto* to = reinterpret_cast<float2*>(static_cast<float*>(product.out.data) + at);
  if (product.accumulate) {
    const float2 old = *to;
    low += old.x;
    high += old.y;
  }
  *to = make_float2(low, high);
}

template <typename V>
__device__ void store_group_sums(const Product& product, int64_t row, int64_t column,
                                 const float (&sums)[V::kM][V::kN][4]) {
  row += warp_id() / kGroupWarpsAlong * V::kWarpRows + lane_id() / 4;
  column += warp_id() % kGroupWarpsAlong * kGroupWarpColumns + lane_id() % 4 * 2;
#pragma unroll
  for (int m = 0; m < V::kM; ++m) {
#pragma unroll
    for (int n = 0; n < V::kN; ++n) {
      const float(&own)[4] = sums[m][n];
      store_group_pair(product, row + m * 16, column + n * 8, own[0], own[1]);
      store_group_pair(product, row + m * 16 + 8, column + n * 8, own[2], own[3]);
    }
  }
}

inline bool takes_group_operand(const ConstRows& rows, bool across, int64_t lines, int64_t depth) {
  return rows.type == ElementType::kBf16 && aligned(rows.data) && rows.stride % kGroupChunk == 0 &&
         (across ? lines : depth) % kGroupChunk == 0;
}

// Tiles about as high as groups have rows on average.
template <typename Launch>
void with_group_rows(const GroupedProduct& grouped, Launch launch) {
  const int64_t rows = grouped.product.rows / grouped.groups;
  if (rows >= 96) {
    launch.template operator()<128>();
  } else if (rows >= 32) {
    launch.template operator()<64>();
  } else {
    launch.template operator()<32>();
  }
}

}  // namespace jige::cuda
