// Choice of experts, rows by expert and their products.
#include "ops/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "base/rough_normal.h"
#include "ops/expert_linear.h"
#include "ops/linear_test_support.h"
#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::expect_same_bits_everywhere;
using test::Numbers;
using test::TestStream;
using test::view_of;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A routing with memory of its own.
struct Routes {
  Routes(int64_t token_count, int64_t expert_count, int64_t chosen_count, bool sums_to_one)
      : logits(static_cast<size_t>(token_count * expert_count)),
        weights(static_cast<size_t>(token_count * chosen_count)),
        chosen(weights.size()),
        row_of_place(weights.size()),
        place_of_row(weights.size()),
        row_ends(static_cast<size_t>(expert_count)),
        shape{token_count, expert_count, chosen_count},
        normalised(sums_to_one) {}

  Routing routing() {
    const Shape places{shape[0], shape[2]};
    return {.logits = TensorView::of(logits.data(), DType::kF32, Shape{shape[0], shape[1]}),
            .chosen = TensorView::of(chosen.data(), DType::kI32, places),
            .weights = TensorView::of(weights.data(), DType::kF32, places),
            .row_of_place = TensorView::of(row_of_place.data(), DType::kI32, places),
            .place_of_row = view_of(place_of_row),
            .row_ends = view_of(row_ends),
            .normalised = normalised};
  }

  std::vector<float> logits, weights;
  std::vector<int32_t> chosen, row_of_place, place_of_row, row_ends;
  Shape shape;  // [T, E, k]
  bool normalised;
};

Routes random_routes(Stream& stream, int64_t tokens, int64_t experts, int64_t chosen,
                     bool normalised, uint64_t seed) {
  Routes routes(tokens, experts, chosen, normalised);
  Rng rng(seed);
  for (float& logit : routes.logits) logit = 2 * rough_normal(rng);
  route(stream, routes.routing());
  return routes;
}

TEST(Experts, TakesTheHighestLogitsAndWeighsThemBySoftmax) {
  for (const bool normalised : {true, false}) {
    for (const auto& [experts, k] :
         {std::pair<int64_t, int64_t>{1, 1}, {5, 2}, {37, 8}, {20, 20}}) {
      TestStream stream;
      const Routes routes = random_routes(*stream, 23, experts, k, normalised, 5);
      for (int64_t t = 0; t < 23; ++t) {
        const float* logits = &routes.logits[static_cast<size_t>(t * experts)];
        const int32_t* chosen = &routes.chosen[static_cast<size_t>(t * k)];
        std::vector<float> sorted(logits, logits + experts);
        std::sort(sorted.rbegin(), sorted.rend());
        double sum = 0;
        for (int64_t e = 0; e < (normalised ? k : experts); ++e) {
          sum += std::exp(double{sorted[static_cast<size_t>(e)]});
        }
        EXPECT_TRUE(std::is_sorted(chosen, chosen + k, std::less_equal<>()) || k == 1);
        for (int64_t j = 0; j < k; ++j) {
          EXPECT_GE(logits[chosen[j]], sorted[static_cast<size_t>(k) - 1]);
          EXPECT_NEAR(routes.weights[static_cast<size_t>(t * k + j)],
                      std::exp(double{logits[chosen[j]]}) / sum, 1e-6);
        }
      }
    }
  }
}

TEST(Experts, OfEqualLogitsTheFirstAreChosenAndNanLast) {
  TestStream stream;
  Routes routes(3, 4, 2, true);
  routes.logits = {1, 3, 3, 3, kNan, 0, kNan, -5, kNan, kNan, kNan, kNan};
  route(*stream, routes.routing());
  EXPECT_EQ(routes.chosen, (std::vector<int32_t>{1, 2, 1, 3, 0, 1}));
  EXPECT_EQ(routes.weights[0], 0.5f);
  EXPECT_TRUE(std::isnan(routes.weights[4]));
}

// Few different values, so that most are equal to others, on both sides of every vector's end.
TEST(Experts, ChoosesAsSortingDoesWhateverTheLogitsAre) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {kNan, -kInfinity, -1.0f, -0.0f, 0.0f, 2.0f, kInfinity};
  constexpr int64_t kRoutedTokens = 12;
  expect_same_bits_everywhere([&](Stream& stream) {
    std::vector<int32_t> all;
    Rng rng(77);
    for (const int64_t experts : {1, 2, 15, 16, 17, 31, 33, 64, 100, 128, 1025}) {
      const auto most = std::min<uint64_t>(static_cast<uint64_t>(experts), 20);
      const auto k = static_cast<int64_t>(1 + rng.below(most));
      Routes routes(kRoutedTokens, experts, k, true);
      for (float& logit : routes.logits) logit = values[rng.below(values.size())];
      // Tokens of NaN alone, and of one number among them.
      std::fill_n(routes.logits.begin(), 2 * experts, kNan);
      routes.logits[static_cast<size_t>(experts) + rng.below(static_cast<uint64_t>(experts))] = 1;
      route(stream, routes.routing());
      for (int64_t t = 0; t < kRoutedTokens; ++t) {
        const float* logits = &routes.logits[static_cast<size_t>(t * experts)];
        const auto rank = [&](int32_t e) { return std::isnan(logits[e]) ? -kInfinity : logits[e]; };
        std::vector<int32_t> order(static_cast<size_t>(experts));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
        order.resize(static_cast<size_t>(k));
        std::sort(order.begin(), order.end());
        const auto* own = &routes.chosen[static_cast<size_t>(t * k)];
        EXPECT_EQ(std::vector<int32_t>(own, own + k), order) << experts << " experts, token " << t;
      }
      all.insert(all.end(), routes.chosen.begin(), routes.chosen.end());
    }
    return all;
  });
}

TEST(Experts, RowsStandByExpertAndThenByToken) {
  TestStream stream;
  Routes routes(4, 3, 2, true);
  routes.logits = {5, 4, 0, 0, 5, 4, 5, 4, 0, 4, 0, 5};  // 01 12 01 02
  route(*stream, routes.routing());
  EXPECT_EQ(routes.row_ends, (std::vector<int32_t>{3, 6, 8}));
  EXPECT_EQ(routes.row_of_place, (std::vector<int32_t>{0, 3, 4, 6, 1, 5, 2, 7}));
  for (int32_t place = 0; place < 8; ++place) {
    EXPECT_EQ(
        routes.place_of_row[static_cast<size_t>(routes.row_of_place[static_cast<size_t>(place)])],
        place);
  }
}

TEST(Experts, BitsDependOnNeitherThreadsInstructionSetNorOtherTokens) {
  expect_same_bits_everywhere([](Stream& stream) {
    Routes all = random_routes(stream, 70, 21, 4, false, 9);
    Rng rng(3);
    const Numbers src(DType::kBF16, 70, 45, rng);
    Numbers rows(DType::kBF16, 280, 45, rng), dst(DType::kF32, 70, 45, rng);
    gather_rows(stream, all.routing(), rows.view(), src.view());
    combine_rows(stream, all.routing(), dst.view(), rows.view(), RowWeights::kRouter);
    // The last token alone.
    Routes one(1, 21, 4, false);
    std::copy(all.logits.end() - 21, all.logits.end(), one.logits.begin());
    route(stream, one.routing());
    Numbers own(DType::kBF16, 4, 45, rng), result(DType::kF32, 1, 45, rng);
    gather_rows(stream, one.routing(), own.view(), src.view().row_range(69, 70));
    combine_rows(stream, one.routing(), result.view(), own.view(), RowWeights::kRouter);
    for (int64_t c = 0; c < 45; ++c) EXPECT_EQ(result.at(0, c), dst.at(69, c));
    return std::pair(dst.bytes(), all.weights);
  });
}

TEST(Experts, SlopesOfTheRouterMatchFiniteDifferences) {
  const int64_t experts = 6, k = 3;
  for (const bool normalised : {true, false}) {
    TestStream stream;
    Routes routes = random_routes(*stream, 1, experts, k, normalised, 17);
    std::vector<float> grads = {0.5f, -1.25f, 2.0f};
    std::vector<float> slopes(static_cast<size_t>(experts));
    route_backward(*stream, routes.routing(),
                   TensorView::of(slopes.data(), DType::kF32, {1, experts}),
                   TensorView::of(grads.data(), DType::kF32, {1, k}));
    const std::vector<double> at(routes.logits.begin(), routes.logits.end());
    const auto loss = [&](const std::vector<double>& logits) {
      double sum = 0, total = 0;
      for (int64_t e = 0; e < experts; ++e) {
        const bool counts =
            !normalised || std::count(routes.chosen.begin(), routes.chosen.end(), e);
        if (counts) sum += std::exp(logits[static_cast<size_t>(e)]);
      }
      for (size_t j = 0; j < grads.size(); ++j) {
        total += grads[j] * std::exp(logits[static_cast<size_t>(routes.chosen[j])]) / sum;
      }
      return total;
    };
    const auto expected = test::finite_difference(loss, at);
    for (size_t e = 0; e < slopes.size(); ++e) EXPECT_NEAR(slopes[e], expected[e], 2e-6);
  }
}

// Of experts whose weights come times a number of each.
TEST(Experts, NumbersOfExpertsScaleWeightsAndHaveTheirGradients) {
  const int64_t tokens = 9, experts = 6, k = 3, width = 5;
  TestStream stream;
  Routes routes = random_routes(*stream, tokens, experts, k, true, 23);
  std::vector<float> scales = {0.5f, -1.5f, 2.0f, 1.0f, 0.25f, 3.0f};
  std::vector<float> scaled(routes.weights.size());
  Routing routing = routes.routing();
  routing.scales = view_of(scales);
  routing.scaled_weights = TensorView::of(scaled.data(), DType::kF32, Shape{tokens, k});
  route(*stream, routing);
  for (size_t p = 0; p < scaled.size(); ++p) {
    EXPECT_EQ(scaled[p], routes.weights[p] * scales[static_cast<size_t>(routes.chosen[p])]);
  }
  // Rows of ones: every token gets the sum of its scaled weights.
  std::vector<float> rows(static_cast<size_t>(tokens * k * width), 1.0f);
  std::vector<float> dst(static_cast<size_t>(tokens * width));
  combine_rows(*stream, routing, TensorView::of(dst.data(), DType::kF32, {tokens, width}),
               TensorView::of(rows.data(), DType::kF32, {tokens * k, width}), RowWeights::kRouter);
  for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
    EXPECT_NEAR(dst[t * width], scaled[3 * t] + scaled[3 * t + 1] + scaled[3 * t + 2], 1e-6);
  }

  Rng rng(24);
  std::vector<float> grads(scaled.size()), slopes(scaled.size());
  for (float& grad : grads) grad = rough_normal(rng);
  const std::vector<float> at_scaled = grads;
  scale_slopes(*stream, routing, TensorView::of(grads.data(), DType::kF32, {tokens, k}),
               view_of(slopes));
  std::vector<float> grad_scales(static_cast<size_t>(experts), 0.5f);
  scale_gradients(*stream, routing, view_of(grad_scales), view_of(slopes));
  std::vector<double> expected(static_cast<size_t>(experts), 0.5);
  for (size_t p = 0; p < grads.size(); ++p) {
    const auto e = static_cast<size_t>(routes.chosen[p]);
    EXPECT_EQ(grads[p], at_scaled[p] * scales[e]);
    expected[e] += double{at_scaled[p]} * routes.weights[p];
  }
  for (size_t e = 0; e < expected.size(); ++e) EXPECT_NEAR(grad_scales[e], expected[e], 1e-6);
}

TEST(Experts, GatesOfRowsAndTheirGradientsMatchDouble) {
  test::for_each_isa([] {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      for (const int64_t width : {1, 15, 16, 33, 100}) {
        TestStream stream;
        Rng rng(12);
        const Numbers before(type, 7, width, rng), grad(type, 7, width, rng);
        Numbers logits(DType::kF32, 7, 5, rng), slopes(DType::kF32, 7, 3, rng);
        Rng again(12);
        Numbers gated(type, 7, width, again);
        const double tolerance = type == DType::kF32 ? 1e-6 : 0x1p-8;
        gate_rows(*stream, gated.view(), logits.view().column_range(4, 5));
        for (int64_t r = 0; r < 7; ++r) {
          const double gate = 1 / (1 + std::exp(-double{logits.at(r, 4)}));
          for (int64_t c = 0; c < width; ++c) {
            EXPECT_NEAR(gated.at(r, c), gate * before.at(r, c),
                        tolerance * std::abs(before.at(r, c)));
          }
        }
        Rng third(12);
        Numbers data(type, 7, width, third);
        gate_rows_backward(*stream, slopes.view().column_range(1, 2), grad.view(), data.view(),
                           logits.view().column_range(4, 5));
        EXPECT_EQ(data.bytes(), gated.bytes());
        for (int64_t r = 0; r < 7; ++r) {
          const double gate = 1 / (1 + std::exp(-double{logits.at(r, 4)}));
          double dot = 0, magnitude = 0;
          for (int64_t c = 0; c < width; ++c) {
            const double term = double{grad.at(r, c)} * before.at(r, c);
            dot += term;
            magnitude += std::abs(term);
          }
          EXPECT_NEAR(slopes.at(r, 1), (1 - gate) * dot, 1e-6 * (1 + magnitude));
        }
      }
    }
  });
}

// Packed weights of some experts, one behind the other.
struct Bank {
  Bank(Stream& stream, PackedWeight one, const std::vector<Numbers>& weights) {
    const int64_t bytes = packed_weight_bytes(one.compute, one.use, one.n, one.k, one.format) + 64;
    memory.resize(static_cast<size_t>(bytes) * weights.size());
    one.data = memory.data();
    packed = {.first = one, .stride_bytes = bytes, .count = static_cast<int64_t>(weights.size())};
    for (size_t e = 0; e < weights.size(); ++e) {
      pack_weight(stream, packed.at(static_cast<int64_t>(e)), weights[e].view());
    }
  }
  std::vector<std::byte> memory;
  ExpertWeights packed;
};

std::vector<Numbers> expert_weights(int64_t experts, int64_t n, int64_t k, Rng& rng) {
  std::vector<Numbers> weights;
  weights.reserve(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; ++e) weights.emplace_back(DType::kF32, n, k, rng);
  return weights;
}

struct ProductCase {
  DType compute;
  WeightFormat format;
  PackUse use;
};

constexpr ProductCase kProductCases[] = {
    {DType::kF32, WeightFormat::kCompute, PackUse::kForward},
    {DType::kBF16, WeightFormat::kCompute, PackUse::kForward},
    {DType::kF32, WeightFormat::kQ8, PackUse::kForward},
    {DType::kBF16, WeightFormat::kQ4, PackUse::kForward},
    {DType::kF32, WeightFormat::kCompute, PackUse::kInputGradient},
    {DType::kBF16, WeightFormat::kCompute, PackUse::kInputGradient}};

TEST(ExpertLinear, GivesEveryRowTheBitsOfItsExpertsOwnProduct) {
  const int64_t n = 300, k = 96;
  for (const ProductCase& one : kProductCases) {
    for (const auto& [tokens, experts, chosen] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 9, 3}, {16, 9, 2}, {130, 4, 2}}) {
      std::optional<Numbers> own;
      for (const int threads : {1, 2, 3}) {
        TestStream stream(threads);
        Rng rng(31);
        const auto weights = expert_weights(experts, n, k, rng);
        const Bank bank(
            *stream, {.compute = one.compute, .use = one.use, .n = n, .k = k, .format = one.format},
            weights);
        Routes routes = random_routes(*stream, tokens, experts, chosen, true, 2);
        const bool forward = one.use == PackUse::kForward;
        const int64_t rows = tokens * chosen;
        const Numbers src(one.compute, rows, forward ? k : n, rng);
        Numbers dst(DType::kF32, rows, forward ? n : k, rng);
        expert_product(*stream, {.dst = dst.view(),
                                 .src = src.view(),
                                 .weights = bank.packed,
                                 .use = one.use,
                                 .row_ends = routes.routing().row_ends});
        const bool is_known = own.has_value();
        if (!is_known) own.emplace(DType::kF32, rows, forward ? n : k);
        int64_t begin = 0;
        for (int64_t e = 0; e < experts && !is_known; ++e) {
          const int64_t end = routes.row_ends[static_cast<size_t>(e)];
          for (int64_t r = begin; r < end; ++r) {  // each row alone
            const TensorView from = src.view().row_range(r, r + 1);
            const TensorView to = own->view().row_range(r, r + 1);
            const PackedWeight weight = bank.packed.at(e);
            if (forward) {
              linear_forward(*stream, {.dst = to, .src = from, .weight = weight});
            } else {
              linear_backward_input(*stream, {.grad_src = to, .grad_dst = from, .weight = weight});
            }
          }
          begin = end;
        }
        EXPECT_EQ(dst.bytes(), own->bytes())
            << tokens << " tokens, " << threads << " threads, " << weight_format_name(one.format);
      }
    }
  }
}

TEST(ExpertLinear, AddsGradientsOfTheRowsOfEachExpertAndStoresZerosWhereThereAreNone) {
  const int64_t n = 40, k = 24, experts = 12;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const bool accumulate : {true, false}) {
      TestStream stream;
      Rng rng(8);
      Routes routes = random_routes(*stream, 5, experts, 2, true, 4);
      EXPECT_LT(std::set<int32_t>(routes.chosen.begin(), routes.chosen.end()).size(), 12u);
      const Numbers grad_dst(compute, 10, n, rng), src(compute, 10, k, rng);
      auto together = expert_weights(experts, n, k, rng);
      std::vector<TensorView> views;
      for (const Numbers& grad : together) views.push_back(grad.view());
      views[3] = {};  // nobody wants it
      Rng again(77);
      for (const Numbers& grad : together) {
        for (int64_t i = 0; i < n * k; ++i) grad.view().as<float>()[i] = rough_normal(again);
      }
      Rng same(77);
      auto alone = expert_weights(experts, n, k, same);
      expert_weight_gradient(*stream, {.grads = views,
                                       .grad_dst = grad_dst.view(),
                                       .src = src.view(),
                                       .row_ends = routes.routing().row_ends,
                                       .compute = compute,
                                       .accumulate = accumulate});
      int64_t begin = 0;
      for (size_t e = 0; e < together.size(); ++e) {
        const int64_t end = routes.row_ends[e];
        if (e != 3 && end > begin) {
          linear_backward_weight(*stream, {.grad_weight = alone[e].view(),
                                           .grad_dst = grad_dst.view().row_range(begin, end),
                                           .src = src.view().row_range(begin, end),
                                           .compute = compute,
                                           .accumulate = accumulate});
        } else if (e != 3 && !accumulate) {
          std::fill_n(alone[e].view().as<float>(), n * k, 0.0f);
        }
        EXPECT_EQ(together[e].bytes(), alone[e].bytes()) << e;
        begin = end;
      }
    }
  }
}

}  // namespace
}  // namespace jige::ops
