// Matrix products against plain chains written out one element at a time: bit for bit, for every
// engine that runs here, the plain ones and a sixteen-lane engine made of AVX2 pairs that
// takes the code of the AVX-512 one through its paces.
#define JIGE_ISA_NS wide_test
#define JIGE_ISA_avx2 1
#include "kernels/cpu/gemm_micro.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/gemm_choice.h"
#include "kernels/cpu/gemm_plain.h"
#include "kernels/cpu/gemm_test_support.h"

namespace jige::cpu {
namespace {

using gemm_test::Case;
using gemm_test::Matrix;
using gemm_test::pack_right;
using gemm_test::short_stretches;
using wide_test::chain_micro;
using wide_test::F32x16;
using wide_test::PanelBF16;
using wide_test::PanelF32;

GemmEngine wide_engine(const char* name, GemmLayout layout, void (*micro)(const GemmMicroArgs&)) {
  return {.name = name,
          .layout = layout,
          .rows = 12,
          .columns = 32,
          .depth_step = 1,
          .panel_group = 1,
          .depth_block = 48,
          .products_per_cycle = 32,
          .task_rows = 48,
          .task_columns = 128,
          .panel_depth = 48,
          .panel_rows = 48,
          .begin = nullptr,
          .end = nullptr,
          .micro = micro};
}
const GemmEngine kWideF32 =
    wide_engine("wide f32", GemmLayout::kChainF32, chain_micro<F32x16, PanelF32<F32x16>, 12, 32>);
const GemmEngine kWideBF16 = wide_engine("wide bf16", GemmLayout::kChainBF16,
                                         chain_micro<F32x16, PanelBF16<F32x16>, 12, 32>);

std::vector<const GemmEngine*> tested_engines() {
  std::vector<const GemmEngine*> engines = gemm_engines();
  engines.push_back(&kWideF32);
  engines.push_back(&kWideBF16);
  return engines;
}

float flush(float value) {
  return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}

// Rounded values of a matrix by rows, each with room of its own.
using SummedRows = std::vector<std::vector<float>>;

// Adds to `sums`, one of each column, what defines them: the sum along the depth over a row of the
// left and a column of the right, element by element in one order. `right` has a row per depth.
void add_defined_sums(const GemmEngine& engine, const std::vector<float>& left,
                      const SummedRows& right, std::vector<float>& sums) {
  if (!gemm_flushes(engine)) {
    for (size_t k = 0; k < left.size(); ++k) {
      for (size_t j = 0; j < sums.size(); ++j) sums[j] = std::fma(left[k], right[k][j], sums[j]);
    }
    return;
  }
  if (engine.layout == GemmLayout::kPairBF16) {
    for (size_t pair = 0; pair < left.size(); pair += 2) {
      for (size_t k = std::min(pair + 2, left.size()); k-- > pair;) {  // the odd one first
        for (size_t j = 0; j < sums.size(); ++j) {
          sums[j] = flush(std::fma(left[k], right[k][j], flush(sums[j])));
        }
      }
    }
    return;
  }
  for (size_t chunk = 0; chunk < left.size(); chunk += 32) {
    SummedRows halves(2, std::vector<float>(sums.size(), 0.0f));
    for (size_t k = chunk; k < std::min(chunk + 32, left.size()); ++k) {
      std::vector<float>& half = halves[k % 2];
      for (size_t j = 0; j < sums.size(); ++j) {
        half[j] = flush(std::fma(left[k], right[k][j], half[j]));
      }
    }
    for (size_t j = 0; j < sums.size(); ++j) {
      sums[j] = flush(flush(sums[j]) + flush(halves[0][j] + halves[1][j]));
    }
  }
}

std::string describe(const GemmEngine& engine, const Case& c, int threads) {
  return fmt::format(
      "{} [{}, {}, {}] {} {} -> {} across {} {} packed {} scratch {} accumulate {} bias {} "
      "threads {}",
      engine.name, c.rows, c.columns, c.depth, dtype_info(c.left).name, dtype_info(c.right).name,
      dtype_info(c.out).name, c.left_across, c.right_across, c.packed, c.scratch, c.accumulate,
      c.bias, threads);
}

// What the product is to be, by its definition, in the memory of `before`.
Matrix defined_product(const GemmEngine& engine, const Case& c, const Matrix& left,
                       const Matrix& right, const Matrix& before, const Matrix& bias) {
  const bool flushes = gemm_flushes(engine);
  const auto value = [&](float x) {
    if (engine.layout != GemmLayout::kChainF32) x = to_float(to_bfloat16(x));
    return flushes ? flush(x) : x;
  };
  const auto columns = static_cast<size_t>(c.columns), depth = static_cast<size_t>(c.depth);
  SummedRows by_depth(depth, std::vector<float>(columns));
  for (int64_t k = 0; k < c.depth; ++k) {
    for (int64_t j = 0; j < c.columns; ++j) {
      by_depth[static_cast<size_t>(k)][static_cast<size_t>(j)] =
          value(c.right_across ? right.at(k, j) : right.at(j, k));
    }
  }
  Matrix expected = before;
  std::vector<float> left_row(depth), sums(columns);
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t k = 0; k < c.depth; ++k) {
      left_row[static_cast<size_t>(k)] = value(c.left_across ? left.at(k, row) : left.at(row, k));
    }
    for (int64_t j = 0; j < c.columns; ++j) {
      sums[static_cast<size_t>(j)] = c.accumulate ? before.at(row, j) : 0.0f;
    }
    add_defined_sums(engine, left_row, by_depth, sums);
    for (int64_t j = 0; j < c.columns; ++j) {
      const float sum = sums[static_cast<size_t>(j)];
      expected.set(row * expected.stride() + j, c.bias ? sum + bias.at(0, j) : sum);
    }
  }
  return expected;
}

// Devices of one, two and three threads, which are to give the same product.
class GemmSums : public ::testing::Test {
 protected:
  void expect_defined_sums(const GemmEngine& engine, const Case& c, int64_t parts = 1) {
    Rng rng(derive_key(7, "gemm",
                       static_cast<uint64_t>(c.rows * 1000003 + c.columns * 1009 + c.depth)));
    const Matrix left(c.left, c.left_across ? c.depth : c.rows, c.left_across ? c.rows : c.depth,
                      rng);
    const Matrix right(c.right, c.right_across ? c.depth : c.columns,
                       c.right_across ? c.columns : c.depth, rng);
    const Matrix before(c.out, c.rows, c.columns, rng);
    const Matrix bias(DType::kF32, 1, c.columns, rng);
    const Matrix expected = defined_product(engine, c, left, right, before, bias);
    const bool round = engine.layout != GemmLayout::kChainF32;

    for (CpuDevice& device : devices_) {
      Matrix out = before;
      std::vector<std::byte> panels;
      GemmProduct product;
      product.rows = c.rows;
      product.columns = c.columns;
      product.depth = c.depth;
      product.left = left.operand(c.left_across, round);
      if (c.packed) {
        panels = pack_right(device, engine, right, c, round, parts);
        product.right_panels = panels.data();
      } else {
        product.right = right.operand(c.right_across, round);
        if (c.scratch) {
          panels.resize(static_cast<size_t>(gemm_panels_bytes(engine, c.columns, c.depth)),
                        std::byte{0xff});
          product.right_scratch = panels.data();
        }
      }
      product.out = out.data();
      product.out_dtype = c.out;
      product.out_stride = out.stride();
      product.accumulate = c.accumulate;
      if (c.bias) product.bias = static_cast<const float*>(bias.operand(false, false).data);
      gemm(device, engine, product);
      // The whole memory, so that a write beyond a row's end shows too.
      ASSERT_EQ(out.bytes(), expected.bytes()) << describe(engine, c, device.team().size());
    }
  }

 private:
  CpuDevice devices_[3] = {CpuDevice({.name = "cpu0", .thread_count = 1}),
                           CpuDevice({.name = "cpu0", .thread_count = 2}),
                           CpuDevice({.name = "cpu0", .thread_count = 3})};
};

TEST_F(GemmSums, AreTheDefinedOnesForOddShapes) {
  const int64_t sizes[] = {1, 2, 3, 5, 6, 7, 8, 13, 16, 17, 31, 33, 64, 65, 100, 257};
  Rng rng(11);
  const auto pick = [&] { return sizes[rng.below(std::size(sizes))]; };
  for (const GemmEngine* full : tested_engines()) {
    for (const GemmEngine& engine : {*full, short_stretches(*full)}) {
      for (int i = 0; i < 60; ++i) {
        Case c = {pick(), pick(), pick()};
        if (c.rows * c.columns * c.depth > 300000) c.rows = 1 + static_cast<int64_t>(rng.below(14));
        const DType types[] = {DType::kF32, DType::kBF16, DType::kF16};
        c.left = types[rng.below(2)];
        c.right = types[rng.below(3)];
        c.left_across = rng.below(2);
        c.right_across = rng.below(2);
        c.packed = engine.layout == GemmLayout::kChainBF16 || rng.below(3) > 0;
        c.scratch = rng.below(2);
        c.accumulate = rng.below(2);
        c.out = c.accumulate ? DType::kF32 : types[rng.below(2)];
        c.bias = !c.accumulate && rng.below(2);
        expect_defined_sums(engine, c, 1 + static_cast<int64_t>(rng.below(3)));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GemmSums, AreTheDefinedOnesForEveryNumberOfRows) {
  for (const GemmEngine* engine : tested_engines()) {
    for (int64_t rows = 1; rows <= engine->rows + 1; ++rows) {
      expect_defined_sums(*engine, {rows, 5 * engine->columns + 3, 40});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GemmSums, AreTheDefinedOnesForSeveralTasksInBothDirections) {
  for (const GemmEngine* engine : tested_engines()) {
    if (engine == &kGemmTilePlain || engine == &kGemmPairPlain) continue;
    expect_defined_sums(*engine, {400, 600, 9, DType::kF32, DType::kBF16, DType::kBF16});
    Case gradient = {400, 600, 11};
    gradient.left_across = gradient.right_across = gradient.accumulate = true;
    gradient.packed = engine->layout == GemmLayout::kChainBF16;
    expect_defined_sums(*engine, gradient);
    if (HasFatalFailure()) return;
  }
}

// Shapes that gemm_many_rows.h cuts into tasks, blocks of the left, and stretches, with a rest of
// each.
TEST_F(GemmSums, AreTheDefinedOnesForManyRows) {
  for (const GemmEngine* full : tested_engines()) {
    if (!gemm_flushes(*full)) continue;
    const GemmEngine engine = short_stretches(*full);
    for (const int64_t rows : {49, 131}) {
      for (const int64_t columns : {32, 83}) {
        for (const int64_t depth : {1, 64, 131}) {
          Case c = {rows, columns, depth, DType::kBF16, DType::kBF16, DType::kBF16};
          c.bias = depth % 2 == 0;
          expect_defined_sums(engine, c);
          c.out = DType::kF32;
          expect_defined_sums(engine, c);
          c.bias = false;
          c.accumulate = c.left_across = c.right_across = c.scratch = true;
          c.packed = false;
          expect_defined_sums(engine, c);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A shape whose columns are cut for several threads, each of which packs rows once for the tasks
// that have them and comes to other rows after that.
TEST_F(GemmSums, AreTheDefinedOnesForTasksOfTheSameRows) {
  for (const GemmEngine* engine : tested_engines()) {
    if (!gemm_flushes(*engine)) continue;
    const Case c = {520, 200, 70, DType::kF32, DType::kBF16, DType::kBF16};
    expect_defined_sums(*engine, c);
    if (HasFatalFailure()) return;
  }
}

// Blocks of few rows that take turns over some panels, in two stretches and with a short last turn.
TEST_F(GemmSums, AreTheDefinedOnesForFewRowsAndLongPanels) {
  for (const GemmEngine* engine : tested_engines()) {
    if (engine->layout != GemmLayout::kPairBF16) continue;
    expect_defined_sums(*engine, {13, 230, 2100, DType::kBF16, DType::kBF16, DType::kBF16});
    if (HasFatalFailure()) return;
  }
}

TEST_F(GemmSums, OfNothingAreTheirStart) {
  for (const GemmEngine* engine : tested_engines()) {
    expect_defined_sums(*engine, {.rows = 3, .columns = 5, .depth = 0, .bias = true});
    Case kept = {3, 5, 0};
    kept.accumulate = true;
    expect_defined_sums(*engine, kept);
    expect_defined_sums(*engine, {0, 5, 7});
  }
}

TEST(GemmParts, PackTheSamePanelsAsTheWhole) {
  CpuDevice device({.name = "cpu0", .thread_count = 2});
  Rng rng(3);
  for (const GemmEngine* engine : tested_engines()) {
    const bool round = engine->layout != GemmLayout::kChainF32;
    for (const bool across : {false, true}) {
      Case c = {1, 77, 83};
      c.right_across = across;
      const Matrix right(DType::kF32, across ? c.depth : c.columns, across ? c.columns : c.depth,
                         rng);
      const auto whole = pack_right(device, *engine, right, c, round, 1);
      for (int64_t parts : {2, 3, 7, 40}) {
        EXPECT_EQ(pack_right(device, *engine, right, c, round, parts), whole)
            << engine->name << " in " << parts << " parts, across " << across;
      }
    }
  }
}

TEST(GemmEngines, OfPairsAndTilesFlushSubnormalNumbers) {
  CpuDevice device({.name = "cpu0", .thread_count = 1});
  const float tiny = 0x1p-127f;
  const std::vector<float> left = {tiny, 0x1p-64f, 1, 0x1p-100f};
  const std::vector<float> right = {1, 0x1p-64f, tiny, 0x1p-20f};
  for (const GemmEngine* engine : tested_engines()) {
    if (!gemm_flushes(*engine)) continue;
    float out = 5;
    GemmProduct product;
    product.rows = product.columns = 1;
    product.depth = 4;
    product.left = {.data = left.data(), .row_stride = 4, .round_to_bf16 = true};
    product.right = {.data = right.data(), .row_stride = 4, .round_to_bf16 = true};
    product.out = &out;
    product.out_stride = 1;
    gemm(device, *engine, product);
    EXPECT_EQ(out, 0x1p-120f) << engine->name;
  }
}

TEST(GemmEngines, AgreeWithTheirMeasure) {
  for (const GemmEngine* engine : tested_engines()) {
    const GemmEngine& measure = engine->layout == GemmLayout::kTileBF16   ? kGemmTilePlain
                                : engine->layout == GemmLayout::kPairBF16 ? kGemmPairPlain
                                : engine->layout == GemmLayout::kChainF32 ? *gemm_engines()[0]
                                                                          : *gemm_engines()[1];
    if (engine == &measure) continue;
    EXPECT_TRUE(gemm_engine_agrees(*engine, measure)) << engine->name;
  }
}

// Otherwise tests would pass that never saw the engine they are about.
TEST(GemmEngines, OfEveryInstructionSetHereAreInUse) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    const GemmLayout expected = isa == Isa::kAmx          ? GemmLayout::kTileBF16
                                : isa == Isa::kAvx512Bf16 ? GemmLayout::kPairBF16
                                                          : GemmLayout::kChainBF16;
    EXPECT_EQ(gemm_engine(DType::kBF16).layout, expected) << isa_name(isa);
  }
  set_active_isa(before);
}

// An engine that forgets the last depth of each call.
GemmEngine broken(const GemmEngine& engine) {
  GemmEngine copy = engine;
  copy.micro = [](const GemmMicroArgs& args) {
    GemmMicroArgs shorter = args;
    shorter.depth -= 1;
    gemm_engines()[0]->micro(shorter);
  };
  return copy;
}

TEST(GemmEngines, FailTheirCheckWhenTheyAreWrong) {
  EXPECT_FALSE(gemm_engine_agrees(broken(*gemm_engines()[0]), *gemm_engines()[0]));
}

}  // namespace
}  // namespace jige::cpu
