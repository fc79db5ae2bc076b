// A weight times a few rows, whose time is that of reading the weight once.
//
// Tensor cores multiply 16 rows of the weight with 8 of src. Any order of k serves, as long as both
// operands have it: so a lane loads 16 bytes at a time of a row of the weight and of a row of src,
// 8 elements side by side, and these are its elements of two products m16n8k16. A block has 16 to
// 64 rows of the weight; its warps share k in chunks, and their sums are added in the warps' order.
// The order within a sum is the same for every number of rows and every size of block.
#include "kernels/cuda/linear.h"
#include "kernels/cuda/portable.cuh"

namespace jige::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kLaneElements = 8;
constexpr int kStep = 4 * kLaneElements;  // of k: two products
constexpr int kChunkSteps = 4;
constexpr int kChunk = kChunkSteps * kStep;  // of k, side by side for a warp
constexpr int kTileRows = 16;                // of the weight, in a product
constexpr int kTokens = 8;                   // rows of src in a product

// Eight elements in bf16, aligned to 16 bytes.
__device__ uint4 load_source(const Bf16* at) { return *reinterpret_cast<const uint4*>(at); }
__device__ uint4 load_source(const float* at) {
  const float4 low = reinterpret_cast<const float4*>(at)[0];
  const float4 high = reinterpret_cast<const float4*>(at)[1];
  return make_uint4(floats_to_bf16x2(low.x, low.y), floats_to_bf16x2(low.z, low.w),
                    floats_to_bf16x2(high.x, high.y), floats_to_bf16x2(high.z, high.w));
}

// The same from `at` of a row of `count` elements on, wherever they lie; zeros behind its end.
template <typename Element>
__device__ uint4 gather(const Element* row, int at, int count) {
  unsigned pairs[4];
  for (int i = 0; i < 4; ++i) {
    const auto element = [&](int index) { return index < count ? to_float(row[index]) : 0.0f; };
    pairs[i] = floats_to_bf16x2(element(at + 2 * i), element(at + 2 * i + 1));
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// sums += the products of a step: w has rows g and g + 8 of a tile of the weight.
__device__ void multiply_step(float (&sums)[4], const uint4 (&w)[2], const uint4& x) {
  mma_bf16(sums, {w[0].x, w[1].x, w[0].y, w[1].y}, {x.x, x.y});
  mma_bf16(sums, {w[0].z, w[1].z, w[0].w, w[1].w}, {x.z, x.w});
}

// What a kernel is made for: kTiles tiles of rows of the weight in a block, kTokenTiles of src.
// kAligned: rows of both can be loaded 16 bytes at a time, and there are as many rows of the weight
// as a block has.
template <typename Source, int kTilesIn, int kTokenTilesIn, bool kAlignedIn>
struct Variant {
  using Element = Source;
  static constexpr int kTiles = kTilesIn;
  static constexpr int kTokenTiles = kTokenTilesIn;
  static constexpr bool kAligned = kAlignedIn;
  static constexpr int kRows = kTiles * kTileRows;
  // Steps whose loads are under way together.
  static constexpr int kSteps = !kAligned                         ? 1
                                : kTiles == 4                     ? 2
                                : kTiles == 2 || kTokenTiles == 2 ? 4
                                                                  : 8;
  // Of shared memory: the warps' sums, [warp][token][row].
  static constexpr int kStride = kRows + 4;
  static constexpr int kWarpSums = kTokenTiles * kTokens * kStride;
  static constexpr int64_t kSharedBytes = int64_t{kWarps} * kWarpSums * sizeof(float);
};

// The lane's part of the operands.
template <typename V>
struct Operands {
  const Bf16* weight;  // row g of the block
  const typename V::Element* src[V::kTokenTiles];
  int k;
  int rows_left;  // of the weight from row g of the block on

  __device__ const Bf16* weight_row(int tile, int half) const {
    const int row = tile * kTileRows + half * 8;
    if constexpr (V::kAligned) return weight + row * k;
    return weight + min(row, rows_left - 1) * k;
  }
};

// Where step `s` lies behind the first of kSteps.
__device__ constexpr int step_offset(int s) {
  return s / kChunkSteps * (kWarps * kChunk) + s % kChunkSteps * kStep;
}

// What a lane has of a row at `at`, zeros behind its end. kInside: that is not behind the end.
template <typename V, bool kInside>
__device__ uint4 load_weight(const Bf16* row, int at, int count) {
  if constexpr (!V::kAligned) return gather(row, at, count);
  return kInside || at < count ? load_streamed(row + at) : make_uint4(0, 0, 0, 0);
}
template <typename V, bool kInside>
__device__ uint4 load_src(const typename V::Element* row, int at, int count) {
  if constexpr (!V::kAligned) return gather(row, at, count);
  return kInside || at < count ? load_source(row + at) : make_uint4(0, 0, 0, 0);
}

// sums += kSteps steps, the first at `at` of k. kInside: none reaches behind the end.
template <typename V, bool kInside>
__device__ void add_steps(const Operands<V>& from, int at,
                          float (&sums)[V::kTiles][V::kTokenTiles][4]) {
  uint4 w[V::kSteps][V::kTiles][2];
  uint4 x[V::kSteps][V::kTokenTiles];
#pragma unroll
  for (int s = 0; s < V::kSteps; ++s) {
#pragma unroll
    for (int i = 0; i < 2 * V::kTiles; ++i) {
      w[s][i / 2][i % 2] =
          load_weight<V, kInside>(from.weight_row(i / 2, i % 2), at + step_offset(s), from.k);
    }
  }
#pragma unroll
  for (int s = 0; s < V::kSteps; ++s) {
#pragma unroll
    for (int j = 0; j < V::kTokenTiles; ++j) {
      x[s][j] = load_src<V, kInside>(from.src[j], at + step_offset(s), from.k);
    }
#pragma unroll
    for (int m = 0; m < V::kTiles; ++m) {
#pragma unroll
      for (int j = 0; j < V::kTokenTiles; ++j) multiply_step(sums[m][j], w[s][m], x[s][j]);
    }
  }
}

// The warp's chunks of the sums.
template <typename V>
__device__ void add_chunks(const Operands<V>& from, float (&sums)[V::kTiles][V::kTokenTiles][4]) {
  const int lane_at = lane_id() % 4 * kLaneElements;
  for (int step = 0;; step += V::kSteps) {
    const int at = (step / kChunkSteps * kWarps + warp_id()) * kChunk + step % kChunkSteps * kStep;
    if (at >= from.k) break;
    if (V::kAligned && at + step_offset(V::kSteps - 1) + kStep <= from.k) {
      add_steps<V, V::kAligned>(from, at + lane_at, sums);
    } else {
      add_steps<V, false>(from, at + lane_at, sums);
    }
  }
}

// Adds the warps' sums and stores them, rows [first, first + kRows) of the weight.
template <typename V>
__device__ void store_sums(const FewRowsProduct& product, int64_t first,
                           const float (&sums)[V::kTiles][V::kTokenTiles][4]) {
  auto* shared = reinterpret_cast<float*>(dynamic_shared());
  const int g = lane_id() / 4;
  const int t = lane_id() % 4;
#pragma unroll
  for (int m = 0; m < V::kTiles; ++m) {
#pragma unroll
    for (int j = 0; j < V::kTokenTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int token = j * kTokens + 2 * t + e % 2;
        const int row = m * kTileRows + e / 2 * 8 + g;
        shared[warp_id() * V::kWarpSums + token * V::kStride + row] = sums[m][j][e];
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < product.rows * V::kRows; i += kThreads) {
    const int token = i / V::kRows;
    const int row = i % V::kRows;
    if (first + row >= product.n) continue;
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      sum += shared[warp * V::kWarpSums + token * V::kStride + row];
    }
    if (product.bias) sum += product.bias[first + row];
    store_element(product.out.data, product.out.type, token * product.out.stride + first + row,
                  sum);
  }
}

template <typename V>
__global__ __launch_bounds__(kThreads, 2) void few_rows_kernel(FewRowsProduct product) {
  begin_kernel();
  int64_t first = int64_t{blockIdx.x} * V::kRows;
  // The last block does some rows once more, to the same bits.
  if (V::kAligned) first = min(first, product.n - V::kRows);
  const int g = lane_id() / 4;
  Operands<V> from;
  from.k = static_cast<int>(product.k);
  const int64_t row = min(first + g, product.n - 1);
  from.rows_left = static_cast<int>(min(product.n - row, int64_t{V::kRows}));
  from.weight = product.weight + row * product.k;
  for (int j = 0; j < V::kTokenTiles; ++j) {
    const int64_t token = min(int64_t{j * kTokens + g}, product.rows - 1);
    from.src[j] =
        static_cast<const typename V::Element*>(product.src.data) + token * product.src.stride;
  }
  float sums[V::kTiles][V::kTokenTiles][4] = {};
  add_chunks<V>(from, sums);
  store_sums<V>(product, first, sums);
}

template <typename Element, int kTiles, bool kAligned>
void launch_tiles(const LaunchStream& stream, const FewRowsProduct& product) {
  const auto launch_variant = [&]<typename V>(V) {
    launch(stream, {blocks_for(product.n, V::kRows), kThreads, V::kSharedBytes}, few_rows_kernel<V>,
           product);
  };
  if (product.rows <= kTokens) {
    launch_variant(Variant<Element, kTiles, 1, kAligned>());
  } else {
    launch_variant(Variant<Element, kTiles, 2, kAligned>());
  }
}

template <typename Element>
bool is_aligned(const FewRowsProduct& product) {
  constexpr uintptr_t kVectorBytes = 16;
  const auto src = reinterpret_cast<uintptr_t>(product.src.data);
  const auto weight = reinterpret_cast<uintptr_t>(product.weight);
  const int64_t stride = product.rows > 1 ? product.src.stride : 0;
  return src % kVectorBytes == 0 && weight % kVectorBytes == 0 &&
         stride * sizeof(Element) % kVectorBytes == 0 && product.k % kLaneElements == 0;
}

// Blocks as large as leaves every multiprocessor one or nearly so: src is read once per block.
template <typename Element>
void launch_few_rows(const LaunchStream& stream, const FewRowsProduct& product) {
  const int64_t blocks_min = (int64_t{stream.multiprocessors} * 3 + 3) / 4;
  const auto fills = [&](int tiles) {
    const int64_t rows = int64_t{tiles} * kTileRows;
    return product.n >= rows && blocks_for(product.n, rows) >= blocks_min;
  };
  if (!is_aligned<Element>(product) || product.n < kTileRows) {
    launch_tiles<Element, 1, false>(stream, product);
  } else if (fills(4)) {
    launch_tiles<Element, 4, true>(stream, product);
  } else if (fills(2)) {
    launch_tiles<Element, 2, true>(stream, product);
  } else {
    launch_tiles<Element, 1, true>(stream, product);
  }
}

}  // namespace

void multiply_few_rows(const LaunchStream& stream, const FewRowsProduct& product) {
  if (product.rows <= 0 || product.n <= 0) return;
  if (product.src.type == ElementType::kF32) {
    launch_few_rows<float>(stream, product);
  } else {
    launch_few_rows<Bf16>(stream, product);
  }
}

}  // namespace jige::cuda
