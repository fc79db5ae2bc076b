// Matrix products against plain chains written out one element at a time: bit for bit, for every
// engine that runs here, the plain tile engine and a sixteen-lane engine made of AVX2 pairs that
// takes the code of the AVX-512 one through its paces.
#define JIGE_ISA_NS wide_test
#define JIGE_ISA_avx2 1
#include "kernels/cpu/gemm_micro.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/rough_normal.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_choice.h"
#include "kernels/cpu/gemm_tile_plain.h"

namespace jige::cpu {
namespace {

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
          .task_rows = 48,
          .task_columns = 128,
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

// The same engine with shorter stretches of depth and smaller tasks, so that small products spill
// their sums and have several tasks.
GemmEngine short_stretches(const GemmEngine& engine) {
  GemmEngine copy = engine;
  copy.depth_block = std::min<int64_t>(engine.depth_block, 32);
  copy.task_rows = std::min<int64_t>(engine.task_rows, 2 * engine.rows);
  copy.left_bytes = 64 * 2 * copy.task_rows;
  return copy;
}

float flush(float value) {
  return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}

// Rounded values of a matrix by rows, each with room of its own.
using Rows = std::vector<std::vector<float>>;

// Adds to `sums`, one of each column, what defines them: the sum along the depth over a row of the
// left and a column of the right, element by element in one order. `right` has a row per depth.
void add_defined_sums(const GemmEngine& engine, const std::vector<float>& left, const Rows& right,
                      std::vector<float>& sums) {
  if (engine.layout != GemmLayout::kTileBF16) {
    for (size_t k = 0; k < left.size(); ++k) {
      for (size_t j = 0; j < sums.size(); ++j) sums[j] = std::fma(left[k], right[k][j], sums[j]);
    }
    return;
  }
  for (size_t chunk = 0; chunk < left.size(); chunk += 32) {
    Rows halves(2, std::vector<float>(sums.size(), 0.0f));
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

// A matrix of any type with spare room at the end of each row.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t columns, Rng& rng)
      : dtype_(dtype), stride_(columns + 3) {
    bytes_.resize(static_cast<size_t>(dtype_bytes(dtype, rows * stride_)));
    for (int64_t i = 0; i < rows * stride_; ++i) {
      set(i, rough_normal(rng));
    }
  }
  void set(int64_t i, float value) {
    if (dtype_ == DType::kF32) std::memcpy(&bytes_[static_cast<size_t>(4 * i)], &value, 4);
    if (dtype_ == DType::kBF16) {
      const BFloat16 half = to_bfloat16(value);
      std::memcpy(&bytes_[static_cast<size_t>(2 * i)], &half, 2);
    }
    if (dtype_ == DType::kF16) {
      const Float16 half = to_float16(value);
      std::memcpy(&bytes_[static_cast<size_t>(2 * i)], &half, 2);
    }
  }
  float at(int64_t row, int64_t column) const {
    const size_t i = static_cast<size_t>(row * stride_ + column);
    float value;
    BFloat16 bfloat;
    Float16 half;
    switch (dtype_) {
      case DType::kF32:
        std::memcpy(&value, &bytes_[4 * i], 4);
        return value;
      case DType::kBF16:
        std::memcpy(&bfloat, &bytes_[2 * i], 2);
        return to_float(bfloat);
      default:
        std::memcpy(&half, &bytes_[2 * i], 2);
        return to_float(half);
    }
  }
  GemmOperand operand(bool depth_across, bool round) const {
    return {bytes_.data(), dtype_, stride_, depth_across, round};
  }
  void* data() { return bytes_.data(); }
  int64_t stride() const { return stride_; }
  DType dtype() const { return dtype_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  DType dtype_;
  int64_t stride_;
  std::vector<std::byte> bytes_;
};

struct Case {
  int64_t rows, columns, depth;
  DType left = DType::kF32;
  DType right = DType::kF32;
  DType out = DType::kF32;
  bool left_across = false;
  bool right_across = false;
  bool packed = true;
  bool scratch = false;  // where not packed: whether there is memory to pack it once
  bool accumulate = false;
  bool bias = false;
};

std::string describe(const GemmEngine& engine, const Case& c, int threads) {
  return fmt::format(
      "{} [{}, {}, {}] {} {} -> {} across {} {} packed {} scratch {} accumulate {} bias {} "
      "threads {}",
      engine.name, c.rows, c.columns, c.depth, dtype_info(c.left).name, dtype_info(c.right).name,
      dtype_info(c.out).name, c.left_across, c.right_across, c.packed, c.scratch, c.accumulate,
      c.bias, threads);
}

// Packs a right operand in `parts` parts cut along the memory rows.
std::vector<std::byte> pack_right(CpuDevice& device, const GemmEngine& engine, const Matrix& right,
                                  const Case& c, bool round, int64_t parts) {
  std::vector<std::byte> panels(
      static_cast<size_t>(gemm_panels_bytes(engine, c.columns, c.depth)) + 64,
      static_cast<std::byte>(0xff));
  const int64_t memory_rows = c.right_across ? c.depth : c.columns;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = memory_rows * part / parts;
    const int64_t count = memory_rows * (part + 1) / parts - begin;
    GemmOperand operand = right.operand(c.right_across, round);
    operand.data = static_cast<const std::byte*>(operand.data) +
                   dtype_bytes(operand.dtype, begin * operand.row_stride);
    const GemmPackRange range = c.right_across ? GemmPackRange{0, c.columns, begin, count}
                                               : GemmPackRange{begin, count, 0, c.depth};
    gemm_pack_panels(device, engine, {panels.data(), c.columns, c.depth}, operand, range);
  }
  return panels;
}

// What the product is to be, by its definition, in the memory of `before`.
Matrix defined_product(const GemmEngine& engine, const Case& c, const Matrix& left,
                       const Matrix& right, const Matrix& before, const Matrix& bias) {
  const bool tiles = engine.layout == GemmLayout::kTileBF16;
  const auto value = [&](float x) {
    if (engine.layout != GemmLayout::kChainF32) x = to_float(to_bfloat16(x));
    return tiles ? flush(x) : x;
  };
  const auto columns = static_cast<size_t>(c.columns), depth = static_cast<size_t>(c.depth);
  Rows by_depth(depth, std::vector<float>(columns));
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
    if (engine == &kGemmTilePlain) continue;
    expect_defined_sums(*engine, {400, 600, 9, DType::kF32, DType::kBF16, DType::kBF16});
    Case gradient = {400, 600, 11};
    gradient.left_across = gradient.right_across = gradient.accumulate = true;
    gradient.packed = engine->layout == GemmLayout::kChainBF16;
    expect_defined_sums(*engine, gradient);
    if (HasFatalFailure()) return;
  }
}

// Shapes that gemm_tiles.h cuts into tasks, blocks of the left, and stretches, with a rest of each.
TEST_F(GemmSums, AreTheDefinedOnesForManyRowsOfTiles) {
  for (const GemmEngine* full : tested_engines()) {
    if (full->layout != GemmLayout::kTileBF16) continue;
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
    if (engine->layout != GemmLayout::kTileBF16) continue;
    const Case c = {520, 200, 70, DType::kF32, DType::kBF16, DType::kBF16};
    expect_defined_sums(*engine, c);
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
  for (const GemmEngine* full : tested_engines()) {
    if (full->layout != GemmLayout::kTileBF16 || !full->store_bf16) continue;
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
  for (const GemmEngine* full : tested_engines()) {
    if (full->layout != GemmLayout::kTileBF16 || !full->store_bf16) continue;
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
  for (const GemmEngine* full : tested_engines()) {
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

// Rows of the left in whole lines, with a rest of rows that are packed, and lefts that lie
// otherwise.
TEST_P(GemmOnThreads, GivesTheSameBitsWithTheLeftInPlace) {
  static std::atomic<int> calls_in_place;
  static void (*micro)(const GemmMicroArgs&);
  constexpr int64_t kRowsMax = 131, kStride = 160;
  struct alignas(64) Left {
    BFloat16 values[kRowsMax * kStride + 32];
  };
  Rng rng(14);
  const auto left = std::make_unique<Left>();
  for (BFloat16& value : left->values) value = to_bfloat16(rough_normal(rng));
  for (const GemmEngine* full : tested_engines()) {
    if (full->layout != GemmLayout::kTileBF16) continue;
    micro = full->micro;
    GemmEngine engine = short_stretches(*full);
    engine.micro = [](const GemmMicroArgs& args) {
      calls_in_place += args.left_row_bytes == 2 * kStride;
      micro(args);
    };
    for (const int64_t rows : {49L, 64L, kRowsMax}) {
      for (const int64_t columns : {32, 83}) {
        const int64_t depth = 96;
        const Case c = {rows, columns, depth, DType::kBF16, DType::kBF16, DType::kF32};
        const Matrix right(DType::kBF16, columns, depth, rng);
        const auto panels = pack_right(device_, engine, right, c, true, 1);
        const auto multiply = [&](GemmOperand operand, int64_t product_depth) {
          std::vector<float> out(static_cast<size_t>(rows * columns));
          GemmProduct product;
          product.rows = rows;
          product.columns = columns;
          product.depth = product_depth;
          product.left = operand;
          product.right_panels = panels.data();
          product.out = out.data();
          product.out_stride = columns;
          gemm(device_, engine, product);
          return out;
        };
        const GemmOperand operand = {left->values, DType::kBF16, kStride, false, true};
        engine.left_in_place_bytes = 2 * kStride * columns - 1;
        const std::vector<float> packed = multiply(operand, depth);
        GemmOperand shifted = operand;
        shifted.data = left->values + 1;
        engine.left_in_place_bytes = 2 * kStride * columns;
        multiply(shifted, depth);
        multiply(operand, depth - 1);
        EXPECT_EQ(calls_in_place, 0);
        const std::vector<float> in_place = multiply(operand, depth);
        EXPECT_GT(calls_in_place.exchange(0), 0);
        EXPECT_EQ(std::memcmp(packed.data(), in_place.data(), packed.size() * sizeof(float)), 0)
            << engine.name << " " << rows << " " << columns;
      }
    }
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

TEST(GemmTilePlain, FlushesSubnormalNumbers) {
  CpuDevice device({.name = "cpu0", .thread_count = 1});
  const float tiny = 0x1p-127f;
  const std::vector<float> left = {tiny, 0x1p-64f, 1, 0x1p-100f};
  const std::vector<float> right = {1, 0x1p-64f, tiny, 0x1p-20f};
  float out = 5;
  GemmProduct product;
  product.rows = product.columns = 1;
  product.depth = 4;
  product.left = {.data = left.data(), .row_stride = 4, .round_to_bf16 = true};
  product.right = {.data = right.data(), .row_stride = 4, .round_to_bf16 = true};
  product.out = &out;
  product.out_stride = 1;
  gemm(device, kGemmTilePlain, product);
  EXPECT_EQ(out, 0x1p-120f);
}

TEST(GemmEngines, AgreeWithTheirMeasure) {
  for (const GemmEngine* engine : tested_engines()) {
    const GemmEngine& measure = engine->layout == GemmLayout::kTileBF16   ? kGemmTilePlain
                                : engine->layout == GemmLayout::kChainF32 ? *gemm_engines()[0]
                                                                          : *gemm_engines()[1];
    if (engine == &measure) continue;
    EXPECT_TRUE(gemm_engine_agrees(*engine, measure)) << engine->name;
  }
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
