// A weight times a few rows, whose time is that of reading the weight once.
//
// Tensor cores multiply 16 rows of the weight with 8 of src. Any order of k serves, as long as both
// operands have it: so a lane takes 16 bytes at a time of a row of the weight and of a row of src,
// 8 elements side by side, and these are its elements of two products m16n8k16. They come by
// asynchronous copies, each lane's into shared memory of its own, so that loads are always under
// way and nobody waits for another. A block has 16 to 64 rows of the weight; its warps share k in
// chunks, and their sums are added in the warps' order. The order within a sum is the same for
// every number of rows and every size of block.
#include "kernels/cuda/few_rows.cuh"

namespace jige::cuda {
namespace {

constexpr int kFewStep = 4 * kLaneElements;  // of k: two products
constexpr int kChunkSteps = 4;
constexpr int kFewChunk = kChunkSteps * kFewStep;  // of k, side by side for a warp

// What a kernel is made for: kTiles tiles of rows of the weight in a block, kTokenTiles of src.
// kAligned: rows of both can be loaded 16 bytes at a time, and there are as many rows of the weight
// as a block has. kGated: half of the tiles are those of the gate. kNormed: every block normalises
// src, in f32, while its copies are under way. kGrouped: blocks (…, r) have the group whose first
// row is r, if there is one, or where there are heads head r.
template <typename Source, int kTilesIn, int kTokenTilesIn, bool kAlignedIn, bool kGatedIn,
          bool kNormedIn = false, bool kGroupedIn = false>
struct FewRowsVariant {
  using Element = Source;
  static constexpr int kTiles = kTilesIn;
  static constexpr int kTokenTiles = kTokenTilesIn;
  static constexpr bool kAligned = kAlignedIn;
  static constexpr bool kGated = kGatedIn;
  static constexpr bool kNormed = kNormedIn;
  static constexpr bool kGrouped = kGroupedIn;
  static constexpr int kRows = kTiles * kTileRows;
  static constexpr int kOutputs = kGated ? kRows / 2 : kRows;  // of a block, in a row of out
  // Copies of a lane for a step, and steps whose copies have memory.
  static constexpr int kSourceSlots = kNormed ? 0 : static_cast<int>(sizeof(Source)) / 2;
  static constexpr int kSlots = 2 * kTiles + kTokenTiles * kSourceSlots;
  // So that a large multiprocessor has two blocks, and a small one (99 KiB) one, but of four tiles.
  static constexpr int kSlotsMax = kTiles == 4 ? 27 : kNormed ? 20 : 24;
  static constexpr int kStages = kSlotsMax / kSlots < 8 ? kSlotsMax / kSlots : 8;
  static constexpr int kRingBytes = kStages * kSlots * kWarp * kCopyBytes;  // of a warp
  // The warps' sums take the place of their copies: [token][row].
  static constexpr int kStride = kRows + 4;
  static constexpr int kSumsBytes = kTokenTiles * kTileTokens * kStride * int{sizeof(float)};
  static constexpr int kWarpBytes = kAligned && kRingBytes > kSumsBytes ? kRingBytes : kSumsBytes;
  static constexpr int kOutputsOfThread =
      (kTokenTiles * kTileTokens * kOutputs + kFewThreads - 1) / kFewThreads;
};

// The lane's part of the operands.
template <typename V>
struct FewRowsOperands {
  const Bf16* weight;  // row g of the block
  const Bf16* up;      // with a gate, row g of those that are gated
  const typename V::Element* src[V::kTokenTiles];
  int k;
  int rows_left;  // of the weight from row g of the block on

  __device__ FewRowsOperands(const FewRowsProduct& product, int64_t first)
      : k(static_cast<int>(product.k)) {
    const int g = lane_id() / 4;
    const int64_t row = min(first + g, product.n - 1);
    rows_left = static_cast<int>(min(product.n - row, int64_t{V::kRows}));
    weight = product.weight + row * product.k;
    up = weight + product.n * product.k;
    for (int j = 0; j < V::kTokenTiles; ++j) {
      int64_t token = min(int64_t{j * kTileTokens + g}, product.rows - 1);
      if constexpr (V::kGrouped) token = source_row(product.groups, token);
      src[j] =
          static_cast<const typename V::Element*>(product.src.data) + token * product.src.stride;
    }
  }
  __device__ const Bf16* weight_row(int tile, int half) const {
    if constexpr (V::kGated) {
      constexpr int kHalf = V::kTiles / 2;
      return (tile < kHalf ? weight : up) + (tile % kHalf * kTileRows + half * 8) * k;
    }
    const int row = tile * kTileRows + half * 8;
    return weight + (V::kAligned ? row : min(row, rows_left - 1)) * k;
  }
};

// Steps of this warp, and where one of them lies in k.
__device__ int count_steps(int k) {
  const int chunks = ((k + kFewChunk - 1) / kFewChunk - warp_id() + kFewWarps - 1) / kFewWarps;
  if (chunks <= 0) return 0;
  const int last = ((chunks - 1) * kFewWarps + warp_id()) * kFewChunk;
  return (chunks - 1) * kChunkSteps + min((k - last + kFewStep - 1) / kFewStep, kChunkSteps);
}
__device__ int step_at(int step) {
  return (step / kChunkSteps * kFewWarps + warp_id()) * kFewChunk + step % kChunkSteps * kFewStep;
}

__device__ uint4 to_bf16(const uint4& low, const uint4& high) {
  const auto pair = [](unsigned a, unsigned b) {
    return floats_to_bf16x2(bits_to_float(a), bits_to_float(b));
  };
  return make_uint4(pair(low.x, low.y), pair(low.z, low.w), pair(high.x, high.y),
                    pair(high.z, high.w));
}

// Copies under way of a warp.
template <typename V>
struct FewRowsRing : LaneSlots<V> {
  using Element = typename V::Element;
  using LaneSlots<V>::slot;

  // Sends for what a step multiplies; zeros stand for what is behind the end of k.
  __device__ void fetch(const FewRowsOperands<V>& from, int stage, int step) const {
    const int at = step_at(step) + lane_id() % 4 * kLaneElements;
    const bool inside = at < from.k;
    const int offset = inside ? at : 0;
#pragma unroll
    for (int i = 0; i < 2 * V::kTiles; ++i) {
      copy_async_16(slot(stage, i), from.weight_row(i / 2, i % 2) + offset, inside);
    }
    if constexpr (!V::kNormed) fetch_source(from, stage, offset, inside);
  }
  __device__ void fetch_source(const FewRowsOperands<V>& from, int stage, int offset,
                               bool inside) const {
#pragma unroll
    for (int i = 0; i < V::kTokenTiles * V::kSourceSlots; ++i) {
      constexpr int kElements = kCopyBytes / static_cast<int>(sizeof(Element));
      const Element* row = from.src[i / V::kSourceSlots];
      copy_async_16(slot(stage, 2 * V::kTiles + i), row + offset + i % V::kSourceSlots * kElements,
                    inside);
    }
  }
  __device__ uint4 source(int stage, int j) const {
    const int first = 2 * V::kTiles + j * V::kSourceSlots;
    if constexpr (V::kSourceSlots == 1) return *slot(stage, first);
    return to_bf16(*slot(stage, first), *slot(stage, first + V::kSourceSlots - 1));
  }
};

// What a lane multiplies of them at a step.
template <typename V>
__device__ uint4 normed_source(const FewRowsProduct& product, int step) {
  const int at = step_at(step) + lane_id() % 4 * kLaneElements;
  if (at >= product.k) return make_uint4(0, 0, 0, 0);
  const int row = min(lane_id() / 4, static_cast<int>(product.rows) - 1);
  return *reinterpret_cast<const uint4*>(normed_rows<V>() + row * normed_stride(product) + at);
}

// The warp's share of the sums.
template <typename V>
__device__ void add_steps(const FewRowsProduct& product, const FewRowsOperands<V>& from,
                          unsigned char* warp_memory, float (&sums)[V::kTiles][V::kTokenTiles][4]) {
  const FewRowsRing<V> ring = {{warp_memory + lane_id() * kCopyBytes}};
  const int steps = count_steps(from.k);
#pragma unroll
  for (int i = 0; i < V::kStages - 1; ++i) {
    if (i < steps) ring.fetch(from, i, i);
    copy_async_commit();
  }
  if constexpr (V::kNormed) norm_rows<V>(product);
  int stage = 0;
  int free = V::kStages - 1;  // whose step is done with
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<V::kStages - 2>();
    if (step + V::kStages - 1 < steps) ring.fetch(from, free, step + V::kStages - 1);
    copy_async_commit();
    uint4 x[V::kTokenTiles];
#pragma unroll
    for (int j = 0; j < V::kTokenTiles; ++j) {
      if constexpr (V::kNormed) {
        x[j] = normed_source<V>(product, step);
      } else {
        x[j] = ring.source(stage, j);
      }
    }
#pragma unroll
    for (int m = 0; m < V::kTiles; ++m) {
      const uint4 w[2] = {*ring.slot(stage, 2 * m), *ring.slot(stage, 2 * m + 1)};
#pragma unroll
      for (int j = 0; j < V::kTokenTiles; ++j) multiply_step(sums[m][j], w, x[j]);
    }
    free = stage;
    stage = stage + 1 == V::kStages ? 0 : stage + 1;
  }
}

// Eight elements in bf16 from `at` of a row of `count` elements on, wherever they lie; zeros behind
// its end.
template <typename Element>
__device__ uint4 gather(const Element* row, int at, int count) {
  unsigned pairs[4];
  for (int i = 0; i < 4; ++i) {
    const auto element = [&](int index) { return index < count ? to_float(row[index]) : 0.0f; };
    pairs[i] = floats_to_bf16x2(element(at + 2 * i), element(at + 2 * i + 1));
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// The same where 16 bytes cannot be loaded at a time.
template <typename V>
__device__ void add_gathered(const FewRowsOperands<V>& from,
                             float (&sums)[V::kTiles][V::kTokenTiles][4]) {
  const int steps = count_steps(from.k);
  for (int step = 0; step < steps; ++step) {
    const int at = step_at(step) + lane_id() % 4 * kLaneElements;
    for (int m = 0; m < V::kTiles; ++m) {
      const uint4 w[2] = {gather(from.weight_row(m, 0), at, from.k),
                          gather(from.weight_row(m, 1), at, from.k)};
      for (int j = 0; j < V::kTokenTiles; ++j) {
        multiply_step(sums[m][j], w, gather(from.src[j], at, from.k));
      }
    }
  }
}

// Rows of the weight as far as they are read first, while the kernel before may still run.
template <typename V>
__device__ void prefetch_weight(const FewRowsProduct& product, int64_t first) {
  constexpr int kBytes = 64 << 10;  // of a block, or what its warps read first
  constexpr int kShare = kBytes / V::kRows / int{sizeof(Bf16)};
  constexpr int64_t kColumns = kShare > kFewWarps * kFewChunk ? kShare : kFewWarps * kFewChunk;
  constexpr int kRowsOfWarp = V::kRows / kFewWarps;  // a lane each: one after the other
  if (lane_id() >= kRowsOfWarp) return;
  const int row = warp_id() * kRowsOfWarp + lane_id();
  const int64_t at = row < V::kOutputs ? first + row : product.n + first + row - V::kOutputs;
  prefetch_to_cache(product.weight + at * product.k,
                    static_cast<int>(min(product.k, kColumns)) * int{sizeof(Bf16)});
}

template <typename V>
__global__ __launch_bounds__(kFewThreads, 2) void few_rows_kernel(FewRowsProduct product) {
  int64_t first = int64_t{blockIdx.x} * V::kOutputs;
  if constexpr (V::kGrouped) {
    if (product.heads.count > 0) take_head(product);
  }
  // The last block does some rows once more, to the same bits.
  if constexpr (V::kAligned) {
    first = min(first, product.n - V::kOutputs);
    if (!V::kGrouped || product.heads.count > 0) prefetch_weight<V>(product, first);
  }
  begin_kernel();
  if constexpr (V::kGrouped) {
    if (product.heads.count == 0) {
      const int group = take_group(product);
      if (group < 0) return;
      product.weight += group * product.groups.weight_stride;
    }
  }
  unsigned char* const memory = dynamic_shared() + warp_id() * V::kWarpBytes;
  const FewRowsOperands<V> from(product, first);
  const Extras<V> extras(product, first);
  float sums[V::kTiles][V::kTokenTiles][4] = {};
  if constexpr (V::kAligned) {
    add_steps<V>(product, from, memory, sums);
  } else {
    add_gathered<V>(from, sums);
  }
  __syncwarp();  // all lanes are done with their copies
  put_sums<V>(reinterpret_cast<float*>(memory), sums);
  __syncthreads();
  store_sums<V>(product, first, extras);
}

// Shared memory of a block.
template <typename V>
int64_t block_bytes(const FewRowsProduct& product) {
  const int64_t normed = product.rows * (product.k + kNormedGap) * int64_t{sizeof(Bf16)};
  return kFewWarps * V::kWarpBytes + (V::kNormed ? normed : 0);
}

template <typename Element, int kTiles, bool kGated>
void launch_normed(const LaunchStream& stream, const FewRowsProduct& product) {
  using V = FewRowsVariant<Element, kTiles, 1, true, kGated, true>;
  launch(stream, {blocks_for(product.n, V::kOutputs), kFewThreads, block_bytes<V>(product)},
         few_rows_kernel<V>, product);
}

template <typename Element, int kTiles, bool kAligned, bool kGated>
void launch_few_rows_tiles(const LaunchStream& stream, const FewRowsProduct& product) {
  const auto launch_variant = [&]<typename V>(V) {
    const int64_t apart = product.heads.count > 0 ? product.heads.count : product.groups.all_rows;
    const auto down = static_cast<unsigned>(V::kGrouped ? apart : 1);
    launch(stream,
           {{blocks_for(product.n, V::kOutputs), down}, kFewThreads, block_bytes<V>(product)},
           few_rows_kernel<V>, product);
  };
  if constexpr (kAligned) {
    if (product.norm.given) return launch_normed<float, kTiles, kGated>(stream, product);
  }
  if constexpr (sizeof(Element) == sizeof(Bf16)) {
    if (product.groups.count > 0 || product.heads.count > 0) {
      if (product.rows <= kTileTokens) {
        launch_variant(FewRowsVariant<Element, kTiles, 1, kAligned, kGated, false, true>());
      } else {
        launch_variant(FewRowsVariant<Element, kTiles, 2, kAligned, kGated, false, true>());
      }
      return;
    }
  }
  if (product.rows <= kTileTokens) {
    launch_variant(FewRowsVariant<Element, kTiles, 1, kAligned, kGated>());
  } else {
    launch_variant(FewRowsVariant<Element, kTiles, 2, kAligned, kGated>());
  }
}

bool operands_aligned(const FewRowsProduct& product) {
  constexpr uintptr_t kVectorBytes = 16;
  const auto src = reinterpret_cast<uintptr_t>(product.src.data);
  const auto weight = reinterpret_cast<uintptr_t>(product.weight);
  const int64_t stride = product.rows > 1 || product.groups.count > 0 ? product.src.stride : 0;
  return src % kVectorBytes == 0 && weight % kVectorBytes == 0 &&
         stride * element_bytes(product.src.type) % int64_t{kVectorBytes} == 0 &&
         product.k % kLaneElements == 0 && product.groups.weight_stride % kLaneElements == 0 &&
         product.heads.src_step % kLaneElements == 0 &&
         product.heads.weight_step % kLaneElements == 0;
}

// Whether blocks of so many tiles leave every multiprocessor one or nearly so, and their memory is
// there. They should be as large as that: src is read once per block.
template <typename Element, int kTiles, bool kGated>
bool few_rows_fill(const LaunchStream& stream, const FewRowsProduct& product) {
  using V = FewRowsVariant<Element, kTiles, 1, true, kGated>;
  const int64_t blocks_min = (int64_t{stream.multiprocessors} * 3 + 3) / 4;
  // Of groups as many have rows as a token has rows at least.
  const int64_t groups = product.heads.count > 0    ? product.heads.count
                         : product.groups.count > 0 ? product.groups.all_rows / product.rows
                                                    : 1;
  const int64_t bytes =
      product.norm.given
          ? block_bytes<FewRowsVariant<float, kTiles, 1, true, kGated, true>>(product)
      : product.rows <= kTileTokens
          ? block_bytes<V>(product)
          : block_bytes<FewRowsVariant<Element, kTiles, 2, true, kGated>>(product);
  return product.n >= V::kOutputs && groups * blocks_for(product.n, V::kOutputs) >= blocks_min &&
         bytes + kNormStaticBytes <= shared_bytes_max();
}

template <typename Element>
void launch_few_rows(const LaunchStream& stream, const FewRowsProduct& product) {
  if (!operands_aligned(product) || product.n < kTileRows) {
    launch_few_rows_tiles<Element, 1, false, false>(stream, product);
  } else if (few_rows_fill<Element, 4, false>(stream, product)) {
    launch_few_rows_tiles<Element, 4, true, false>(stream, product);
  } else if (few_rows_fill<Element, 2, false>(stream, product)) {
    launch_few_rows_tiles<Element, 2, true, false>(stream, product);
  } else {
    launch_few_rows_tiles<Element, 1, true, false>(stream, product);
  }
}

}  // namespace

bool few_rows_takes_gate(const FewRowsProduct& product) {
  const bool bf16 = product.norm.given || product.src.type == ElementType::kBf16;
  return bf16 && operands_aligned(product) && product.n >= kTileRows;
}

bool few_rows_takes_norm(const FewRowsProduct& product) {
  return product.src.type == ElementType::kF32 && product.rows <= kTileTokens &&
         product.rows * product.k <= kNormedMax && operands_aligned(product) &&
         aligned(product.norm.weight) && product.n >= kTileRows;
}

void multiply_few_rows(const LaunchStream& stream, const FewRowsProduct& product) {
  if (product.rows <= 0 || product.n <= 0) return;
  if (product.gate != ProductGate::kNone) {
    if (few_rows_fill<Bf16, 4, true>(stream, product)) {
      launch_few_rows_tiles<Bf16, 4, true, true>(stream, product);
    } else {
      launch_few_rows_tiles<Bf16, 2, true, true>(stream, product);
    }
  } else if (product.src.type == ElementType::kF32) {
    launch_few_rows<float>(stream, product);
  } else {
    launch_few_rows<Bf16>(stream, product);
  }
}

}  // namespace jige::cuda
