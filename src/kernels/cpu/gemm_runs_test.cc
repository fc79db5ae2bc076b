// Products with some runs of a packed right, or into some of the output: the bits of whole products
// with zeros in place of the rest, for every engine that runs here and the plain ones.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "kernels/cpu/gemm_choice.h"
#include "kernels/cpu/gemm_test_support.h"

namespace jige::cpu {
namespace {

using gemm_test::Case;
using gemm_test::Matrix;
using gemm_test::pack_right;
using gemm_test::short_stretches;

constexpr int64_t kWhole = 416;
constexpr GemmRun kRuns[] = {{0, 32}, {96, 160}, {288, 32}, {352, 64}};
constexpr int64_t kOfRuns = 288;
constexpr int64_t kOther = 75;  // of the side that is whole

// Where an index of the runs stands.
std::vector<int64_t> places_of_runs() {
  std::vector<int64_t> places;
  for (const GemmRun& run : kRuns) {
    for (int64_t i = 0; i < run.count; ++i) places.push_back(run.begin + i);
  }
  return places;
}

class GemmRuns : public ::testing::Test {
 protected:
  template <typename Body>
  void for_each_case(Body&& body) {
    for (const GemmEngine* engine : gemm_engines()) {
      for (const GemmEngine& cut : {*engine, short_stretches(*engine)}) {
        for (const int64_t rows : {3, 50, 131}) {
          for (const DType out : {DType::kF32, DType::kBF16}) {
            for (CpuDevice& device : devices_) {
              SCOPED_TRACE(fmt::format("{} to {}, {} rows, {} threads, stretches of {}",
                                       engine->name, dtype_info(out).name, rows,
                                       device.team().size(), cut.depth_block));
              body(device, cut, rows, out);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
  // Operands of an engine's own type, which some read where they lie.
  static DType operand_type(const GemmEngine& engine) {
    return engine.layout == GemmLayout::kChainF32 ? DType::kF32 : DType::kBF16;
  }
  static bool rounds(const GemmEngine& engine) { return engine.layout != GemmLayout::kChainF32; }

  Rng rng_{5};
  CpuDevice devices_[2] = {CpuDevice({.name = "cpu0", .thread_count = 1}),
                           CpuDevice({.name = "cpu0", .thread_count = 3})};
};

GemmProduct product_of(const GemmEngine& engine, const Matrix& left, Matrix& out,
                       const GemmProduct& sizes) {
  GemmProduct product = sizes;
  product.left = left.operand(false, engine.layout != GemmLayout::kChainF32);
  product.out = out.data();
  product.out_dtype = out.dtype();
  product.out_stride = out.stride();
  return product;
}

TEST_F(GemmRuns, OfColumnsHaveTheBitsOfAllColumns) {
  for_each_case([&](CpuDevice& device, const GemmEngine& engine, int64_t rows, DType type) {
    const Matrix left(operand_type(engine), rows, kOther, rng_);
    const Matrix right(DType::kF32, kWhole, kOther, rng_);
    const Matrix bias(DType::kF32, 1, kOfRuns, rng_);
    const auto panels =
        pack_right(device, engine, right, {.rows = rows, .columns = kWhole, .depth = kOther},
                   rounds(engine), 1);
    Matrix all(type, rows, kWhole, rng_), some(type, rows, kOfRuns, rng_);
    gemm(device, engine,
         product_of(
             engine, left, all,
             {.rows = rows, .columns = kWhole, .depth = kOther, .right_panels = panels.data()}));
    GemmProduct product = product_of(
        engine, left, some,
        {.rows = rows, .columns = kOfRuns, .depth = kOther, .right_panels = panels.data()});
    product.parts = {.depths = {}, .columns = kRuns, .outputs = {}};
    gemm(device, engine, product);
    const std::vector<int64_t> places = places_of_runs();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < kOfRuns; ++c) {
        ASSERT_EQ(some.at(r, c), all.at(r, places[static_cast<size_t>(c)])) << r << ", " << c;
      }
    }
  });
}

TEST_F(GemmRuns, OfTheDepthHaveTheBitsOfZerosBetweenThem) {
  const std::vector<int64_t> places = places_of_runs();
  for_each_case([&](CpuDevice& device, const GemmEngine& engine, int64_t rows, DType type) {
    const Matrix left(operand_type(engine), rows, kOfRuns, rng_);
    const Matrix right(DType::kF32, kOther, kWhole, rng_);
    Matrix spread(operand_type(engine), rows, kWhole, rng_);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < kWhole; ++c) spread.set(r * spread.stride() + c, 0);
      for (int64_t c = 0; c < kOfRuns; ++c) {
        spread.set(r * spread.stride() + places[static_cast<size_t>(c)], left.at(r, c));
      }
    }
    const auto panels =
        pack_right(device, engine, right, {.rows = rows, .columns = kOther, .depth = kWhole},
                   rounds(engine), 1);
    Matrix expected(type, rows, kOther, rng_), made(type, rows, kOther, rng_);
    gemm(device, engine,
         product_of(
             engine, spread, expected,
             {.rows = rows, .columns = kOther, .depth = kWhole, .right_panels = panels.data()}));
    GemmProduct product = product_of(
        engine, left, made,
        {.rows = rows, .columns = kOther, .depth = kOfRuns, .right_panels = panels.data()});
    product.parts = {.depths = kRuns, .right_depth = kWhole, .columns = {}, .outputs = {}};
    gemm(device, engine, product);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < kOther; ++c) ASSERT_EQ(made.at(r, c), expected.at(r, c)) << r;
    }
  });
}

TEST_F(GemmRuns, OfTheOutputHaveTheBitsOfAProductOfTheirOwnAndLeaveTheRest) {
  const std::vector<int64_t> places = places_of_runs();
  for_each_case([&](CpuDevice& device, const GemmEngine& engine, int64_t rows, DType type) {
    if (type != DType::kF32) return;  // these accumulate
    const Matrix left(operand_type(engine), kOther, rows, rng_);
    const Matrix right(operand_type(engine), kOther, kOfRuns, rng_);
    const Matrix before(type, rows, kWhole, rng_);
    Matrix expected(type, rows, kOfRuns, rng_), made = before;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < kOfRuns; ++c) {
        expected.set(r * expected.stride() + c, before.at(r, places[static_cast<size_t>(c)]));
      }
    }
    std::vector<std::byte> scratch(static_cast<size_t>(gemm_panels_bytes(engine, kOfRuns, kOther)));
    GemmProduct product = {.rows = rows,
                           .columns = kOfRuns,
                           .depth = kOther,
                           .right = right.operand(true, rounds(engine)),
                           .right_scratch = scratch.data(),
                           .accumulate = true};
    product = product_of(engine, left, expected, product);
    product.left = left.operand(true, rounds(engine));
    gemm(device, engine, product);
    product.out = made.data();
    product.out_stride = made.stride();
    product.parts = {.depths = {}, .columns = {}, .outputs = kRuns};
    gemm(device, engine, product);
    Matrix wanted = before;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < kOfRuns; ++c) {
        wanted.set(r * wanted.stride() + places[static_cast<size_t>(c)], expected.at(r, c));
      }
    }
    ASSERT_EQ(made.bytes(), wanted.bytes());
  });
}

}  // namespace
}  // namespace jige::cpu
