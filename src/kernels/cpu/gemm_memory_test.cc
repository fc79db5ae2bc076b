// Where operands and results of products lie in memory changes no bit: packed or in place, through
// the caches or past them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cpu/gemm_choice.h"
#include "kernels/cpu/gemm_test_support.h"

namespace jige::cpu {
namespace {

using gemm_test::Case;
using gemm_test::Matrix;
using gemm_test::pack_right;
using gemm_test::short_stretches;

GemmProduct packed_product(const Matrix& left, const void* panels, const Case& shape) {
  GemmProduct product;
  product.rows = shape.rows;
  product.columns = shape.columns;
  product.depth = shape.depth;
  product.left = left.operand(false, true);
  product.right_panels = panels;
  return product;
}

class GemmOnThreads : public ::testing::TestWithParam<int> {
 protected:
  CpuDevice device_{{.name = "cpu0", .thread_count = GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(Threads, GemmOnThreads, ::testing::Values(1, 2, 3));

// Outputs whose lines are whole, some with a rest of columns that goes another way.
TEST_P(GemmOnThreads, GivesTheSameBitsPastTheCaches) {
  static std::atomic<int> stores_past;
  static void (*store)(const GemmStoreBF16&);
  Rng rng(13);
  const int64_t rows = 70, stride = 128, depth = 64;
  const Matrix left(DType::kBF16, rows, depth, rng);
  for (const GemmEngine* full : gemm_engines()) {
    if (!gemm_flushes(*full) || !full->store_bf16) continue;
    store = full->store_bf16;
    GemmEngine engine = short_stretches(*full);
    engine.store_bf16 = [](const GemmStoreBF16& args) {
      stores_past += args.past_caches;
      store(args);
    };
    for (const int64_t columns : {32, 83, 96, 112}) {
      const Case c = {rows, columns, depth, DType::kBF16, DType::kBF16, DType::kBF16};
      const Matrix right(DType::kBF16, columns, depth, rng);
      const Matrix bias(DType::kF32, 1, columns, rng);
      const auto panels = pack_right(device_, engine, right, c, true, 1);
      struct alignas(64) Out {
        BFloat16 values[rows * stride + 32] = {};
      };
      std::vector<Out> outs(4);
      const auto multiply = [&](BFloat16* out, bool past_caches) {
        GemmProduct product = packed_product(left, panels.data(), {rows, columns, depth});
        product.out = out;
        product.out_dtype = DType::kBF16;
        product.out_stride = stride;
        product.bias = static_cast<const float*>(bias.operand(false, false).data);
        product.out_past_caches = past_caches;
        gemm(device_, engine, product);
      };
      multiply(outs[0].values, false);
      EXPECT_EQ(stores_past, 0);
      engine.past_caches_bytes = 2 * rows * stride + 1;  // the output is smaller
      multiply(outs[1].values, true);
      engine.past_caches_bytes = 0;
      multiply(outs[3].values + 1, true);  // not aligned
      EXPECT_EQ(stores_past, 0);
      multiply(outs[2].values, true);
      EXPECT_GT(stores_past.exchange(0), 0);
      for (const BFloat16* values : {outs[1].values, outs[2].values, outs[3].values + 1}) {
        EXPECT_EQ(std::memcmp(outs[0].values, values, sizeof(BFloat16) * rows * stride), 0)
            << columns;
      }
    }
  }
}

// An output of f32 whose rows are whole lines, for columns that are, and some with a rest.
TEST_P(GemmOnThreads, GivesTheSameSumsPastTheCaches) {
  for (const GemmEngine* full : gemm_engines()) {
    if (!gemm_flushes(*full) || !full->store_bf16) continue;
    GemmEngine engine = short_stretches(*full);
    engine.past_caches_bytes = 0;
    Rng rng(21);
    const int64_t rows = 70, stride = 128, depth = 64;
    const Matrix left(DType::kBF16, rows, depth, rng);
    for (const int64_t columns : {32, 83, 96, 128}) {
      const Case c = {rows, columns, depth, DType::kBF16, DType::kBF16};
      const Matrix right(DType::kBF16, columns, depth, rng);
      const auto panels = pack_right(device_, engine, right, c, true, 1);
      struct alignas(64) Out {
        float values[rows * stride];
      };
      std::vector<Out> outs(2);
      for (const bool past : {false, true}) {
        Out& out = outs[past ? 1 : 0];
        std::fill(std::begin(out.values), std::end(out.values), -7.0f);
        GemmProduct product = packed_product(left, panels.data(), {rows, columns, depth});
        product.out = out.values;
        product.out_stride = stride;
        product.out_past_caches = past;
        gemm(device_, engine, product);
      }
      EXPECT_EQ(std::memcmp(outs[0].values, outs[1].values, sizeof(Out)), 0) << columns;
      EXPECT_NE(outs[1].values[0], -7.0f);
      EXPECT_EQ(outs[1].values[columns == stride ? 0 : columns] == -7.0f, columns != stride);
    }
  }
}

// Weights as an optimizer renews them: parts of memory rows, some of which share panels.
TEST_P(GemmOnThreads, PacksTheSamePanelsPastTheCaches) {
  static std::atomic<int> packed_past;
  static void (*pack)(const GemmTileRun&);
  Rng rng(14);
  for (const GemmEngine* full : gemm_engines()) {
    if (!full->pack_tiles) continue;
    pack = full->pack_tiles;
    GemmEngine engine = *full;
    engine.pack_tiles = [](const GemmTileRun& run) {
      packed_past += run.past_caches;
      pack(run);
    };
    for (const auto& [outputs, inputs] : {std::pair{96, 64}, {101, 75}, {32, 33}}) {
      const Matrix weight(DType::kF32, outputs, inputs, rng);
      for (const bool across : {false, true}) {
        const int64_t lanes = across ? inputs : outputs, depth = across ? outputs : inputs;
        const auto bytes = static_cast<size_t>(gemm_panels_bytes(engine, lanes, depth));
        struct alignas(64) Line {
          std::byte bytes[64];
        };
        const auto pack_at = [&](int64_t offset, bool past_caches, int64_t threshold) {
          std::vector<Line> memory(bytes / 64 + 2);
          engine.panels_past_caches_bytes = threshold;
          std::byte* data = memory[0].bytes + offset;
          for (const auto& [begin, end] : {std::pair{0, 32}, {32, outputs}}) {
            GemmOperand rows = weight.operand(across, true);
            rows.data = static_cast<const float*>(rows.data) + begin * rows.row_stride;
            gemm_pack_panels(device_, engine, {data, lanes, depth, past_caches}, rows,
                             across ? GemmPackRange{0, inputs, begin, end - begin}
                                    : GemmPackRange{begin, end - begin, 0, inputs});
          }
          return std::vector<std::byte>(data, data + bytes);
        };
        const auto expected = pack_at(0, false, 0);
        EXPECT_EQ(pack_at(0, true, static_cast<int64_t>(bytes) + 1), expected);
        EXPECT_EQ(pack_at(32, true, 0), expected);
        EXPECT_EQ(packed_past, 0);
        EXPECT_EQ(pack_at(0, true, 0), expected) << outputs << " x " << inputs;
        EXPECT_GT(packed_past.exchange(0), 0);
      }
    }
  }
}

// A product of the first `rows` and `depth` of a left in memory with a packed right.
struct InPlaceProduct {
  CpuDevice& device;
  const GemmEngine& engine;
  const std::vector<std::byte>& panels;
  int64_t rows;
  int64_t columns;

  std::vector<float> multiply(const GemmOperand& left, int64_t depth) const {
    std::vector<float> out(static_cast<size_t>(rows * columns));
    GemmProduct product;
    product.rows = rows;
    product.columns = columns;
    product.depth = depth;
    product.left = left;
    product.right_panels = panels.data();
    product.out = out.data();
    product.out_stride = columns;
    gemm(device, engine, product);
    return out;
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

float rounded_to(float value, float) { return value; }
BFloat16 rounded_to(float value, BFloat16) { return to_bfloat16(value); }

constexpr int64_t kLeftRows = 131, kLeftStride = 160;

template <typename Element>
struct alignas(64) LeftInMemory {
  explicit LeftInMemory(Rng& rng) {
    for (Element& value : values) value = rounded_to(rough_normal(rng), Element());
  }
  GemmOperand operand(int64_t from) const {
    constexpr DType kType = sizeof(Element) == 4 ? DType::kF32 : DType::kBF16;
    return {values + from, kType, kLeftStride, false, kType == DType::kBF16};
  }

  Element values[kLeftRows * kLeftStride + 32];
};

std::atomic<int> calls_in_place;
void (*counted_micro)(const GemmMicroArgs&);

// Rows of the left in whole lines, with a rest of rows that tiles pack, and lefts that lie
// otherwise, which pairs and chains read all the same unless half a step is left over.
template <typename Element>
void check_left_in_place(CpuDevice& device, const GemmEngine& full) {
  constexpr int64_t kDepth = 96;
  Rng rng(14);
  const auto left = std::make_unique<LeftInMemory<Element>>(rng);
  const bool is_tiles = full.layout == GemmLayout::kTileBF16;
  counted_micro = full.micro;
  GemmEngine engine = short_stretches(full);
  engine.micro = [](const GemmMicroArgs& args) {
    calls_in_place += args.left_row_bytes == int64_t{sizeof(Element)} * kLeftStride;
    counted_micro(args);
  };
  for (const int64_t rows : {49L, 64L, kLeftRows}) {
    for (const int64_t columns : {32, 83}) {
      const DType type = left->operand(0).dtype;
      const Case c = {rows, columns, kDepth, type, type, DType::kF32};
      const Matrix right(type, columns, kDepth, rng);
      const auto panels = pack_right(device, engine, right, c, true, 1);
      const InPlaceProduct product{device, engine, panels, rows, columns};
      const int64_t bytes = int64_t{sizeof(Element)} * kLeftStride * columns;
      engine.left_in_place_bytes = bytes - 1;
      const std::vector<float> packed = product.multiply(left->operand(0), kDepth);
      const std::vector<float> packed_shifted = product.multiply(left->operand(1), kDepth);
      EXPECT_EQ(calls_in_place, 0);
      engine.left_in_place_bytes = is_tiles ? bytes : -1;
      if (engine.depth_step > 1) product.multiply(left->operand(0), kDepth - 1);
      EXPECT_EQ(calls_in_place, 0);
      EXPECT_TRUE(same_bits(product.multiply(left->operand(1), kDepth), packed_shifted));
      EXPECT_EQ(calls_in_place.exchange(0) > 0, !is_tiles);
      EXPECT_TRUE(same_bits(product.multiply(left->operand(0), kDepth), packed))
          << engine.name << " " << rows << " " << columns;
      EXPECT_GT(calls_in_place.exchange(0), 0);
    }
  }
}

TEST_P(GemmOnThreads, GivesTheSameBitsWithTheLeftInPlace) {
  for (const GemmEngine* engine : gemm_engines()) {
    if (gemm_flushes(*engine)) check_left_in_place<BFloat16>(device_, *engine);
    if (engine->layout == GemmLayout::kChainF32) check_left_in_place<float>(device_, *engine);
  }
}

}  // namespace
}  // namespace jige::cpu
