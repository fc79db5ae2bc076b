// xIELU against plain double precision and finite differences, bit for bit everywhere.
#include "ops/xielu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::TestStream;
using test::Values;

// alpha_p, alpha_n, beta, eps.
using CurveNumbers = std::array<double, 4>;

constexpr CurveNumbers kCurves[] = {
    {0.2, -1.05, 0.5, -1e-6}, {-3, 2, 0.5, -1e-6}, {25, 0.1, 0.25, -0.5}};

double plain_xielu(double x, const CurveNumbers& c) {
  const double p = std::log1p(std::exp(c[0])), n = c[2] + std::log1p(std::exp(c[1]));
  if (x > 0) return p * x * x + c[2] * x;
  return n * (std::expm1(std::min(x, c[3])) - x) + c[2] * x;
}

struct CurveViews {
  explicit CurveViews(const CurveNumbers& from) : numbers(DType::kF32, 4, 1, 0) {
    for (int64_t i = 0; i < 4; ++i) {
      numbers.view().as<float>()[i] = static_cast<float>(from[static_cast<size_t>(i)]);
    }
  }
  Xielu curve() {
    const auto one = [&](int64_t i) {
      return TensorView::of(numbers.view().as<float>() + i, DType::kF32, Shape{1});
    };
    return {.alpha_p = one(0), .alpha_n = one(1), .beta = one(2), .eps = one(3)};
  }
  Matrix numbers;
};

TEST(Xielu, ForwardAgreesWithDouble) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const CurveNumbers& numbers : kCurves) {
      CurveViews views(numbers);
      for (const DType src_type : {DType::kF32, DType::kBF16}) {
        for (const DType dst_type : {DType::kF32, DType::kBF16}) {
          Matrix src(src_type, 3, 201);
          src.fill_by(
              [](int64_t r, int64_t c) { return 0.03 * static_cast<double>(r * 201 + c) - 12; });
          Matrix dst(dst_type, 3, 201, 1);
          xielu_forward(*stream, views.curve(), dst.view(), src.view());
          Values expected = src.values();
          for (double& value : expected) value = plain_xielu(value, numbers);
          test::expect_near(dst, expected, 1e-6, 1e-6, "xielu");
        }
      }
    }
  });
}

// Where e^x - 1 - x would cancel.
TEST(Xielu, KeepsItsDigitsNearZero) {
  TestStream stream;
  test::for_each_isa([&] {
    CurveViews views(kCurves[0]);
    Matrix src(DType::kF32, 1, 64), dst(DType::kF32, 1, 64);
    src.fill_by([](int64_t, int64_t c) { return -std::pow(0.5, static_cast<double>(c) / 2); });
    xielu_forward(*stream, views.curve(), dst.view(), src.view());
    for (int64_t c = 0; c < 64; ++c) {
      const double expected = plain_xielu(src.get(0, c), kCurves[0]);
      EXPECT_NEAR(dst.get(0, c), expected, 4e-7 * std::abs(expected)) << src.get(0, c);
    }
  });
}

TEST(Xielu, GradientsAgreeWithFiniteDifferences) {
  TestStream stream;
  test::for_each_isa([&] {
    for (const CurveNumbers& numbers : {kCurves[0], kCurves[1]}) {
      CurveViews views(numbers);
      for (const DType src_type : {DType::kF32, DType::kBF16}) {
        for (const int64_t width : {1, 16, 37, 130}) {
          Rng rng(5);
          Matrix src(src_type, 3, width), grad_dst(src_type, 3, width);
          src.fill_normal(rng, 2.0);
          grad_dst.fill_normal(rng);
          Matrix grad_src(src_type, 3, width, 2), slopes(DType::kF32, 3, 2, 1);
          xielu_backward(*stream, views.curve(), grad_src.view(), grad_dst.view(), src.view(),
                         slopes.view());
          const Values x = src.values(), dy = grad_dst.values();
          const auto loss = [&](const Values& at, const CurveNumbers& curve, size_t begin,
                                size_t end) {
            double sum = 0;
            for (size_t i = begin; i < end; ++i) sum += dy[i] * plain_xielu(at[i], curve);
            return sum;
          };
          const Values expected = test::finite_difference(
              [&](const Values& at) { return loss(at, numbers, 0, at.size()); }, x);
          test::expect_near(grad_src, expected, 2e-6, 4e-6, fmt::format("width {}", width));
          const auto columns = static_cast<size_t>(width);
          for (size_t t = 0; t < 3; ++t) {
            const Values by_alpha = test::finite_difference(
                [&](const Values& at) {
                  return loss(x, {at[0], at[1], numbers[2], numbers[3]}, t * columns,
                              (t + 1) * columns);
                },
                {numbers[0], numbers[1]});
            for (size_t i = 0; i < 2; ++i) {
              EXPECT_NEAR(slopes.get(static_cast<int64_t>(t), static_cast<int64_t>(i)), by_alpha[i],
                          1e-5 * (1 + std::abs(by_alpha[i])));
            }
          }
        }
      }
    }
  });
}

// As PyTorch has it: behind eps the power does not move.
TEST(Xielu, BetweenEpsAndZeroTheSlopeIsBetaLessTheFactor) {
  TestStream stream;
  CurveViews views(kCurves[2]);
  Matrix src(DType::kF32, 1, 3), grad(DType::kF32, 1, 3), slopes(DType::kF32, 1, 2);
  src.fill_by([](int64_t, int64_t c) { return c == 0 ? 0.0 : c == 1 ? -0.4 : -0.6; });
  grad.fill_by([](int64_t, int64_t) { return 1.0; });
  xielu_backward(*stream, views.curve(), grad.view(), grad.view(), src.view(), slopes.view());
  const double n = 0.25 + std::log1p(std::exp(0.1));
  EXPECT_NEAR(grad.get(0, 0), 0.25 - n, 1e-6);
  EXPECT_NEAR(grad.get(0, 1), 0.25 - n, 1e-6);
  EXPECT_NEAR(grad.get(0, 2), 0.25 + n * std::expm1(-0.6), 1e-6);
}

TEST(Xielu, BitsDependOnNeitherThreadsNorInstructionSet) {
  test::expect_same_bits_everywhere([](Stream& stream) {
    CurveViews views(kCurves[1]);
    Rng rng(8);
    Matrix src(DType::kF32, 90, 77), grad(DType::kF32, 90, 77), slopes(DType::kF32, 90, 2);
    src.fill_normal(rng, 3.0);
    grad.fill_normal(rng);
    Matrix dst(DType::kF32, 90, 77);
    xielu_forward(stream, views.curve(), dst.view(), src.view());
    xielu_backward(stream, views.curve(), grad.view(), grad.view(), src.view(), slopes.view());
    return std::tuple(dst.values(), grad.values(), slopes.values());
  });
}

}  // namespace
}  // namespace jige::ops
