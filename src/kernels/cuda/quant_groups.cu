// Products by group on tensor cores with weights of few bits (groups.h, quant.h).
//
// As linear_groups.cu, but that the right operand's part comes as the pieces of its records that a
// warp turns back, each lane's into shared memory of its own; what they stand for, rounded to bf16,
// is put where matrices are read from, of which there are two in turns. So every tile of rows turns
// the weight back once more, and nothing but its blocks is read.
#include "kernels/cuda/group_parts.cuh"
#include "kernels/cuda/quant_layout.cuh"

namespace jige::cuda {
namespace {

constexpr int kQuantGroupWarps = kGroupThreads / kWarp;
constexpr int kWarpSteps = 2;  // blocks of a row that a warp has of a part

template <int kRowsIn, bool kHalvesIn, bool kRightAcrossIn>
struct QuantGroupsVariant : GroupShape<kRowsIn, false, kRightAcrossIn> {
  using Shape = GroupShape<kRowsIn, false, kRightAcrossIn>;
  using Shape::kRows;
  using typename Shape::Left, typename Shape::Right;
  static constexpr bool kHalves = kHalvesIn;
  // Records of 16 rows of the weight, in a part, that so many warps share.
  static constexpr int kRecords = Right::kRows / int{kQuantRecordRows};
  static constexpr int kRecordWarps = kQuantGroupWarps / kRecords;
  static_assert(kRecords * kRecordWarps == kQuantGroupWarps);
  static_assert(kRecordWarps * kWarpSteps * kQuantBlock == Right::kLength);
  // Slots of a lane: the scales, then pieces.
  static constexpr int kPieces = kHalves ? kWarpSteps / 2 : kWarpSteps;
  static constexpr int kSlots = 1 + kPieces;
  static constexpr int kRawBytes = kSlots * kGroupThreads * kCopyBytes;  // of a part
  static constexpr int kLeftBytes = Left::kElements * int{sizeof(Bf16)};
  static constexpr int kRightBytes = Right::kElements * int{sizeof(Bf16)};
  static constexpr int kRightAt = kGroupStages * kLeftBytes;
  static constexpr int kRawAt = kRightAt + 2 * kRightBytes;
  static constexpr int kBytes = kRawAt + kGroupStages * kRawBytes;
  static constexpr int kBlocks = kRows > 64 ? 1 : 2;  // that a large multiprocessor has memory for
};

// What the lane's warp turns back of every part: two steps of a record's rows.
template <typename V>
struct Blocks {
  QuantWeight weight;
  int64_t line;  // the first of the tile: a row of the weight, or across a column

  __device__ static int record() { return warp_id() / V::kRecordWarps; }
  __device__ static int first_step() { return warp_id() % V::kRecordWarps * kWarpSteps; }
  // Of a part's first element, and of the warp's in its record.
  __device__ int64_t row(int part) const {
    return V::kRightAcross ? int64_t{part} * kGroupDepth : line;
  }
  __device__ int64_t column(int part) const {
    return V::kRightAcross ? line : int64_t{part} * kGroupDepth;
  }
  __device__ int step_of_record(int part) const {
    return static_cast<int>(column(part) % kQuantRecordColumns) / kQuantBlock + first_step();
  }
  __device__ static uint4* slot(unsigned char* raw, int index) {
    return reinterpret_cast<uint4*>(raw + (index * kGroupThreads + static_cast<int>(threadIdx.x)) *
                                              kCopyBytes);
  }

  // Starts copies of a part; zeros stand for what is not there.
  __device__ void fetch(int part, unsigned char* raw) const {
    const int64_t tile = row(part) / kQuantRecordRows + record();
    const int64_t chunk = column(part) / kQuantRecordColumns;
    const bool valid = tile * kQuantRecordRows < weight.n && chunk < quant_chunks(weight.k);
    const unsigned char* from = quant_record(weight, valid ? tile : 0, valid ? chunk : 0);
    const int lane = lane_id();
    copy_async_16(slot(raw, 0), from + lane / 4 * kCopyBytes, valid);
    const int step = step_of_record(part);
#pragma unroll
    for (int i = 0; i < V::kPieces; ++i) {
      const int piece = V::kHalves ? step / 2 : step + i;
      const int at = kQuantScalesBytes + piece * kQuantPieceBytes + lane * kCopyBytes;
      copy_async_16(slot(raw, 1 + i), from + at, valid);
    }
  }
};

// Numbers of 8 bits in bytes 0 and 2 of a word, times d.
__device__ uint32_t scaled_bytes(uint32_t word, float d) {
  const uint32_t pair = bytes_to_bf16x2(word);
  return floats_to_bf16x2(d * bits_to_float(pair << 16), d * bits_to_float(pair & 0xffff0000u));
}
// The two lowest numbers of 4 bits.
__device__ uint32_t scaled_levels(uint32_t word, float d, const float* levels) {
  return floats_to_bf16x2(d * levels[word & 15u], d * levels[word >> 4 & 15u]);
}

// Eight numbers of row g or g + 8 of a record at one of the lane's steps.
template <typename V>
__device__ uint4 turn_back(const uint4 (&pieces)[V::kPieces], int step, int half, float d,
                           const float* levels) {
  if constexpr (V::kHalves) {
    const uint32_t word = quant_word(pieces[0], step * 2 + half);
    return make_uint4(scaled_levels(word, d, levels), scaled_levels(word >> 8, d, levels),
                      scaled_levels(word >> 16, d, levels), scaled_levels(word >> 24, d, levels));
  } else {
    const uint32_t low = quant_word(pieces[step], half * 2);
    const uint32_t high = quant_word(pieces[step], half * 2 + 1);
    return make_uint4(scaled_bytes(low, d), scaled_bytes(low >> 8, d), scaled_bytes(high, d),
                      scaled_bytes(high >> 8, d));
  }
}

// The numbers of a part to where matrices are read from.
template <typename V>
__device__ void put_numbers(const Blocks<V>& blocks, int part, unsigned char* raw,
                            const float* levels, Bf16* to) {
  const uint4 scales = *Blocks<V>::slot(raw, 0);
  uint4 pieces[V::kPieces];
#pragma unroll
  for (int i = 0; i < V::kPieces; ++i) pieces[i] = *Blocks<V>::slot(raw, 1 + i);
  const int first = blocks.step_of_record(part);
  const int lane = lane_id();
  Bf16* const at = to +
                   (Blocks<V>::record() * int{kQuantRecordRows} + lane / 4) * V::Right::kStride +
                   Blocks<V>::first_step() * kQuantBlock + lane % 4 * 8;
#pragma unroll
  for (int step = 0; step < kWarpSteps; ++step) {
    const uint32_t both = quant_word(scales, first + step);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float d = half_to_float(static_cast<uint16_t>(half == 0 ? both & 0xffffu : both >> 16));
      *reinterpret_cast<uint4*>(at + half * 8 * V::Right::kStride + step * kQuantBlock) =
          turn_back<V>(pieces, step, half, d, levels);
    }
  }
}

template <typename V>
__global__ __launch_bounds__(kGroupThreads,
                             V::kBlocks) void quant_groups_kernel(GroupedProduct grouped,
                                                                  GroupTiles tiles,
                                                                  QuantWeight weight) {
  __shared__ float levels[kQuantLevels];
  begin_kernel();
  const GroupTile tile = take_tile<V::kRows, kGroupColumns>(grouped, tiles);
  if (!tile.given) return;
  const Product& product = tile.product;
  weight.data += tile.group * weight.step_bytes;
  if (V::kHalves && threadIdx.x < kQuantLevels) {
    const auto* header = reinterpret_cast<const QuantHeader*>(weight.data);
    levels[threadIdx.x] = to_float(Bf16{header->levels[threadIdx.x]});
  }
  const GroupSource left = {static_cast<const Bf16*>(product.left.data), product.left.stride,
                            tile.row, product.rows, product.depth};
  const Blocks<V> blocks = {weight, tile.column};
  unsigned char* const memory = dynamic_shared();
  const auto left_of = [&](int part) {
    return reinterpret_cast<Bf16*>(memory + part % kGroupStages * V::kLeftBytes);
  };
  const auto raw_of = [&](int part) {
    return memory + V::kRawAt + part % kGroupStages * V::kRawBytes;
  };
  const auto fetch_part = [&](int part) {
    fetch_group_part<V::kRows, false>(left, int64_t{part} * kGroupDepth, left_of(part));
    blocks.fetch(part, raw_of(part));
  };
  const int parts = static_cast<int>(ceil_div(product.depth, kGroupDepth));
  float sums[V::kM][V::kN][4] = {};
#pragma unroll
  for (int part = 0; part < kGroupStages - 1; ++part) {
    if (part < parts) fetch_part(part);
    copy_async_commit();
  }
  __syncthreads();  // all see the levels
  for (int part = 0; part < parts; ++part) {
    copy_async_wait<kGroupStages - 2>();
    Bf16* const right = reinterpret_cast<Bf16*>(memory + V::kRightAt + part % 2 * V::kRightBytes);
    put_numbers<V>(blocks, part, raw_of(part), levels, right);
    __syncthreads();  // all have the part, and are done with the one before
    if (part + kGroupStages - 1 < parts) fetch_part(part + kGroupStages - 1);
    copy_async_commit();
    multiply_group_part<V>(left_of(part), right, sums);
  }
  store_group_sums<V>(product, tile.row, tile.column, sums);
}

template <int kRows, bool kHalves, bool kRightAcross>
void launch_quant_groups(const LaunchStream& stream, const GroupedProduct& grouped,
                         const QuantWeight& weight) {
  using V = QuantGroupsVariant<kRows, kHalves, kRightAcross>;
  constexpr int64_t kStaticBytes = 128;  // the levels, and what aligns the memory behind them
  if constexpr (kRows > 32) {
    if (V::kBytes + kStaticBytes > shared_bytes_max()) {
      return launch_quant_groups<kRows / 2, kHalves, kRightAcross>(stream, grouped, weight);
    }
  }
  const GroupTiles tiles = tiles_of(grouped, kRows, kGroupColumns);
  launch(stream, {static_cast<unsigned>(tiles.count()), kGroupThreads, V::kBytes},
         quant_groups_kernel<V>, grouped, tiles, weight);
}

template <bool kHalves>
void launch_quant_group_rows(const LaunchStream& stream, const GroupedProduct& grouped,
                             const QuantWeight& weight) {
  with_group_rows(grouped, [&]<int kRows>() {
    if (grouped.product.right_across) {
      launch_quant_groups<kRows, kHalves, true>(stream, grouped, weight);
    } else {
      launch_quant_groups<kRows, kHalves, false>(stream, grouped, weight);
    }
  });
}

}  // namespace

bool quant_groups_take_tensor_cores(const GroupedProduct& grouped) {
  const Product& p = grouped.product;
  constexpr int64_t kPair = 2;
  return takes_group_operand(p.left, p.left_across, p.rows, p.depth) && aligned(p.out.data) &&
         p.out.stride % kPair == 0 && p.columns % kPair == 0;
}

void multiply_groups(const LaunchStream& stream, const GroupedProduct& grouped,
                     const QuantWeight& weight) {
  if (weight.halves) {
    launch_quant_group_rows<true>(stream, grouped, weight);
  } else {
    launch_quant_group_rows<false>(stream, grouped, weight);
  }
}

}  // namespace jige::cuda
