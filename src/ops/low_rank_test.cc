// Low-rank additions against plain double-precision loops, and ranges that must not matter.
#include "ops/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "ops/linear_test_support.h"

namespace jige::ops {
namespace {

using test::Numbers;

constexpr int64_t kInputs = 37;
constexpr int64_t kOutputs = 61;  // 11 that nothing is added to, two parts of 33 and 17

class LowRank : public ::testing::Test, protected test::LinearDevice {
 protected:
  struct Adapter {
    Numbers a, b1, b2;
    std::shared_ptr<LowRankWeight> weight;
  };

  PackedWeight pack(DType compute, const TensorView& weight) {
    return packed_in_parts({.compute = compute, .n = weight.rows(), .k = weight.columns()}, weight,
                           1);
  }

  Adapter make(DType compute, int64_t rank, float scale, Rng& rng) {
    Adapter made{Numbers(compute, 2 * rank, kInputs, rng), Numbers(compute, 33, rank, rng),
                 Numbers(compute, 17, rank, rng), std::make_shared<LowRankWeight>()};
    *made.weight = {
        .a = pack(compute, made.a.view()),
        .parts = {
            {.column = 11, .a_row = 0, .b = pack(compute, made.b1.view()), .scale = scale},
            {.column = 44, .a_row = rank, .b = pack(compute, made.b2.view()), .scale = scale}}};
    return made;
  }

  // What is in `dst` behind the additions, as bytes.
  std::vector<std::byte> run(const Numbers& dst, const Numbers& src, std::vector<LowRankRows> rows,
                             DType compute) {
    Numbers out = dst;
    const TensorView view = TensorView::of(const_cast<std::byte*>(out.bytes().data()),
                                           dst.view().dtype, dst.view().shape);
    const int64_t count = view.rows();
    std::vector<std::byte> product(static_cast<size_t>(dtype_bytes(compute, count * 64)));
    std::vector<std::byte> scratch(static_cast<size_t>(low_rank_scratch_bytes(count, 33)));
    low_rank_forward(*stream_,
                     {.dst = view,
                      .src = src.view(),
                      .product = TensorView::of(product.data(), compute, Shape{count, 64}),
                      .scratch = TensorView::of(scratch.data(), DType::kU8,
                                                Shape{static_cast<int64_t>(scratch.size())}),
                      .rows = std::move(rows)});
    stream_->synchronize();
    return out.bytes();
  }
};

TEST_F(LowRank, AddsWhatAPlainLoopAdds) {
  Rng rng(derive_key(1, "low rank"));
  const int64_t rank = 5;
  const Adapter adapter = make(DType::kF32, rank, 0.75f, rng);
  const Numbers src(DType::kF32, 9, kInputs, rng);
  const Numbers dst(DType::kF32, 9, kOutputs, rng);
  const auto bytes = run(dst, src, {{adapter.weight, 2, 7}}, DType::kF32);
  const auto* out = reinterpret_cast<const float*>(bytes.data());
  for (int64_t row = 0; row < 9; ++row) {
    for (int64_t column = 0; column < kOutputs; ++column) {
      double expected = dst.at(row, column);
      if (row >= 2 && row < 7 && column >= 11) {
        const bool first = column < 44;
        for (int64_t i = 0; i < rank; ++i) {
          double u = 0;
          for (int64_t k = 0; k < kInputs; ++k) {
            u += src.at(row, k) * adapter.a.at(first ? i : rank + i, k);
          }
          expected +=
              0.75 * u * (first ? adapter.b1.at(column - 11, i) : adapter.b2.at(column - 44, i));
        }
      }
      EXPECT_NEAR(out[row * kOutputs + column], expected, 1e-3) << row << ", " << column;
    }
  }
}

// A part may have a scale, factors and addends of its own.
TEST_F(LowRank, ScalesColumnsOfAPartBehindTheSum) {
  Rng rng(derive_key(3, "low rank"));
  const int64_t rank = 4;
  const Adapter adapter = make(DType::kF32, rank, 0.5f, rng);
  const Numbers factor(DType::kF32, 1, 17, rng), addend(DType::kF32, 1, 17, rng);
  const auto vector = [](const Numbers& numbers) { return numbers.view().reshaped(Shape{17}); };
  adapter.weight->parts[1].scale = -3.0f;
  adapter.weight->parts[1].factor = vector(factor);
  adapter.weight->parts[1].addend = vector(addend);
  const Numbers src(DType::kF32, 3, kInputs, rng), dst(DType::kF32, 3, kOutputs, rng);
  const auto bytes = run(dst, src, {{adapter.weight, 1, 3}}, DType::kF32);
  const auto* out = reinterpret_cast<const float*>(bytes.data());
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t column = 0; column < kOutputs; ++column) {
      double expected = dst.at(row, column);
      const bool first = column < 44;
      for (int64_t i = 0; row > 0 && column >= 11 && i < rank; ++i) {
        double u = 0;
        for (int64_t k = 0; k < kInputs; ++k) {
          u += src.at(row, k) * adapter.a.at(first ? i : rank + i, k);
        }
        expected +=
            (first ? 0.5 * adapter.b1.at(column - 11, i) : -3.0 * adapter.b2.at(column - 44, i)) *
            u;
      }
      if (row > 0 && !first) {
        expected = expected * factor.at(0, column - 44) + addend.at(0, column - 44);
      }
      EXPECT_NEAR(out[row * kOutputs + column], expected, 1e-3) << row << ", " << column;
    }
  }
}

// Every row has the bits it has alone, whatever ranges it is in, in what order they come, on any
// number of threads and on streams of both kinds.
TEST_F(LowRank, RangesAndThreadsDoNotMatter) {
  for (const auto& [compute, dst_type] : {std::pair{DType::kF32, DType::kF32},
                                          {DType::kBF16, DType::kBF16},
                                          {DType::kBF16, DType::kF32}}) {
    Rng rng(derive_key(2, "low rank"));
    use_threads(1);
    const Adapter small = make(compute, 3, 2.0f, rng);
    const Adapter large = make(compute, 32, 0.5f, rng);
    const int64_t count = 700;  // the large one's rows are too much work for one thread
    const Numbers src(compute, count, kInputs, rng);
    const Numbers dst(dst_type, count, kOutputs, rng);
    const auto expected =
        run(dst, src, {{small.weight, 0, 40}, {large.weight, 50, 690}, {small.weight, 692, 700}},
            compute);
    EXPECT_NE(expected, dst.bytes());
    for (const auto& [threads, queued] : {std::pair{1, true}, {2, false}, {3, true}}) {
      use_threads(threads, queued);
      std::vector<LowRankRows> rows = {{small.weight, 692, 700}, {large.weight, 60, 690}};
      for (int64_t row = 0; row < 40; ++row) rows.push_back({small.weight, row, row + 1});
      for (int64_t row = 50; row < 60; ++row) rows.push_back({large.weight, row, row + 1});
      EXPECT_EQ(run(dst, src, rows, compute), expected) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace jige::ops
