// Products by group on tensor cores (groups.h).
//
// A block has a tile of one group's output. Parts of the operands, kDepth deep, come into shared
// memory by asynchronous copies, kStages of them under way or in use; a line of a part, or a row of
// it where the operand lies across, is followed by 16 bytes, so that matrices are read from all
// banks. Warps share the tile, and each its 16 by 8 products; a sum goes through the depth in
// ascending order, whatever the tile's size.
#include "kernels/cuda/groups.cuh"

namespace jige::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpsAlong = 4;  // and two down
constexpr int kDepth = 64;
constexpr int kStages = 3;
constexpr int kColumns = 128;
constexpr int kWarpColumns = kColumns / kWarpsAlong;
constexpr int kChunk = 8;  // elements that a copy brings

// Lines of an operand in shared memory: [line][depth], or across [depth][line].
template <int kLines, bool kAcross>
struct Part {
  static constexpr int kRows = kAcross ? kDepth : kLines;
  static constexpr int kLength = kAcross ? kLines : kDepth;
  static constexpr int kStride = kLength + kChunk;
  static constexpr int kElements = kRows * kStride;
};

template <int kRowsIn, bool kLeftAcrossIn, bool kRightAcrossIn>
struct Variant {
  static constexpr int kRows = kRowsIn;
  static constexpr int kWarpRows = kRows / 2;
  static constexpr int kM = kWarpRows / 16;
  static constexpr int kN = kWarpColumns / 8;
  using Left = Part<kRows, kLeftAcrossIn>;
  using Right = Part<kColumns, kRightAcrossIn>;
  static constexpr bool kLeftAcross = kLeftAcrossIn;
  static constexpr bool kRightAcross = kRightAcrossIn;
  static constexpr int kStageElements = Left::kElements + Right::kElements;
  static constexpr int64_t kBytes = int64_t{kStages} * kStageElements * int64_t{sizeof(Bf16)};
};

// Where a thread's copies come from: lines [first, count) of an operand.
struct Source {
  const Bf16* data;
  int64_t stride, first, count, depth;
};

// Starts copies of a part from `depth_begin` on; zeros stand for what is not there.
template <int kLines, bool kAcross>
__device__ void fetch(const Source& from, int64_t depth_begin, Bf16* part) {
  using P = Part<kLines, kAcross>;
  constexpr int kChunks = P::kLength / kChunk;
  constexpr int kCopies = P::kRows * kChunks;
  static_assert(kCopies % kThreads == 0 && kThreads % kChunks == 0);
  const int first_row = static_cast<int>(threadIdx.x) / kChunks;
  const int column = static_cast<int>(threadIdx.x) % kChunks * kChunk;
  const int64_t rows = kAcross ? from.depth - depth_begin : from.count - from.first;
  const int64_t columns = kAcross ? from.count - from.first : from.depth - depth_begin;
  const Bf16* data = kAcross ? from.data + depth_begin * from.stride + from.first
                             : from.data + from.first * from.stride + depth_begin;
#pragma unroll
  for (int i = 0; i < kCopies / kThreads; ++i) {
    const int row = first_row + i * (kThreads / kChunks);
    const bool valid = row < rows && column < columns;
    copy_async_16(part + row * P::kStride + column,
                  valid ? data + row * from.stride + column : from.data, valid);
  }
}

// Matrices of 16 rows at `line` and 16 columns at `depth` of the left operand.
template <typename P, bool kAcross>
__device__ void load_left(uint32_t (&r)[4], const Bf16* part, int line, int depth) {
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
__device__ void load_right(uint32_t (&r)[4], const Bf16* part, int line, int depth) {
  const int lane = lane_id();
  if constexpr (kAcross) {
    load_matrices_x4_transposed(r, part + (depth + lane % 16) * P::kStride + line + lane / 16 * 8);
  } else {
    load_matrices_x4(
        r, part + (line + lane / 16 * 8 + lane % 8) * P::kStride + depth + lane / 8 % 2 * 8);
  }
}

template <typename V>
__device__ void multiply_part(const Bf16* left, const Bf16* right, float (&sums)[V::kM][V::kN][4]) {
  const int row = warp_id() / kWarpsAlong * V::kWarpRows;
  const int column = warp_id() % kWarpsAlong * kWarpColumns;
#pragma unroll
  for (int depth = 0; depth < kDepth; depth += 16) {
    uint32_t a[V::kM][4];
#pragma unroll
    for (int m = 0; m < V::kM; ++m) {
      load_left<typename V::Left, V::kLeftAcross>(a[m], left, row + m * 16, depth);
    }
#pragma unroll
    for (int n = 0; n < V::kN; n += 2) {
      uint32_t b[4];
      load_right<typename V::Right, V::kRightAcross>(b, right, column + n * 8, depth);
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
__device__ void store_pair(const Product& product, int64_t row, int64_t column, float low,
                           float high) {
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
__device__ void store_sums(const Product& product, int64_t row, int64_t column,
                           const float (&sums)[V::kM][V::kN][4]) {
  row += warp_id() / kWarpsAlong * V::kWarpRows + lane_id() / 4;
  column += warp_id() % kWarpsAlong * kWarpColumns + lane_id() % 4 * 2;
#pragma unroll
  for (int m = 0; m < V::kM; ++m) {
#pragma unroll
    for (int n = 0; n < V::kN; ++n) {
      const float(&own)[4] = sums[m][n];
      store_pair(product, row + m * 16, column + n * 8, own[0], own[1]);
      store_pair(product, row + m * 16 + 8, column + n * 8, own[2], own[3]);
    }
  }
}

template <typename V>
__global__ __launch_bounds__(kThreads, 2) void groups_kernel(GroupedProduct grouped,
                                                             GroupTiles tiles) {
  begin_kernel();
  const GroupTile tile = take_tile<V::kRows, kColumns>(grouped, tiles);
  if (!tile.given) return;
  const Product& product = tile.product;
  const Source left = {static_cast<const Bf16*>(product.left.data), product.left.stride, tile.row,
                       product.rows, product.depth};
  const Source right = {static_cast<const Bf16*>(product.right.data), product.right.stride,
                        tile.column, product.columns, product.depth};
  auto* const memory = reinterpret_cast<Bf16*>(dynamic_shared());
  const auto fetch_part = [&](int part) {
    Bf16* const stage = memory + part % kStages * V::kStageElements;
    fetch<V::kRows, V::kLeftAcross>(left, int64_t{part} * kDepth, stage);
    fetch<kColumns, V::kRightAcross>(right, int64_t{part} * kDepth, stage + V::Left::kElements);
  };
  const int parts = static_cast<int>(ceil_div(product.depth, kDepth));
  float sums[V::kM][V::kN][4] = {};
#pragma unroll
  for (int part = 0; part < kStages - 1; ++part) {
    if (part < parts) fetch_part(part);
    copy_async_commit();
  }
  for (int part = 0; part < parts; ++part) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // all have the part, and are done with the one before
    if (part + kStages - 1 < parts) fetch_part(part + kStages - 1);
    copy_async_commit();
    const Bf16* const stage = memory + part % kStages * V::kStageElements;
    multiply_part<V>(stage, stage + V::Left::kElements, sums);
  }
  store_sums<V>(product, tile.row, tile.column, sums);
}

template <int kRows, bool kLeftAcross, bool kRightAcross>
void launch_groups(const LaunchStream& stream, const GroupedProduct& grouped) {
  using V = Variant<kRows, kLeftAcross, kRightAcross>;
  if constexpr (kRows > 64) {
    if (V::kBytes > shared_bytes_max()) {
      return launch_groups<64, kLeftAcross, kRightAcross>(stream, grouped);
    }
  }
  const GroupTiles tiles = tiles_of(grouped, kRows, kColumns);
  launch(stream, {static_cast<unsigned>(tiles.count()), kThreads, V::kBytes}, groups_kernel<V>,
         grouped, tiles);
}

template <bool kRightAcross>
void launch_rows(const LaunchStream& stream, const GroupedProduct& grouped) {
  // Tiles about as high as groups are on average.
  const int64_t rows = grouped.product.rows / grouped.groups;
  if (rows >= 96) {
    launch_groups<128, false, kRightAcross>(stream, grouped);
  } else if (rows >= 32) {
    launch_groups<64, false, kRightAcross>(stream, grouped);
  } else {
    launch_groups<32, false, kRightAcross>(stream, grouped);
  }
}

bool takes_operand(const ConstRows& rows, bool across, int64_t lines, int64_t depth) {
  return rows.type == ElementType::kBf16 && aligned(rows.data) && rows.stride % kChunk == 0 &&
         (across ? lines : depth) % kChunk == 0;
}

}  // namespace

bool groups_take_tensor_cores(const GroupedProduct& grouped) {
  const Product& p = grouped.product;
  constexpr int64_t kPair = 2;
  const bool out = grouped.outs || aligned(p.out.data);
  return takes_operand(p.left, p.left_across, p.rows, p.depth) &&
         takes_operand(p.right, p.right_across, p.columns, p.depth) &&
         grouped.right_stride % kChunk == 0 && out && p.out.stride % kPair == 0 &&
         p.columns % kPair == 0;
}

void multiply_groups(const LaunchStream& stream, const GroupedProduct& grouped) {
  if (grouped.outs && grouped.product.rows > 64) {
    launch_groups<128, true, true>(stream, grouped);
  } else if (grouped.outs) {
    launch_groups<64, true, true>(stream, grouped);
  } else if (grouped.product.right_across) {
    launch_rows<true>(stream, grouped);
  } else {
    launch_rows<false>(stream, grouped);
  }
}

}  // namespace jige::cuda
