// Products by group on tensor cores (groups.h).
//
// A block has a tile of one group's output. Parts of the operands, kGroupDepth deep, come into
// shared memory by asynchronous copies, kGroupStages of them under way or in use (group_parts.cuh).
#include "kernels/cuda/group_parts.cuh"

namespace jige::cuda {
namespace {

template <int kRows, bool kLeftAcross, bool kRightAcross>
struct GroupsVariant : GroupShape<kRows, kLeftAcross, kRightAcross> {
  using Shape = GroupShape<kRows, kLeftAcross, kRightAcross>;
  static constexpr int kStageElements = Shape::Left::kElements + Shape::Right::kElements;
  static constexpr int64_t kBytes = int64_t{kGroupStages} * kStageElements * int64_t{sizeof(Bf16)};
};

template <typename V>
__global__ __launch_bounds__(kGroupThreads, 2) void groups_kernel(GroupedProduct grouped,
                                                                  GroupTiles tiles) {
  begin_kernel();
  const GroupTile tile = take_tile<V::kRows, kGroupColumns>(grouped, tiles);
  if (!tile.given) return;
  const Product& product = tile.product;
  const GroupSource left = {static_cast<const Bf16*>(product.left.data), product.left.stride,
                            tile.row, product.rows, product.depth};
  const GroupSource right = {static_cast<const Bf16*>(product.right.data), product.right.stride,
                             tile.column, product.columns, product.depth};
  auto* const memory = reinterpret_cast<Bf16*>(dynamic_shared());
  const auto fetch_part = [&](int part) {
    Bf16* const stage = memory + part % kGroupStages * V::kStageElements;
    fetch_group_part<V::kRows, V::kLeftAcross>(left, int64_t{part} * kGroupDepth, stage);
    fetch_group_part<kGroupColumns, V::kRightAcross>(right, int64_t{part} * kGroupDepth,
                                                     stage + V::Left::kElements);
  };
  const int parts = static_cast<int>(ceil_div(product.depth, kGroupDepth));
  float sums[V::kM][V::kN][4] = {};
#pragma unroll
  for (int part = 0; part < kGroupStages - 1; ++part) {
    if (part < parts) fetch_part(part);
    copy_async_commit();
  }
  for (int part = 0; part < parts; ++part) {
    copy_async_wait<kGroupStages - 2>();
    __syncthreads();  // all have the part, and are done with the one before
    if (part + kGroupStages - 1 < parts) fetch_part(part + kGroupStages - 1);
    copy_async_commit();
    const Bf16* const stage = memory + part % kGroupStages * V::kStageElements;
    multiply_group_part<V>(stage, stage + V::Left::kElements, sums);
  }
  store_group_sums<V>(product, tile.row, tile.column, sums);
}

template <int kRows, bool kLeftAcross, bool kRightAcross>
void launch_groups(const LaunchStream& stream, const GroupedProduct& grouped) {
  using V = GroupsVariant<kRows, kLeftAcross, kRightAcross>;
  if constexpr (kRows > 64) {
    if (V::kBytes > shared_bytes_max()) {
      return launch_groups<64, kLeftAcross, kRightAcross>(stream, grouped);
    }
  }
  const GroupTiles tiles = tiles_of(grouped, kRows, kGroupColumns);
  launch(stream, {static_cast<unsigned>(tiles.count()), kGroupThreads, V::kBytes}, groups_kernel<V>,
         grouped, tiles);
}

template <bool kRightAcross>
void launch_group_rows(const LaunchStream& stream, const GroupedProduct& grouped) {
  with_group_rows(grouped,
                  [&]<int kRows>() { launch_groups<kRows, false, kRightAcross>(stream, grouped); });
}

}  // namespace

bool groups_take_tensor_cores(const GroupedProduct& grouped) {
  const Product& p = grouped.product;
  constexpr int64_t kPair = 2;
  const bool out = grouped.outs || aligned(p.out.data);
  return takes_group_operand(p.left, p.left_across, p.rows, p.depth) &&
         takes_group_operand(p.right, p.right_across, p.columns, p.depth) &&
         grouped.right_stride % kGroupChunk == 0 && out && p.out.stride % kPair == 0 &&
         p.columns % kPair == 0;
}

void multiply_groups(const LaunchStream& stream, const GroupedProduct& grouped) {
  if (grouped.outs && grouped.product.rows > 64) {
    launch_groups<128, true, true>(stream, grouped);
  } else if (grouped.outs) {
    launch_groups<64, true, true>(stream, grouped);
  } else if (grouped.product.right_across) {
    launch_group_rows<true>(stream, grouped);
  } else {
    launch_group_rows<false>(stream, grouped);
  }
}

}  // namespace jige::cuda
