#include "kernels/cpu/gemm_plain.h"

#include <bit>
#include <cmath>

#include "tensor/dtype.h"

namespace jige::cpu {
namespace {

// Subnormal numbers count as zero of the same sign, as operands and as results.
float flush(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits & 0x7f800000u) != 0 ? value : std::bit_cast<float>(bits & 0x80000000u);
}

float multiply_add(BFloat16 left, BFloat16 right, float sum) {
  return flush(std::fma(flush(to_float(left)), flush(to_float(right)), flush(sum)));
}

// sum + left · right over one tile's depth.
float tile_chain(const BFloat16* left, const BFloat16* right, float sum) {
  float even = 0;
  float odd = 0;
  for (int pair = 0; pair < kTileDepth / 2; ++pair) {
    even = multiply_add(left[2 * pair], right[2 * kTileLanes * pair], even);
    odd = multiply_add(left[2 * pair + 1], right[2 * kTileLanes * pair + 1], odd);
  }
  return flush(flush(sum) + flush(flush(even) + flush(odd)));
}

void tile_micro(const GemmMicroArgs& args) {
  const int64_t tiles = args.depth / kTileDepth;
  const std::byte* lefts = static_cast<const std::byte*>(args.left);
  for (int64_t row = 0; row < args.rows; ++row) {
    const std::byte* left =
        lefts + row / kTileLanes * args.left_stride + row % kTileLanes * args.left_row_bytes;
    for (int64_t column = 0; column < args.panels * kTileLanes; ++column) {
      const std::byte* panel =
          static_cast<const std::byte*>(args.right) + column / kTileLanes * args.right_stride;
      const BFloat16* right = reinterpret_cast<const BFloat16*>(panel) + 2 * (column % kTileLanes);
      float sum = args.from ? args.from[row * args.from_stride + column] : 0.0f;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        sum = tile_chain(reinterpret_cast<const BFloat16*>(left + tile * args.left_tile_bytes),
                         right + tile * kTileElements, sum);
      }
      args.sums[row * args.sums_stride + column] = sum;
    }
  }
}

void pair_micro(const GemmMicroArgs& args) {
  constexpr int64_t kColumns = 2 * kTileLanes;
  constexpr int64_t kPairBytes = 2 * sizeof(BFloat16);
  const int64_t row_bytes = args.left_in_rows ? args.left_row_bytes : kPairBytes;
  const int64_t step_bytes = args.left_in_rows ? kPairBytes : args.rows * kPairBytes;
  for (int64_t row = 0; row < args.rows; ++row) {
    const std::byte* left = static_cast<const std::byte*>(args.left) + row * row_bytes;
    for (int64_t column = 0; column < args.panels * kColumns; ++column) {
      const std::byte* panel =
          static_cast<const std::byte*>(args.right) + column / kColumns * args.right_stride;
      const BFloat16* right = reinterpret_cast<const BFloat16*>(panel) + 2 * (column % kColumns);
      float sum = args.from ? args.from[row * args.from_stride + column] : 0.0f;
      for (int64_t pair = 0; pair < args.depth / 2; ++pair) {
        const auto* of_row = reinterpret_cast<const BFloat16*>(left + pair * step_bytes);
        const BFloat16* of_column = right + 2 * pair * kColumns;
        sum = multiply_add(of_row[1], of_column[1], sum);
        sum = multiply_add(of_row[0], of_column[0], sum);
      }
      args.sums[row * args.sums_stride + column] = sum;
    }
  }
}

}  // namespace

const GemmEngine kGemmTilePlain = {
    .name = "plain bf16 tiles",
    .layout = GemmLayout::kTileBF16,
    .rows = 2 * kTileLanes,
    .columns = kTileLanes,
    .depth_step = kTileDepth,
    .panel_group = 2,
    .depth_block = 512,
    .products_per_cycle = 512,
    .task_rows = 256,
    .task_columns = 1024,
    .panel_depth = 512,
    .panel_rows = 256,
    .begin = nullptr,
    .end = nullptr,
    .micro = tile_micro,
};

const GemmEngine kGemmPairPlain = {
    .name = "plain bf16 pairs",
    .layout = GemmLayout::kPairBF16,
    .rows = 12,
    .columns = 2 * kTileLanes,
    .depth_step = 2,
    .panel_group = 4,
    .depth_block = 512,
    .products_per_cycle = 32,
    .task_rows = 192,
    .task_columns = 512,
    .panel_depth = 2048,
    .panel_rows = 288,
    .begin = nullptr,
    .end = nullptr,
    .micro = pair_micro,
    .left_in_place_bytes = -1,
};

}  // namespace jige::cpu
