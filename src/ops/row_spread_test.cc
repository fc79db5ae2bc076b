// Matched and cut rows against plain double precision and finite differences, bit for bit
// everywhere.
#include "ops/row_spread.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::TestStream;
using test::Values;

constexpr int64_t kSpreadTokens = 3;

double mean_of_squares(const Values& x, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += x[i] * x[i];
  return sum / static_cast<double>(end - begin);
}

Values plain_match(const Values& x, const Values& target, size_t width, double floor) {
  Values result = x;
  for (size_t begin = 0; begin < x.size(); begin += width) {
    const double size = std::sqrt(mean_of_squares(target, begin, begin + width)) /
                        std::sqrt(std::max(mean_of_squares(x, begin, begin + width), floor));
    for (size_t i = begin; i < begin + width; ++i) result[i] *= size;
  }
  return result;
}

Values plain_cut(const Values& x, size_t width, double deviations) {
  Values result = x;
  for (size_t begin = 0; begin < x.size(); begin += width) {
    double mean = 0, squares = 0;
    for (size_t i = begin; i < begin + width; ++i) mean += x[i];
    mean /= static_cast<double>(width);
    for (size_t i = begin; i < begin + width; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double bound = mean + deviations * std::sqrt(squares / static_cast<double>(width));
    for (size_t i = begin; i < begin + width; ++i) result[i] = std::max(x[i] - bound, 0.0);
  }
  return result;
}

TEST(RowMatch, AgreesWithDouble) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const int64_t width : {1, 16, 37, 130}) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        Rng rng(3);
        Matrix src(type, kSpreadTokens, width), target(type, kSpreadTokens, width, 1);
        src.fill_normal(rng);
        target.fill_normal(rng, 3.0);
        // A row so small that the floor counts.
        for (int64_t c = 0; c < width; ++c) src.set(1, c, 1e-3);
        Matrix dst(type, kSpreadTokens, width, 2);
        row_match(*stream, {.dst = dst.view(), .src = src.view(), .target = target.view()});
        test::expect_near(
            dst, plain_match(src.values(), target.values(), static_cast<size_t>(width), 1e-5), 2e-6,
            1e-7, fmt::format("width {}", width));
      }
    }
  });
}

TEST(RowMatch, GradientsAgreeWithFiniteDifferences) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const int64_t width : {1, 16, 37, 130}) {
      Rng rng(4);
      Matrix src(DType::kF32, kSpreadTokens, width), target(DType::kF32, kSpreadTokens, width, 1);
      Matrix grad_dst(DType::kF32, kSpreadTokens, width),
          grad_target(DType::kF32, kSpreadTokens, width, 2);
      src.fill_normal(rng);
      target.fill_normal(rng);
      grad_dst.fill_normal(rng);
      grad_target.fill(0.5);  // which is added to
      constexpr double kFloor = 0.01;
      for (int64_t c = 0; c < width; ++c) src.set(2, c, 0.03 * (c % 2 == 0 ? 1.0 : -0.5));
      const auto columns = static_cast<size_t>(width);
      const Values x = src.values(), t = target.values(), dy = grad_dst.values();
      const auto by_src = test::finite_difference(
          [&](const Values& v) { return test::dot(dy, plain_match(v, t, columns, kFloor)); }, x);
      auto by_target = test::finite_difference(
          [&](const Values& v) { return test::dot(dy, plain_match(x, v, columns, kFloor)); }, t);
      for (double& value : by_target) value += 0.5;
      row_match_backward(*stream, {.grad_src = grad_dst.view(),
                                   .grad_target = grad_target.view(),
                                   .grad_dst = grad_dst.view(),
                                   .src = src.view(),
                                   .target = target.view(),
                                   .floor = kFloor});
      test::expect_near(grad_dst, by_src, 1e-5, 2e-5, fmt::format("src of {}", width));
      test::expect_near(grad_target, by_target, 1e-5, 2e-5, fmt::format("target of {}", width));
    }
  });
}

TEST(RowMatch, ATargetOfZerosGetsNoGradient) {
  TestStream stream;
  Matrix src(DType::kF32, 1, 5), target(DType::kF32, 1, 5), grad(DType::kF32, 1, 5);
  Matrix grad_target(DType::kF32, 1, 5);
  src.fill(2);
  target.fill(0);
  grad.fill(1);
  grad_target.fill(0);
  row_match_backward(*stream, {.grad_src = grad.view(),
                               .grad_target = grad_target.view(),
                               .grad_dst = grad.view(),
                               .src = src.view(),
                               .target = target.view()});
  EXPECT_EQ(grad.values(), Values(5, 0.0));
  EXPECT_EQ(grad_target.values(), Values(5, 0.0));
}

TEST(RowCut, AgreesWithDouble) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const int64_t width : {1, 16, 37, 130}) {
      for (const double deviations : {-0.5, 0.0, 1.2}) {
        Rng rng(5);
        Matrix src(DType::kF32, kSpreadTokens, width), dst(DType::kF32, kSpreadTokens, width, 1);
        src.fill_normal(rng, 2.0, 0.3);
        row_cut(*stream, dst.view(), src.view(), deviations);
        test::expect_near(dst, plain_cut(src.values(), static_cast<size_t>(width), deviations),
                          2e-6, 2e-6, fmt::format("width {}", width));
      }
    }
  });
}

TEST(RowCut, GradientsAgreeWithFiniteDifferences) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const int64_t width : {2, 16, 37, 130}) {
      for (const double deviations : {-0.5, 1.2}) {
        Rng rng(6);
        Matrix src(DType::kF32, kSpreadTokens, width), grad(DType::kF32, kSpreadTokens, width, 1);
        src.fill_normal(rng, 2.0, 0.3);
        grad.fill_normal(rng);
        const Values x = src.values(), dy = grad.values();
        const auto expected = test::finite_difference(
            [&](const Values& v) {
              return test::dot(dy, plain_cut(v, static_cast<size_t>(width), deviations));
            },
            x, 1e-6);
        row_cut_backward(*stream, grad.view(), grad.view(), src.view(), deviations);
        test::expect_near(grad, expected, 1e-5, 1e-5, fmt::format("width {}", width));
      }
    }
  });
}

TEST(RowCut, ARowWithoutSpreadIsCutAway) {
  TestStream stream;
  Matrix src(DType::kF32, 1, 4), dst(DType::kF32, 1, 4), grad(DType::kF32, 1, 4);
  src.fill(0.75);
  grad.fill(1);
  row_cut(*stream, dst.view(), src.view(), 1.6);
  row_cut_backward(*stream, grad.view(), grad.view(), src.view(), 1.6);
  EXPECT_EQ(dst.values(), Values(4, 0.0));
  EXPECT_EQ(grad.values(), Values(4, 0.0));
}

TEST(RowCut, DeviationsAreThoseOfANormalDistribution) {
  EXPECT_NEAR(normal_deviations(0.95), 1.6448536269514722, 1e-12);
  EXPECT_NEAR(normal_deviations(0.5), 0.0, 1e-12);
  EXPECT_NEAR(normal_deviations(0.1), -1.2815515655446004, 1e-12);
}

TEST(RowSpread, BitsDependOnNeitherThreadsNorInstructionSet) {
  test::expect_same_bits_everywhere([](Stream& stream) {
    Rng rng(8);
    Matrix src(DType::kF32, 90, 77), target(DType::kF32, 90, 77), grad(DType::kF32, 90, 77);
    Matrix grad_target(DType::kF32, 90, 77), dst(DType::kF32, 90, 77), cut(DType::kF32, 90, 77);
    src.fill_normal(rng);
    target.fill_normal(rng);
    grad.fill_normal(rng);
    grad_target.fill(0);
    row_match(stream, {.dst = dst.view(), .src = src.view(), .target = target.view()});
    row_cut(stream, cut.view(), src.view(), 0.7);
    row_cut_backward(stream, grad.view(), grad.view(), src.view(), 0.7);
    row_match_backward(stream, {.grad_src = grad.view(),
                                .grad_target = grad_target.view(),
                                .grad_dst = grad.view(),
                                .src = src.view(),
                                .target = target.view()});
    return std::tuple(dst.values(), cut.values(), grad.values(), grad_target.values());
  });
}

}  // namespace
}  // namespace jige::ops
