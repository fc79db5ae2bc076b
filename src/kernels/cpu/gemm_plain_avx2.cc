// Plain loops over the columns of a panel, which the compiler makes vectors of.
#include "kernels/cpu/gemm_plain.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/dtype.h"

namespace jige::cpu {
namespace {

// Subnormal numbers count as zero of the same sign, as operands and as results.
float flush(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits & 0x7f800000u) != 0 ? value : std::bit_cast<float>(bits & 0x80000000u);
}

float multiply_add(float left, float right, float sum) {
  return flush(std::fma(flush(left), flush(right), flush(sum)));
}

// Two bf16 numbers that follow each other in memory, and the one and the other.
constexpr int64_t kPairBytes = 2 * sizeof(BFloat16);
uint32_t pair_at(const std::byte* at) {
  uint32_t pair;
  std::memcpy(&pair, at, sizeof pair);
  return pair;
}
float first_of(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
float second_of(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }

// The sums of a row and the columns of a panel, as they are before.
template <int kColumns>
void start_sums(const GemmMicroArgs& args, int64_t row, int64_t panel, float (&sums)[kColumns]) {
  if (!args.from) {
    std::fill_n(sums, kColumns, 0.0f);
  } else {
    std::copy_n(args.from + row * args.from_stride + panel * kColumns, kColumns, sums);
  }
}

// sums + left · right over one tile's depth.
void tile_chains(const std::byte* left, const std::byte* right, float (&sums)[kTileLanes]) {
  float even[kTileLanes] = {};
  float odd[kTileLanes] = {};
  for (int pair = 0; pair < kTileDepth / 2; ++pair) {
    const uint32_t of_row = pair_at(left + pair * kPairBytes);
    const std::byte* of_columns = right + pair * kTileLanes * kPairBytes;
    for (int i = 0; i < kTileLanes; ++i) {
      const uint32_t of_column = pair_at(of_columns + i * kPairBytes);
      even[i] = multiply_add(first_of(of_row), first_of(of_column), even[i]);
      odd[i] = multiply_add(second_of(of_row), second_of(of_column), odd[i]);
    }
  }
  for (int i = 0; i < kTileLanes; ++i) {
    sums[i] = flush(flush(sums[i]) + flush(flush(even[i]) + flush(odd[i])));
  }
}

void tile_micro(const GemmMicroArgs& args) {
  const int64_t tiles = args.depth / kTileDepth;
  const std::byte* lefts = static_cast<const std::byte*>(args.left);
  for (int64_t row = 0; row < args.rows; ++row) {
    const std::byte* left =
        lefts + row / kTileLanes * args.left_stride + row % kTileLanes * args.left_row_bytes;
    for (int64_t panel = 0; panel < args.panels; ++panel) {
      const std::byte* right =
          static_cast<const std::byte*>(args.right) + panel * args.right_stride;
      float sums[kTileLanes];
      start_sums(args, row, panel, sums);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        tile_chains(left + tile * args.left_tile_bytes, right + tile * kTileElements * 2, sums);
      }
      std::copy_n(sums, kTileLanes, args.sums + row * args.sums_stride + panel * kTileLanes);
    }
  }
}

void pair_micro(const GemmMicroArgs& args) {
  constexpr int kColumns = 2 * kTileLanes;
  const int64_t row_bytes = args.left_in_rows ? args.left_row_bytes : kPairBytes;
  const int64_t step_bytes = args.left_in_rows ? kPairBytes : args.rows * kPairBytes;
  for (int64_t row = 0; row < args.rows; ++row) {
    const std::byte* left = static_cast<const std::byte*>(args.left) + row * row_bytes;
    for (int64_t panel = 0; panel < args.panels; ++panel) {
      const std::byte* right =
          static_cast<const std::byte*>(args.right) + panel * args.right_stride;
      float sums[kColumns];
      start_sums(args, row, panel, sums);
      for (int64_t pair = 0; pair < args.depth / 2; ++pair) {
        const uint32_t of_row = pair_at(left + pair * step_bytes);
        const std::byte* of_columns = right + pair * kColumns * kPairBytes;
        for (int i = 0; i < kColumns; ++i) {
          const uint32_t of_column = pair_at(of_columns + i * kPairBytes);
          sums[i] = multiply_add(second_of(of_row), second_of(of_column), sums[i]);
          sums[i] = multiply_add(first_of(of_row), first_of(of_column), sums[i]);
        }
      }
      std::copy_n(sums, kColumns, args.sums + row * args.sums_stride + panel * kColumns);
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
