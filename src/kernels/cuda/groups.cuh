// Which group a block works for (groups.h). Threads: device code, by whole warps.
#pragma once

#include "kernels/cuda/groups.h"
#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {

struct Group {
  int index;  // -1: none
  int begin, end;
  int first;  // row of the group
};

// The group of tile `tile`, where every group's rows are cut into tiles of `tile_rows`.
__device__ inline Group find_tile(const int32_t* row_ends, int groups, int tile, int tile_rows) {
  int before = 0;  // tiles
  for (int base = 0; base < groups; base += kWarp) {
    const int g = base + lane_id();
    const int end = g < groups ? row_ends[g] : 0;
    const int begin = g < groups && g > 0 ? row_ends[g - 1] : 0;
    const int own = (end - begin + tile_rows - 1) / tile_rows;
    int upto = own;
    for (int lanes = 1; lanes < kWarp; lanes *= 2) {
      const int lower = __shfl_up_sync(kAllLanes, upto, lanes);
      if (lane_id() >= lanes) upto += lower;
    }
    upto += before;
    const unsigned behind = __ballot_sync(kAllLanes, tile < upto);
    if (behind != 0) {
      const int lane = __ffs(static_cast<int>(behind)) - 1;
      const int first = (tile - (upto - own)) * tile_rows;
      return {base + lane, __shfl_sync(kAllLanes, begin, lane), __shfl_sync(kAllLanes, end, lane),
              __shfl_sync(kAllLanes, first, lane)};
    }
    before = __shfl_sync(kAllLanes, upto, kWarp - 1);
  }
  return {-1, 0, 0, 0};
}

// The group of a row.
__device__ inline Group find_row(const int32_t* row_ends, int groups, int row) {
  Group found = {-1, 0, 0, 0};
#pragma unroll 4
  for (int g = lane_id(); g < groups; g += kWarp) {
    const int end = row_ends[g];
    const int begin = g > 0 ? row_ends[g - 1] : 0;
    if (begin <= row && row < end) found = {g, begin, end, row - begin};
  }
  const int lane = __ffs(static_cast<int>(__ballot_sync(kAllLanes, found.index >= 0))) - 1;
  return {__shfl_sync(kAllLanes, found.index, lane), __shfl_sync(kAllLanes, found.begin, lane),
          __shfl_sync(kAllLanes, found.end, lane), __shfl_sync(kAllLanes, found.first, lane)};
}

__device__ inline ConstRows from_row(const ConstRows& rows, int64_t row) {
  const auto* const data = static_cast<const unsigned char*>(rows.data);
  return {data + row * rows.stride * element_bytes(rows.type), rows.type, rows.stride};
}
__device__ inline Rows from_row(const Rows& rows, int64_t row) {
  auto* const data = static_cast<unsigned char*>(rows.data);
  return {data + row * rows.stride * element_bytes(rows.type), rows.type, rows.stride};
}

// Tiles of all groups' outputs as a list that blocks share: down rows, up to kTilesDown of them,
// before along columns, so that what neighbours read is in the second cache.
constexpr int64_t kTilesDown = 8;
struct GroupTiles {
  int64_t down, along;  // how many
  __host__ __device__ int64_t count() const {
    return ceil_div(down, kTilesDown) * kTilesDown * along;
  }
};
inline GroupTiles tiles_of(const GroupedProduct& grouped, int64_t rows, int64_t columns) {
  const int64_t down = grouped.outs ? grouped.groups * ceil_div(grouped.product.rows, rows)
                                    : grouped.product.rows / rows + grouped.groups;
  return {down, ceil_div(grouped.product.columns, columns)};
}

// What a block computes: a tile of one group's product.
struct GroupTile {
  Product product;
  int64_t row, column;  // where the tile begins
  bool given;
  int group;
};
template <int kRows, int kColumns>
__device__ inline GroupTile take_tile(const GroupedProduct& grouped, const GroupTiles& tiles) {
  const int64_t band = kTilesDown * tiles.along;
  const Divided at = divide(blockIdx.x, band);
  const int64_t down = at.quotient * kTilesDown + at.remainder % kTilesDown;
  GroupTile tile = {grouped.product, 0, at.remainder / kTilesDown * kColumns, false, 0};
  if (down >= tiles.down) return tile;
  Product& product = tile.product;
  const int groups = static_cast<int>(grouped.groups);
  if (grouped.outs) {
    const Divided of_group = divide(down, ceil_div(product.rows, kRows));
    const int64_t begin = of_group.quotient > 0 ? grouped.row_ends[of_group.quotient - 1] : 0;
    tile.group = static_cast<int>(of_group.quotient);
    tile.row = of_group.remainder * kRows;
    product.depth = grouped.row_ends[of_group.quotient] - begin;
    product.left = from_row(product.left, begin);
    product.right = from_row(product.right, begin);
    product.out.data = grouped.outs[of_group.quotient];
    tile.given = product.out.data && (product.depth > 0 || !product.accumulate);
    return tile;
  }
  const Group group = find_tile(grouped.row_ends, groups, static_cast<int>(down), kRows);
  if (group.index < 0) return tile;
  tile.group = group.index;
  tile.row = group.first;
  product.rows = group.end - group.begin;
  product.left = from_row(product.left, group.begin);
  product.out = from_row(product.out, group.begin);
  product.right = from_column(product.right, group.index * grouped.right_stride);
  tile.given = true;
  return tile;
}

}  // namespace jige::cuda
