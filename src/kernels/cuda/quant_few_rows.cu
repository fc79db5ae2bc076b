// A weight of few bits times a few rows, whose time is that of reading the weight once.
//
// As linear_few_rows.cu: tensor cores multiply 16 rows of the weight with 8 of src, the warps of a
// block share k in chunks, and every lane's asynchronous copies go into shared memory of its own. A
// chunk is a record of the weight (quant.h); src, which is small, comes by the first cache.
// Integers go to bf16, which holds them: of 8 bits by arithmetic, two of 4 bits by looking up their
// byte in a table, of which every lane has a copy so that no two meet in a bank. The two products
// of a block start from zero; the block's scale multiplies what comes of them. The order within a
// sum depends on k alone.
#include "kernels/cuda/few_rows.cuh"
#include "kernels/cuda/quant_layout.cuh"

namespace jige::cuda {
namespace {

constexpr int kTableEntries = 256;  // pairs of halves, [pair][lane]
constexpr int kTableRowBytes = kWarp * int{sizeof(uint32_t)};

// kTiles tiles of 16 rows of the weight in a block, kTokenTiles of src. kGated: half of the tiles
// are those of the gate. kNormed: every block normalises src while its copies are under way.
// kGrouped: blocks (…, r) have the group whose first row is r, if there is one.
template <bool kHalvesIn, int kTilesIn, int kTokenTilesIn, bool kGatedIn, bool kNormedIn,
          bool kGroupedIn>
struct QuantFewRowsVariant {
  static constexpr bool kHalves = kHalvesIn;
  static constexpr int kTiles = kTilesIn;
  static constexpr int kTokenTiles = kTokenTilesIn;
  static constexpr bool kGated = kGatedIn;
  static constexpr bool kNormed = kNormedIn;
  static constexpr bool kGrouped = kGroupedIn;
  static constexpr int kRows = kTiles * kTileRows;
  static constexpr int kOutputs = kGated ? kRows / 2 : kRows;
  // Copies of a lane for a chunk, and chunks whose copies have memory.
  static constexpr int kPieces = kHalves ? 2 : 4;
  static constexpr int kRecordBytes = kHalves ? kQuantRecordBytes4 : kQuantRecordBytes8;
  static constexpr int kTileSlots = 1 + kPieces;  // scales first
  static constexpr int kSlots = kTiles * kTileSlots;
  static constexpr int kStageBytes = kSlots * kWarp * kCopyBytes;  // of a warp
  static constexpr int kTableBytes = kHalves ? kTableEntries * kTableRowBytes : 0;
  static constexpr int kOtherBytes = kTableBytes + (kNormed ? kNormedBytesMax : 0);
  // So that every GPU has the memory, and large ones that for two blocks of a multiprocessor.
  static constexpr int kBlockBytes = 97 << 10;
  static constexpr int kStagesFit = (kBlockBytes - kOtherBytes) / (kFewWarps * kStageBytes);
  static constexpr int kStages = kStagesFit < 4 ? kStagesFit : 4;
  static_assert(kStages >= 2);
  static constexpr int kWarpBytes = kStages * kStageBytes;
  static constexpr int kTableAt = kFewWarps * kWarpBytes + (kNormed ? kNormedBytesMax : 0);
  static constexpr int kSharedBytes = kTableAt + kTableBytes;
  // The warps' sums take the place of their copies: [token][row].
  static constexpr int kStride = kRows + 4;
  static_assert(kTokenTiles * kTileTokens * kStride * int{sizeof(float)} <= kWarpBytes);
  static constexpr int kOutputsOfThread =
      (kTokenTiles * kTileTokens * kOutputs + kFewThreads - 1) / kFewThreads;
};

// Where what a block multiplies lies.
template <typename V>
struct QuantFewRowsOperands {
  const unsigned char* tiles[V::kTiles];  // the first record of each
  const Bf16* src[V::kTokenTiles];        // the lane's rows
  int k;

  __device__ QuantFewRowsOperands(const FewRowsProduct& product, const QuantWeight& weight,
                                  int64_t first)
      : k(static_cast<int>(product.k)) {
#pragma unroll
    for (int m = 0; m < V::kTiles; ++m) {
      const bool up = V::kGated && m >= V::kTiles / 2;
      const int64_t row =
          up ? product.n + first + (m - V::kTiles / 2) * kTileRows : first + m * kTileRows;
      tiles[m] = quant_record(weight, row / kTileRows, 0);
    }
    for (int j = 0; j < V::kTokenTiles; ++j) {
      int64_t token = min(int64_t{j * kTileTokens + lane_id() / 4}, product.rows - 1);
      if constexpr (V::kGrouped) token = source_row(product.groups, token);
      src[j] = static_cast<const Bf16*>(product.src.data) + token * product.src.stride;
    }
  }
};

// Copies under way of a warp.
template <typename V>
struct QuantFewRowsRing : LaneSlots<V> {
  using LaneSlots<V>::slot;

  // Sends for what a chunk multiplies.
  __device__ void fetch(const QuantFewRowsOperands<V>& from, int stage, int chunk) const {
    const int lane = lane_id();
#pragma unroll
    for (int m = 0; m < V::kTiles; ++m) {
      const unsigned char* record = from.tiles[m] + chunk * V::kRecordBytes;
      copy_async_16(slot(stage, m * V::kTileSlots), record + lane / 4 * kCopyBytes, true);
#pragma unroll
      for (int i = 0; i < V::kPieces; ++i) {
        const int at = kQuantScalesBytes + i * kQuantPieceBytes + lane * kCopyBytes;
        copy_async_16(slot(stage, m * V::kTileSlots + 1 + i), record + at, true);
      }
    }
  }
};

// What a lane multiplies of rows of src at a step, zeros behind the end of k.
template <typename V>
__device__ void load_source(const FewRowsProduct& product, const QuantFewRowsOperands<V>& from,
                            int chunk, int step, uint4 (&x)[V::kTokenTiles]) {
  const int at =
      chunk * int{kQuantRecordColumns} + step * kQuantBlock + lane_id() % 4 * kLaneElements;
#pragma unroll
  for (int j = 0; j < V::kTokenTiles; ++j) {
    const Bf16* row = from.src[j];
    if constexpr (V::kNormed) {
      const int token = min(lane_id() / 4, static_cast<int>(product.rows) - 1);
      row = normed_rows<V>() + token * normed_stride(product);
    }
    x[j] = at < from.k ? *reinterpret_cast<const uint4*>(row + at) : make_uint4(0, 0, 0, 0);
  }
}

// Every pair of levels for every lane.
template <typename V>
__device__ void fill_table(const QuantWeight& weight) {
  const auto* header = reinterpret_cast<const QuantHeader*>(weight.data);
  auto* const table = reinterpret_cast<uint32_t*>(dynamic_shared() + V::kTableAt);
  for (int entry = warp_id(); entry < kTableEntries; entry += kFewWarps) {
    const uint32_t low = header->levels[entry % kQuantLevels];
    const uint32_t high = header->levels[entry / kQuantLevels];
    table[entry * kWarp + lane_id()] = low | high << 16;
  }
  __syncthreads();
}
// Eight numbers of four bits.
template <typename V>
__device__ uint4 look_up(uint32_t word) {
  constexpr uint32_t kRow = kTableRowBytes;
  constexpr uint32_t kMask = (kTableEntries - 1) * kRow;
  const unsigned char* const table = dynamic_shared() + V::kTableAt;
  const uint32_t lane = static_cast<uint32_t>(lane_id()) * sizeof(uint32_t);
  const auto pair = [&](uint32_t row) {
    return *reinterpret_cast<const uint32_t*>(table + ((row & kMask) | lane));
  };
  static_assert(kRow == 128);
  return make_uint4(pair(word << 7), pair(word >> 1), pair(word >> 9), pair(word >> 17));
}
__device__ uint4 from_bytes(uint32_t low, uint32_t high) {
  return make_uint4(bytes_to_bf16x2(low), bytes_to_bf16x2(low >> 8), bytes_to_bf16x2(high),
                    bytes_to_bf16x2(high >> 8));
}

// Rows g and g + 8 of a tile at a step, of the lane's piece of it.
template <typename V>
__device__ void decode(const uint4& piece, int step, uint4 (&w)[2]) {
  if constexpr (V::kHalves) {
    w[0] = look_up<V>(quant_word(piece, step % 2 * 2));
    w[1] = look_up<V>(quant_word(piece, step % 2 * 2 + 1));
  } else {
    w[0] = from_bytes(piece.x, piece.y);
    w[1] = from_bytes(piece.z, piece.w);
  }
}

// sums += what a block gives, whose two products begin with zero; scales are those of rows g and
// g + 8.
template <typename V>
__device__ void multiply_block(const uint4 (&w)[2], const uint4 (&x)[V::kTokenTiles],
                               uint32_t scales, float (&sums)[V::kTokenTiles][4]) {
  const float low = half_to_float(static_cast<uint16_t>(scales & 0xffffu));
  const float high = half_to_float(static_cast<uint16_t>(scales >> 16));
#pragma unroll
  for (int j = 0; j < V::kTokenTiles; ++j) {
    float block[4] = {};
    multiply_step(block, w, x[j]);
    sums[j][0] = fmaf(low, block[0], sums[j][0]);
    sums[j][1] = fmaf(low, block[1], sums[j][1]);
    sums[j][2] = fmaf(high, block[2], sums[j][2]);
    sums[j][3] = fmaf(high, block[3], sums[j][3]);
  }
}

// sums += what a chunk gives. Memory is read 16 bytes at a time, for the sake of banks.
template <typename V>
__device__ void multiply_chunk(const FewRowsProduct& product, const QuantFewRowsOperands<V>& from,
                               const QuantFewRowsRing<V>& ring, int stage, int chunk,
                               float (&sums)[V::kTiles][V::kTokenTiles][4]) {
  uint4 scales[V::kTiles];
  uint4 pieces[V::kTiles];
#pragma unroll
  for (int m = 0; m < V::kTiles; ++m) scales[m] = *ring.slot(stage, m * V::kTileSlots);
#pragma unroll
  for (int step = 0; step < kQuantSteps; ++step) {
    constexpr int kPieceSteps = kQuantSteps / V::kPieces;
    uint4 x[V::kTokenTiles];
    load_source<V>(product, from, chunk, step, x);
#pragma unroll
    for (int m = 0; m < V::kTiles; ++m) {
      if (step % kPieceSteps == 0) {
        pieces[m] = *ring.slot(stage, m * V::kTileSlots + 1 + step / kPieceSteps);
      }
      uint4 w[2];
      decode<V>(pieces[m], step, w);
      multiply_block<V>(w, x, quant_word(scales[m], step), sums[m]);
    }
  }
}

// The warp's share of the sums: chunks warp_id(), + kFewWarps, …
template <typename V>
__device__ void add_chunks(const FewRowsProduct& product, const QuantWeight& weight,
                           const QuantFewRowsOperands<V>& from, unsigned char* warp_memory,
                           float (&sums)[V::kTiles][V::kTokenTiles][4]) {
  const QuantFewRowsRing<V> ring = {{warp_memory + lane_id() * kCopyBytes}};
  const int chunks = static_cast<int>(quant_chunks(product.k));
  int next = warp_id();
#pragma unroll
  for (int i = 0; i < V::kStages - 1; ++i, next += kFewWarps) {
    if (next < chunks) ring.fetch(from, i, next);
    copy_async_commit();
  }
  if constexpr (V::kHalves) fill_table<V>(weight);
  if constexpr (V::kNormed) norm_rows<V>(product);
  int stage = 0;
  int free = V::kStages - 1;  // whose chunk is done with
  for (int chunk = warp_id(); chunk < chunks; chunk += kFewWarps, next += kFewWarps) {
    copy_async_wait<V::kStages - 2>();
    if (next < chunks) ring.fetch(from, free, next);
    copy_async_commit();
    multiply_chunk<V>(product, from, ring, stage, chunk, sums);
    free = stage;
    stage = stage + 1 == V::kStages ? 0 : stage + 1;
  }
}

// Records as far as they are read first, while the kernel before may still run.
template <typename V>
__device__ void prefetch_records(const QuantFewRowsOperands<V>& from) {
  constexpr int kBytes = 64 << 10;  // of a block
  constexpr int kRecordsMax =
      kBytes / V::kRecordBytes / V::kTiles / kFewWarps;  // of a warp and a tile
  const int chunks = static_cast<int>(quant_chunks(from.k));
  const int share = min((chunks + kFewWarps - 1) / kFewWarps, kRecordsMax);
  const int begin = warp_id() * share;
  const int count = min(share, chunks - begin);
  if (lane_id() > 0 || count <= 0) return;
#pragma unroll
  for (int m = 0; m < V::kTiles; ++m) {
    prefetch_to_cache(from.tiles[m] + begin * V::kRecordBytes, count * V::kRecordBytes);
  }
}

template <typename V>
__global__ __launch_bounds__(kFewThreads, 2) void quant_few_rows_kernel(FewRowsProduct product,
                                                                        QuantWeight weight) {
  // The last block does some rows once more, to the same bits.
  const int64_t padded = (product.n + kTileRows - 1) / kTileRows * kTileRows;
  const int64_t first = min(int64_t{blockIdx.x} * V::kOutputs, padded - V::kOutputs);
  if constexpr (V::kGrouped) {
    begin_kernel();
    const int group = take_group(product);
    if (group < 0) return;
    weight.data += group * weight.step_bytes;
  }
  const QuantFewRowsOperands<V> from(product, weight, first);
  if constexpr (!V::kGrouped) {
    prefetch_records<V>(from);
    begin_kernel();
  }
  unsigned char* const memory = dynamic_shared() + warp_id() * V::kWarpBytes;
  const Extras<V> extras(product, first);
  float sums[V::kTiles][V::kTokenTiles][4] = {};
  add_chunks<V>(product, weight, from, memory, sums);
  __syncwarp();  // all lanes are done with their copies
  put_sums<V>(reinterpret_cast<float*>(memory), sums);
  __syncthreads();
  store_sums<V>(product, first, extras);
}

template <typename V>
void launch_variant(const LaunchStream& stream, const FewRowsProduct& product,
                    const QuantWeight& weight) {
  const auto down = static_cast<unsigned>(V::kGrouped ? product.groups.all_rows : 1);
  launch(stream, {{blocks_for(product.n, V::kOutputs), down}, kFewThreads, V::kSharedBytes},
         quant_few_rows_kernel<V>, product, weight);
}

// Whether there are as many rows of the weight, and blocks of V's size are enough to even out what
// multiprocessors have to do.
template <typename V>
bool quant_few_rows_fill(const LaunchStream& stream, const FewRowsProduct& product) {
  // Of groups as many have rows as a token has rows at least.
  const int64_t groups = V::kGrouped ? product.groups.all_rows / product.rows : 1;
  const int64_t blocks = groups * blocks_for(product.n, V::kOutputs);
  return product.n > V::kOutputs - kTileRows && blocks >= int64_t{3} * stream.multiprocessors;
}

template <bool kHalves, int kTokenTiles, bool kNormed, bool kGrouped>
void launch_quant_few_rows_tiles(const LaunchStream& stream, const FewRowsProduct& product,
                                 const QuantWeight& weight) {
  using Two = QuantFewRowsVariant<kHalves, 2, kTokenTiles, false, kNormed, kGrouped>;
  if (product.gate != ProductGate::kNone) {
    using Gated = QuantFewRowsVariant<kHalves, 2, kTokenTiles, true, kNormed, kGrouped>;
    launch_variant<Gated>(stream, product, weight);
  } else if (quant_few_rows_fill<Two>(stream, product)) {
    launch_variant<Two>(stream, product, weight);
  } else {
    using One = QuantFewRowsVariant<kHalves, 1, kTokenTiles, false, kNormed, kGrouped>;
    launch_variant<One>(stream, product, weight);
  }
}

template <bool kHalves>
void launch_quant_few_rows(const LaunchStream& stream, const FewRowsProduct& product,
                           const QuantWeight& weight) {
  const bool few = product.rows <= kTileTokens;
  if (product.norm.given) {
    launch_quant_few_rows_tiles<kHalves, 1, true, false>(stream, product, weight);
  } else if (product.groups.count > 0 && few) {
    launch_quant_few_rows_tiles<kHalves, 1, false, true>(stream, product, weight);
  } else if (product.groups.count > 0) {
    launch_quant_few_rows_tiles<kHalves, 2, false, true>(stream, product, weight);
  } else if (few) {
    launch_quant_few_rows_tiles<kHalves, 1, false, false>(stream, product, weight);
  } else {
    launch_quant_few_rows_tiles<kHalves, 2, false, false>(stream, product, weight);
  }
}

}  // namespace

bool quant_few_rows_takes(const FewRowsProduct& product) {
  const bool bf16 = product.norm.given || product.src.type == ElementType::kBf16;
  const int64_t rows = max(product.rows, product.groups.all_rows);
  return bf16 && product.k % kLaneElements == 0 && aligned(rows, product.src);
}

void multiply_few_rows(const LaunchStream& stream, const FewRowsProduct& product,
                       const QuantWeight& weight) {
  if (product.rows <= 0 || product.n <= 0) return;
  if (weight.halves) {
    launch_quant_few_rows<true>(stream, product, weight);
  } else {
    launch_quant_few_rows<false>(stream, product, weight);
  }
}

}  // namespace jige::cuda
