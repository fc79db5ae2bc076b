#include "ops/linear_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "ops/linear_test_support.h"

namespace jige::ops {
namespace {

using test::Numbers;

constexpr int64_t kGradRows = 190;
constexpr int64_t kGradColumns = 90;
constexpr int64_t kGradTokens = 70;

class LinearRowsOnIsa : public ::testing::TestWithParam<Isa>, protected test::LinearDevice {
 protected:
  LinearRowsOnIsa() { set_active_isa(GetParam()); }
  ~LinearRowsOnIsa() override { set_active_isa(supported_isas().back()); }

  // The gradient that begins as `start`: of all rows, or of these.
  std::vector<float> gradient(LinearBackwardWeight args, const Numbers& start,
                              const std::vector<RowRange>* rows) {
    std::vector<float> grad(kGradRows * kGradColumns);
    std::memcpy(grad.data(), start.view().data, grad.size() * sizeof(float));
    args.grad_weight = TensorView::of(grad.data(), DType::kF32, Shape{kGradRows, kGradColumns});
    if (rows) {
      linear_backward_weight_rows(*stream_, args, *rows);
    } else {
      linear_backward_weight(*stream_, args);
    }
    stream_->synchronize();
    return grad;
  }
};

INSTANTIATE_TEST_SUITE_P(Isas, LinearRowsOnIsa, ::testing::ValuesIn(supported_isas()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

// Every row that is asked for has the bits of the whole product, and every other what was there.
TEST_P(LinearRowsOnIsa, ComputesTheseRowsAndNoOthers) {
  const std::vector<std::vector<RowRange>> choices = {
      {{0, 190}}, {{0, 32}}, {{32, 96}, {128, 190}}, {{0, 32}, {64, 96}, {160, 190}}, {{1, 5}}};
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Rng rng(3);
    const Numbers src(compute, kGradTokens, kGradColumns, rng);
    const Numbers grad_dst(compute, kGradTokens, kGradRows, rng);
    const Numbers start(DType::kF32, kGradRows, kGradColumns, rng);
    std::vector<std::byte> scratch(static_cast<size_t>(
        linear_backward_weight_scratch_bytes(compute, kGradTokens, kGradColumns)));
    for (const bool accumulate : {false, true}) {
      LinearBackwardWeight args{.grad_weight = {},
                                .grad_dst = grad_dst.view(),
                                .src = src.view(),
                                .compute = compute,
                                .accumulate = accumulate};
      use_threads(1);
      const std::vector<float> whole = gradient(args, start, nullptr);
      for (const auto& rows : choices) {
        std::vector<float> expected(kGradRows * kGradColumns);
        std::memcpy(expected.data(), start.view().data, expected.size() * sizeof(float));
        for (const RowRange& range : rows) {
          const int64_t first = range.begin * kGradColumns;
          std::memcpy(expected.data() + first, whole.data() + first,
                      static_cast<size_t>(range.count() * kGradColumns) * sizeof(float));
        }
        for (const bool with_scratch : {false, true}) {
          use_threads(with_scratch ? 3 : 1);
          if (with_scratch && !scratch.empty()) {
            args.scratch = TensorView::of(scratch.data(), DType::kU8, Shape{std::ssize(scratch)});
          }
          const std::vector<float> grad = gradient(args, start, &rows);
          EXPECT_EQ(std::memcmp(grad.data(), expected.data(), grad.size() * sizeof(float)), 0)
              << dtype_info(compute).name << " from row " << rows.front().begin;
          args.scratch = {};
        }
      }
    }
  }
}

TEST(LinearRows, RangesThatTouchBecomeOne) {
  std::vector<RowRange> rows;
  append_rows(rows, {0, 32});
  append_rows(rows, {32, 64});
  append_rows(rows, {64, 64});
  append_rows(rows, {96, 128});
  EXPECT_EQ(rows, (std::vector<RowRange>{{0, 64}, {96, 128}}));
}

}  // namespace
}  // namespace jige::ops
