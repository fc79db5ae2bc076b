// Biases of experts and the bounded gate: against plain double precision and finite differences,
// bit for bit everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ops/experts.h"
#include "ops/linear_test_support.h"
#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::expect_same_bits_everywhere;
using test::Numbers;
using test::TestStream;
using test::view_of;

constexpr int64_t kTokens = 9, kExperts = 4, kChosen = 2, kRows = kTokens * kChosen;
constexpr float kAlpha = 1.702f, kLimit = 1.25f;

// A routing with memory of its own.
struct BiasRoutes {
  explicit BiasRoutes(Stream& stream, uint64_t seed = 5)
      : logits(kTokens * kExperts),
        weights(kRows),
        chosen(kRows),
        row_of_place(kRows),
        place_of_row(kRows),
        row_ends(kExperts) {
    Rng rng(seed);
    for (float& logit : logits) logit = 2 * rough_normal(rng);
    route(stream, routing());
  }
  Routing routing() {
    const Shape places{kTokens, kChosen};
    return {.logits = TensorView::of(logits.data(), DType::kF32, Shape{kTokens, kExperts}),
            .chosen = TensorView::of(chosen.data(), DType::kI32, places),
            .weights = TensorView::of(weights.data(), DType::kF32, places),
            .row_of_place = TensorView::of(row_of_place.data(), DType::kI32, places),
            .place_of_row = view_of(place_of_row),
            .row_ends = view_of(row_ends),
            .normalised = true};
  }
  int64_t place(int64_t row) const { return place_of_row[static_cast<size_t>(row)]; }
  int64_t expert(int64_t row) const { return chosen[static_cast<size_t>(place(row))]; }

  std::vector<float> logits, weights;
  std::vector<int32_t> chosen, row_of_place, place_of_row, row_ends;
};

double gated(double gate, double up) {
  gate = std::min(gate, double{kLimit});
  up = std::clamp(up, -double{kLimit}, double{kLimit});
  return (up + 1) * gate / (1 + std::exp(-double{kAlpha} * gate));
}

TEST(ExpertBiases, TheBoundedGateMatchesItsDefinitionAndItsSlopes) {
  for (const int64_t width : {1, 16, 21, 40}) {
    TestStream stream;
    BiasRoutes routes(*stream);
    Rng rng(7);
    const Numbers gate_up(DType::kF32, kRows, 2 * width, rng);
    const Numbers biases(DType::kF32, kExperts, 2 * width, rng);
    const Numbers grad(DType::kF32, kRows, width, rng);
    Numbers dst(DType::kF32, kRows, width, rng), again(DType::kF32, kRows, width, rng);
    Numbers slopes(DType::kF32, kRows, 2 * width, rng);
    const BoundedGate gate{.biases = biases.view(), .alpha = kAlpha, .limit = kLimit};
    bounded_gate(*stream, routes.routing(), gate, dst.view(), gate_up.view());
    bounded_gate_backward(*stream, routes.routing(), gate,
                          {.grad_gate_up = slopes.view(),
                           .grad_dst = grad.view(),
                           .gate_up = gate_up.view(),
                           .activated = again.view()});
    int64_t out_of_bounds = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        const double g = double{gate_up.at(r, c)} + biases.at(routes.expert(r), c);
        const double u = double{gate_up.at(r, width + c)} + biases.at(routes.expert(r), width + c);
        EXPECT_NEAR(dst.at(r, c), gated(g, u), 2e-6 * std::max(1.0, std::abs(gated(g, u))));
        EXPECT_EQ(again.at(r, c), dst.at(r, c));
        out_of_bounds += g > kLimit || std::abs(u) > kLimit;
        constexpr double kStep = 1e-6;
        if (std::abs(g - kLimit) < 1e-5 || std::abs(std::abs(u) - kLimit) < 1e-5) continue;
        const double by_gate = (gated(g + kStep, u) - gated(g - kStep, u)) / (2 * kStep);
        const double by_up = (gated(g, u + kStep) - gated(g, u - kStep)) / (2 * kStep);
        EXPECT_NEAR(slopes.at(r, c), by_gate * grad.at(r, c), 2e-5);
        EXPECT_NEAR(slopes.at(r, width + c), by_up * grad.at(r, c), 2e-5);
      }
    }
    EXPECT_GT(out_of_bounds, 0);
  }
}

TEST(ExpertBiases, AreAddedByExpertAndTheirGradientsAreSums) {
  constexpr int64_t kWidth = 37;
  TestStream stream;
  BiasRoutes routes(*stream);
  Rng rng(8);
  const Numbers biases(DType::kF32, kExperts, kWidth, rng);
  Rng again = rng;
  Numbers data(DType::kF32, kRows, kWidth, rng);
  const Numbers before(DType::kF32, kRows, kWidth, again);
  std::vector<float> dots(kRows, 0.5f);
  dot_biases(*stream, routes.routing(), view_of(dots), data.view(), biases.view());
  std::vector<std::vector<float>> sums(kExperts, std::vector<float>(kWidth, 1.0f));
  std::vector<TensorView> grads;
  for (auto& sum : sums) grads.push_back(view_of(sum));
  bias_gradients(*stream, routes.routing(), grads, data.view(), RowWeights::kRouter);
  add_biases(*stream, routes.routing(), data.view(), biases.view());
  std::vector<std::vector<double>> expected(kExperts, std::vector<double>(kWidth, 1.0));
  for (int64_t r = 0; r < kRows; ++r) {
    double dot = 0.5;
    for (int64_t c = 0; c < kWidth; ++c) {
      const auto bias = static_cast<float>(biases.at(routes.expert(r), c));
      EXPECT_EQ(static_cast<float>(data.at(r, c)), static_cast<float>(before.at(r, c)) + bias);
      dot += double{before.at(r, c)} * bias;
      expected[static_cast<size_t>(routes.expert(r))][static_cast<size_t>(c)] +=
          double{routes.weights[static_cast<size_t>(routes.place(r))]} * before.at(r, c);
    }
    EXPECT_NEAR(dots[static_cast<size_t>(routes.place(r))], dot, 2e-5);
  }
  for (size_t e = 0; e < expected.size(); ++e) {
    for (size_t c = 0; c < kWidth; ++c)
      EXPECT_NEAR(sums[e][c], expected[e][c], 1e-5) << e << " " << c;
  }
}

TEST(ExpertBiases, BitsDependOnNeitherThreadsNorInstructionSet) {
  expect_same_bits_everywhere([](Stream& stream) {
    BiasRoutes routes(stream);
    Rng rng(9);
    const Numbers gate_up(DType::kBF16, kRows, 90, rng);
    const Numbers biases(DType::kF32, kExperts, 90, rng);
    const Numbers grad(DType::kBF16, kRows, 45, rng);
    Numbers dst(DType::kBF16, kRows, 45, rng), slopes(DType::kBF16, kRows, 90, rng);
    const BoundedGate gate{.biases = biases.view(), .alpha = kAlpha, .limit = kLimit};
    bounded_gate(stream, routes.routing(), gate, dst.view(), gate_up.view());
    bounded_gate_backward(stream, routes.routing(), gate,
                          {.grad_gate_up = slopes.view(),
                           .grad_dst = grad.view(),
                           .gate_up = gate_up.view(),
                           .activated = dst.view()});
    std::vector<float> dots(kRows, 0.0f);
    dot_biases(stream, routes.routing(), view_of(dots), slopes.view(), biases.view());
    return std::pair(slopes.bytes(), dots);
  });
}

}  // namespace
}  // namespace jige::ops
