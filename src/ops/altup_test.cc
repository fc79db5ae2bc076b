// AltUp's steps against plain double precision and finite differences, bit for bit everywhere.
#include "ops/altup.h"

#include <fmt/format.h>

#include <tuple>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::TestStream;
using test::Values;

constexpr int64_t kStreamTokens = 3;

struct StreamSizes {
  int64_t streams, width;
};
constexpr StreamSizes kStreamSizes[] = {{2, 1}, {3, 17}, {4, 40}, {4, 37}};

size_t index_of(int64_t row, int64_t column, int64_t columns) {
  return static_cast<size_t>(row * columns + column);
}

Matrix random_rows(Rng& rng, int64_t columns) {
  Matrix matrix(DType::kF32, kStreamTokens, columns, 2);
  matrix.fill_normal(rng);
  return matrix;
}

// All streams, the first of them in front.
Values plain_predict(const Values& x, const Values& map, const StreamSizes& sizes) {
  const auto [n, d] = sizes;
  Values result = x;
  for (int64_t t = 0; t < kStreamTokens; ++t) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t c = 0; c < d; ++c) {
          result[index_of(t, i * d + c, n * d)] +=
              map[index_of(t, i * n + j, n * n)] * x[index_of(t, j * d + c, n * d)];
        }
      }
    }
  }
  return result;
}

Values plain_correct(const Values& p, const Values& y, const Values& gains,
                     const StreamSizes& sizes) {
  const auto [n, d] = sizes;
  Values result = p;
  for (int64_t t = 0; t < kStreamTokens; ++t) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < d; ++c) {
        result[index_of(t, i * d + c, n * d)] +=
            (1 + gains[index_of(t, i, n)]) * (y[index_of(t, c, d)] - p[index_of(t, c, n * d)]);
      }
    }
  }
  return result;
}

// Columns [begin, end) of every row.
Values columns_between(const Values& all, int64_t columns, int64_t begin, int64_t end) {
  Values result;
  for (int64_t t = 0; t < kStreamTokens; ++t) {
    for (int64_t c = begin; c < end; ++c) result.push_back(all[index_of(t, c, columns)]);
  }
  return result;
}

TEST(AltUp, PredictionsAgreeWithDouble) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const StreamSizes& sizes : kStreamSizes) {
      const auto [n, d] = sizes;
      Rng rng(3);
      Matrix src = random_rows(rng, n * d), map = random_rows(rng, n * n);
      Matrix active(DType::kF32, kStreamTokens, d),
          others(DType::kF32, kStreamTokens, (n - 1) * d, 1);
      altup_predict(
          *stream,
          {.active = active.view(), .others = others.view(), .src = src.view(), .map = map.view()});
      const Values expected = plain_predict(src.values(), map.values(), sizes);
      test::expect_near(active, columns_between(expected, n * d, 0, d), 1e-6, 1e-6, "active");
      test::expect_near(others, columns_between(expected, n * d, d, n * d), 1e-6, 1e-6, "others");
    }
  });
}

TEST(AltUp, GradientsOfPredictionsAgreeWithFiniteDifferences) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const StreamSizes& sizes : kStreamSizes) {
      const auto [n, d] = sizes;
      Rng rng(4);
      Matrix src = random_rows(rng, n * d), map = random_rows(rng, n * n);
      Matrix grad = random_rows(rng, n * d), grad_map(DType::kF32, kStreamTokens, n * n, 1);
      const Values x = src.values(), m = map.values(), dy = grad.values();
      altup_predict_backward(
          *stream,
          {.grad = grad.view(), .grad_map = grad_map.view(), .src = src.view(), .map = map.view()});
      const std::string what = fmt::format("{} streams of {}", n, d);
      const auto by_src = test::finite_difference(
          [&](const Values& v) { return test::dot(dy, plain_predict(v, m, sizes)); }, x);
      test::expect_near(grad, by_src, 2e-6, 5e-6, what);
      const auto by_map = test::finite_difference(
          [&](const Values& v) { return test::dot(dy, plain_predict(x, v, sizes)); }, m);
      test::expect_near(grad_map, by_map, 2e-6, 2e-5, what);
    }
  });
}

TEST(AltUp, CorrectionsAgreeWithDouble) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const StreamSizes& sizes : kStreamSizes) {
      const auto [n, d] = sizes;
      Rng rng(5);
      Matrix dst = random_rows(rng, n * d), result = random_rows(rng, d);
      Matrix gains = random_rows(rng, n), active(DType::kF32, kStreamTokens, d);
      active.fill_by([&](int64_t r, int64_t c) { return static_cast<double>(dst.get(r, c)); });
      const Values expected = plain_correct(dst.values(), result.values(), gains.values(), sizes);
      for (int64_t t = 0; t < kStreamTokens; ++t) {
        for (int64_t c = 0; c < d; ++c) dst.set(t, c, 1e6);  // what stands there does not count
      }
      altup_correct(*stream, {.dst = dst.view(),
                              .active = active.view(),
                              .result = result.view(),
                              .gains = gains.view()});
      test::expect_near(dst, expected, 1e-6, 1e-6, "corrected");
    }
  });
}

TEST(AltUp, GradientsOfCorrectionsAgreeWithFiniteDifferences) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const StreamSizes& sizes : kStreamSizes) {
      const auto [n, d] = sizes;
      Rng rng(6);
      Matrix p = random_rows(rng, n * d), result = random_rows(rng, d);
      Matrix gains = random_rows(rng, n), grad = random_rows(rng, n * d);
      Matrix grad_result(DType::kF32, kStreamTokens, d, 1),
          grad_gains(DType::kF32, kStreamTokens, n, 1);
      const Values predicted = p.values(), y = result.values(), g = gains.values();
      const Values dq = grad.values();
      const TensorView active = p.view().column_range(0, d);
      altup_correct_backward(*stream, {.grad = grad.view(),
                                       .grad_result = grad_result.view(),
                                       .grad_gains = grad_gains.view(),
                                       .active = active,
                                       .result = result.view(),
                                       .gains = gains.view()});
      const auto loss = [&](const Values& at_p, const Values& at_y, const Values& at_g) {
        return test::dot(dq, plain_correct(at_p, at_y, at_g, sizes));
      };
      const std::string what = fmt::format("{} streams of {}", n, d);
      test::expect_near(
          grad, test::finite_difference([&](const Values& v) { return loss(v, y, g); }, predicted),
          2e-6, 1e-5, what);
      test::expect_near(
          grad_result,
          test::finite_difference([&](const Values& v) { return loss(predicted, v, g); }, y), 2e-6,
          1e-5, what);
      test::expect_near(
          grad_gains,
          test::finite_difference([&](const Values& v) { return loss(predicted, y, v); }, g), 2e-6,
          2e-5, what);
    }
  });
}

TEST(AltUp, ColumnsAreScaled) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Rng rng(7);
      Matrix src(type, kStreamTokens, 37), dst(type, kStreamTokens, 37, 1),
          factors(DType::kF32, 1, 37, 0);
      src.fill_normal(rng);
      factors.fill_normal(rng);
      scale_columns(*stream, dst.view(), src.view(), factors.vector());
      Values expected = src.values();
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] *= static_cast<double>(factors.get(0, static_cast<int64_t>(i % 37)));
      }
      test::expect_near(dst, expected, 1e-7, 1e-7, "scaled");
    }
  });
}

TEST(AltUp, BitsDependOnNeitherThreadsNorInstructionSet) {
  test::expect_same_bits_everywhere([](Stream& stream) {
    constexpr int64_t kRows = 90, kWidth = 77, kCount = 4;
    Rng rng(8);
    const auto random = [&](int64_t columns) {
      Matrix matrix(DType::kF32, kRows, columns);
      matrix.fill_normal(rng);
      return matrix;
    };
    Matrix src = random(kCount * kWidth), map = random(kCount * kCount), gains = random(kCount);
    Matrix result = random(kWidth), dst = random(kCount * kWidth), active = random(kWidth);
    Matrix grad_map(DType::kF32, kRows, kCount * kCount), grad_gains(DType::kF32, kRows, kCount);
    const TensorView others = dst.view().column_range(kWidth, kCount * kWidth);
    altup_predict(stream, {active.view(), others, src.view(), map.view()});
    altup_correct(stream, {dst.view(), active.view(), result.view(), gains.view()});
    Matrix grad = dst, grad_result = random(kWidth);
    altup_correct_backward(stream, {grad.view(), grad_result.view(), grad_gains.view(),
                                    active.view(), result.view(), gains.view()});
    altup_predict_backward(stream, {grad.view(), grad_map.view(), src.view(), map.view()});
    return std::tuple(dst.values(), grad.values(), grad_result.values(), grad_gains.values(),
                      grad_map.values());
  });
}

}  // namespace
}  // namespace jige::ops
