// Products of kept columns against whole ones with zeros in place of what is left out.
#include "ops/kept_linear.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "ops/linear_test_support.h"
#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Numbers;

constexpr int64_t kHidden = 256;
constexpr int64_t kKeptBlock = 32;
constexpr int64_t kKeptBlocks = 5;
constexpr int64_t kWidth = 72;  // of the other side
constexpr DType kKeptTypes[] = {DType::kF32, DType::kBF16};

// Ranges of rows that end at these, each with other blocks.
KeptColumns kept_by(const std::vector<int64_t>& ends, uint64_t seed) {
  KeptColumns kept{.size = kHidden, .kept = kKeptBlocks * kKeptBlock, .rows = {}};
  Rng rng(seed);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    std::vector<int64_t> blocks(kHidden / kKeptBlock);
    std::iota(blocks.begin(), blocks.end(), int64_t{0});
    rng.shuffle(std::span(blocks));
    blocks.resize(kKeptBlocks);
    std::sort(blocks.begin(), blocks.end());
    KeptRows rows{begin, end, {}};
    for (const int64_t block : blocks) {
      const int64_t column = block * kKeptBlock;
      if (!rows.runs.empty() && rows.runs.back().begin + rows.runs.back().count == column) {
        rows.runs.back().count += kKeptBlock;
      } else {
        rows.runs.push_back({column, kKeptBlock});
      }
    }
    kept.rows.push_back(rows);
    begin = end;
  }
  return kept;
}

// Where a column of what is computed stands among all of so many parts.
std::vector<int64_t> columns_of(const KeptColumns& kept, const KeptRows& rows, int64_t parts) {
  std::vector<int64_t> columns;
  for (int64_t p = 0; p < parts; ++p) {
    for (const KeptRun& run : rows.runs) {
      for (int64_t c = 0; c < run.count; ++c) columns.push_back(p * kept.size + run.begin + c);
    }
  }
  return columns;
}

class KeptLinear : public testing::Test, protected test::LinearDevice {
 protected:
  Numbers random(DType dtype, int64_t rows, int64_t columns) {
    return Numbers(dtype, rows, columns, rng_);
  }
  Numbers zeros(DType dtype, int64_t rows, int64_t columns) {
    return Numbers(dtype, rows, columns);
  }
  Numbers copy_of(const Numbers& numbers) {
    const TensorView& view = numbers.view();
    Numbers made(view.dtype, view.rows(), view.columns());
    std::memcpy(made.view().data, view.data, numbers.bytes().size());
    return made;
  }
  // The kept columns [T, P K] among zeros, [T, P F].
  Numbers spread(const Numbers& compact, const KeptColumns& kept) {
    const int64_t parts = compact.view().columns() / kept.kept;
    Numbers whole = zeros(compact.view().dtype, compact.view().rows(), parts * kept.size);
    const auto bytes = static_cast<size_t>(dtype_bytes(compact.view().dtype, 1));
    for (const KeptRows& rows : kept.rows) {
      const std::vector<int64_t> columns = columns_of(kept, rows, parts);
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        for (size_t i = 0; i < columns.size(); ++i) {
          const auto column = static_cast<int64_t>(i);
          std::memcpy(
              whole.view().row_range(r, r + 1).column_range(columns[i], columns[i] + 1).data,
              compact.view().row_range(r, r + 1).column_range(column, column + 1).data, bytes);
        }
      }
    }
    return whole;
  }
  PackedWeight packed(const Numbers& weight, DType compute, PackUse use) {
    return packed_in_parts(
        {.compute = compute, .use = use, .n = weight.view().rows(), .k = weight.view().columns()},
        weight.view(), 1);
  }
  // As numbers: of zeros the signs may differ.
  static void expect_equal(const Numbers& a, const Numbers& b, const std::string& what) {
    ASSERT_EQ(a.view().shape, b.view().shape) << what;
    for (int64_t r = 0; r < a.view().rows(); ++r) {
      for (int64_t c = 0; c < a.view().columns(); ++c) {
        if (a.at(r, c) == b.at(r, c)) continue;
        FAIL() << what << ": " << a.at(r, c) << ", not " << b.at(r, c) << " in row " << r
               << ", column " << c;
      }
    }
  }
  void check_products(DType compute, DType result, const std::vector<int64_t>& ends, int64_t parts);
  void check_weight_gradients(DType compute, const std::vector<int64_t>& ends, double tolerance);

  Rng rng_{7};
};

const std::vector<std::vector<int64_t>> kEnds = {{1}, {5, 65}, {70, 73, 230}, {33, 64, 65, 200}};

void KeptLinear::check_products(DType compute, DType result, const std::vector<int64_t>& ends,
                                int64_t parts) {
  const int64_t rows = ends.back();
  const KeptColumns kept = kept_by(ends, static_cast<uint64_t>(rows));
  SCOPED_TRACE(fmt::format("{} rows, {} parts", rows, parts));
  const Numbers in = random(DType::kF32, parts * kHidden, kWidth);  // [P F, D]
  const Numbers out = random(DType::kF32, kWidth, parts * kHidden);
  const Numbers narrow = random(compute, rows, kWidth);
  const Numbers hidden = random(compute, rows, parts * kept.kept);
  const Numbers hidden_whole = spread(hidden, kept);
  const Numbers bias_in = random(DType::kF32, 1, parts * kHidden);
  const Numbers bias_out = random(DType::kF32, 1, kWidth);
  for (const PackUse use : {PackUse::kForward, PackUse::kInputGradient}) {
    const bool forward = use == PackUse::kForward;
    // To the hidden width: all of its columns, of which the kept ones count.
    const PackedWeight to = packed(forward ? in : out, compute, use);
    Numbers all = zeros(result, rows, parts * kHidden);
    Numbers some = zeros(result, rows, parts * kept.kept);
    if (forward) {
      linear_forward(
          *stream_,
          {.dst = all.view(), .src = narrow.view(), .weight = to, .bias = bias_in.vector()});
    } else {
      linear_backward_input(*stream_,
                            {.grad_src = all.view(), .grad_dst = narrow.view(), .weight = to});
    }
    kept_product(*stream_,
                 {.dst = some.view(),
                  .src = narrow.view(),
                  .weight = to,
                  .bias = forward ? bias_in.vector() : TensorView{},
                  .side = forward ? KeptSide::kOutputs : KeptSide::kInputs},
                 kept);
    for (const KeptRows& range : kept.rows) {
      const std::vector<int64_t> columns = columns_of(kept, range, parts);
      for (int64_t r = range.begin; r < range.end; ++r) {
        for (size_t i = 0; i < columns.size(); ++i) {
          if (some.at(r, static_cast<int64_t>(i)) == all.at(r, columns[i])) continue;
          FAIL() << "row " << r << ", column " << i;
        }
      }
    }
    // From it: zeros in place of what is left out.
    const PackedWeight from = packed(forward ? out : in, compute, use);
    Numbers expected = zeros(result, rows, kWidth);
    Numbers made = zeros(result, rows, kWidth);
    if (forward) {
      linear_forward(*stream_, {.dst = expected.view(),
                                .src = hidden_whole.view(),
                                .weight = from,
                                .bias = bias_out.vector()});
    } else {
      linear_backward_input(
          *stream_, {.grad_src = expected.view(), .grad_dst = hidden_whole.view(), .weight = from});
    }
    kept_product(*stream_,
                 {.dst = made.view(),
                  .src = hidden.view(),
                  .weight = from,
                  .bias = forward ? bias_out.vector() : TensorView{},
                  .side = forward ? KeptSide::kInputs : KeptSide::kOutputs},
                 kept);
    expect_equal(made, expected, forward ? "forward" : "input gradient");
  }
}

// In one part on one thread and in two on two, or the other way round, in turn.
TEST_F(KeptLinear, ProductsHaveTheBitsOfWholeOnesWithZeros) {
  for (const int threads : {1, 2}) {
    use_threads(threads);
    test::for_each_isa([&] {
      int64_t turn = threads;
      for (const DType compute : kKeptTypes) {
        for (const DType result : kKeptTypes) {
          for (const auto& ends : kEnds) check_products(compute, result, ends, 1 + turn++ % 2);
          ++turn;
        }
      }
    });
  }
}

void KeptLinear::check_weight_gradients(DType compute, const std::vector<int64_t>& ends,
                                        double tolerance) {
  const int64_t rows = ends.back();
  const KeptColumns kept = kept_by(ends, static_cast<uint64_t>(rows));
  const Numbers narrow = random(compute, rows, kWidth);
  const Numbers gate_up = random(compute, rows, 2 * kept.kept);
  const Numbers activated = random(compute, rows, kept.kept);
  const Numbers gate_up_whole = spread(gate_up, kept);
  const Numbers activated_whole = spread(activated, kept);
  const auto close = [&](const Numbers& made, const Numbers& expected, const std::string& what) {
    if (tolerance == 0) return expect_equal(made, expected, what);
    for (int64_t r = 0; r < made.view().rows(); ++r) {
      for (int64_t c = 0; c < made.view().columns(); ++c) {
        ASSERT_NEAR(made.at(r, c), expected.at(r, c), tolerance * (1 + std::abs(made.at(r, c))))
            << what << ": row " << r << ", column " << c;
      }
    }
  };
  const Numbers start_in = random(DType::kF32, 2 * kHidden, kWidth);
  const Numbers start_out = random(DType::kF32, kWidth, kHidden);
  for (const bool scratch_given : {false, true}) {
    SCOPED_TRACE(fmt::format("{} rows, {} scratch", rows, scratch_given ? "with" : "without"));
    std::vector<std::byte> scratch(
        static_cast<size_t>(kept_weight_scratch_bytes(compute, rows, kHidden)));
    const TensorView memory =
        scratch_given ? TensorView::of(scratch.data(), DType::kU8, Shape{std::ssize(scratch)})
                      : TensorView{};
    const Numbers expected = copy_of(start_in);
    const Numbers made = copy_of(start_in);
    linear_backward_weight(*stream_, {.grad_weight = expected.view(),
                                      .grad_dst = gate_up_whole.view(),
                                      .src = narrow.view(),
                                      .compute = compute});
    kept_weight_gradient(
        *stream_,
        {.grads = {made.view().row_range(0, kHidden), made.view().row_range(kHidden, 2 * kHidden)},
         .grad_dst = gate_up.view(),
         .src = narrow.view(),
         .compute = compute,
         .scratch = memory,
         .side = KeptSide::kOutputs},
        kept);
    close(made, expected, "gate and up");
    const Numbers expected_out = copy_of(start_out);
    const Numbers made_out = copy_of(start_out);
    linear_backward_weight(*stream_, {.grad_weight = expected_out.view(),
                                      .grad_dst = narrow.view(),
                                      .src = activated_whole.view(),
                                      .compute = compute});
    kept_weight_gradient(*stream_,
                         {.grads = {made_out.view()},
                          .grad_dst = narrow.view(),
                          .src = activated.view(),
                          .compute = compute,
                          .scratch = memory,
                          .side = KeptSide::kInputs},
                         kept);
    close(made_out, expected_out, "down");
  }
}

TEST_F(KeptLinear, WeightGradientsInF32HaveTheBitsOfWholeOnesWithZeros) {
  for (const int threads : {1, 2}) {
    use_threads(threads);
    test::for_each_isa([&] {
      for (const auto& ends : kEnds) check_weight_gradients(DType::kF32, ends, 0);
    });
  }
}

// Sums of pairs and tiles begin where a range of rows does.
TEST_F(KeptLinear, WeightGradientsInBf16HaveThemForOneRangeOfRowsAndAreCloseForMore) {
  test::for_each_isa([&] {
    for (const auto& ends : kEnds) {
      check_weight_gradients(DType::kBF16, ends, ends.size() == 1 ? 0 : 1e-5);
    }
    check_weight_gradients(DType::kBF16, {130}, 0);
  });
}

TEST_F(KeptLinear, BiasGradientsAreThoseOfTheRowsThatKeepAColumn) {
  const KeptColumns kept = kept_by({5, 65, 70}, 3);
  const Numbers grad_dst = random(DType::kF32, 70, kept.kept);
  const Numbers whole = spread(grad_dst, kept);
  const Numbers start = random(DType::kF32, 1, kHidden);
  const Numbers made = copy_of(start);
  const Numbers expected = copy_of(start);
  kept_bias_gradient(*stream_, made.vector(), grad_dst.view(), kept);
  bias_backward(*stream_, expected.vector(), whole.view());
  expect_equal(made, expected, "bias");
}

// Neither weights nor what stands in memory of columns that are left out.
TEST_F(KeptLinear, NothingIsReadOfWhatIsLeftOut) {
  const KeptColumns kept = kept_by({130}, 4);
  const std::vector<int64_t> columns = columns_of(kept, kept.rows[0], 1);
  for (const DType compute : kKeptTypes) {
    const Numbers in = random(DType::kF32, kHidden, kWidth);
    const Numbers out = random(DType::kF32, kWidth, kHidden);
    for (int64_t h = 0; h < kHidden; ++h) {
      if (std::ranges::binary_search(columns, h)) continue;
      for (int64_t c = 0; c < kWidth; ++c) {
        in.view().as<float>()[h * kWidth + c] = std::numeric_limits<float>::quiet_NaN();
        out.view().as<float>()[c * kHidden + h] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    const Numbers src = random(compute, 130, kWidth);
    const Numbers hidden = zeros(compute, 130, kept.kept);
    const Numbers dst = zeros(DType::kF32, 130, kWidth);
    kept_product(*stream_,
                 {.dst = hidden.view(),
                  .src = src.view(),
                  .weight = packed(in, compute, PackUse::kForward),
                  .bias = {},
                  .side = KeptSide::kOutputs},
                 kept);
    kept_product(*stream_,
                 {.dst = dst.view(),
                  .src = hidden.view(),
                  .weight = packed(out, compute, PackUse::kForward),
                  .bias = {},
                  .side = KeptSide::kInputs},
                 kept);
    for (int64_t r = 0; r < 130; ++r) {
      for (int64_t c = 0; c < kWidth; ++c) ASSERT_TRUE(std::isfinite(dst.at(r, c))) << r;
    }
  }
}

}  // namespace
}  // namespace jige::ops
