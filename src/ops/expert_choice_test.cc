// Choice of experts by sigmoids, with a bias for the choice and among groups: against plain double
// precision and finite differences, bit for bit everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/experts.h"
#include "ops/linear_test_support.h"
#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::TestStream;
using test::view_of;

struct Rule {
  int64_t experts = 1, chosen = 1, groups = 1, chosen_groups = 1;
  bool sigmoid = false, normalised = false, biased = false, pairs = false;
  float scale = 1;
  float sum_offset = 1e-20f;
  float sum_min = 0;
};

// A routing by a rule, with memory of its own; logits are columns of a wider matrix.
struct RuledRoutes {
  RuledRoutes(int64_t token_count, const Rule& by)
      : rule(by),
        tokens(token_count),
        logits(static_cast<size_t>(token_count * (by.experts + 1))),
        weights(static_cast<size_t>(token_count * by.chosen)),
        bias(static_cast<size_t>(by.experts)),
        chosen(weights.size()),
        row_of_place(weights.size()),
        place_of_row(weights.size()),
        row_ends(bias.size()) {}

  Routing routing() {
    const Shape places{tokens, rule.chosen};
    const TensorView wide =
        TensorView::of(logits.data(), DType::kF32, Shape{tokens, rule.experts + 1});
    return {.logits = wide.column_range(0, rule.experts),
            .chosen = TensorView::of(chosen.data(), DType::kI32, places),
            .weights = TensorView::of(weights.data(), DType::kF32, places),
            .row_of_place = TensorView::of(row_of_place.data(), DType::kI32, places),
            .place_of_row = view_of(place_of_row),
            .row_ends = view_of(row_ends),
            .normalised = rule.normalised,
            .sigmoid = rule.sigmoid,
            .scale = rule.scale,
            .sum_offset = rule.sum_offset,
            .sum_min = rule.sum_min,
            .groups = rule.groups,
            .chosen_groups = rule.chosen_groups,
            .groups_by_pairs = rule.pairs,
            .choice_bias = rule.biased ? view_of(bias) : TensorView{}};
  }
  void randomise(Stream& stream, uint64_t seed) {
    Rng rng(seed);
    for (float& logit : logits) logit = 2 * rough_normal(rng);
    for (float& one : bias) one = 0.3f * rough_normal(rng);
    route(stream, routing());
  }
  std::vector<double> token_logits(int64_t token) const {
    const auto begin = logits.begin() + token * (rule.experts + 1);
    return {begin, begin + rule.experts};
  }
  std::vector<int32_t> list(int64_t token) const {
    const auto begin = chosen.begin() + token * rule.chosen;
    return {begin, begin + rule.chosen};
  }

  Rule rule;
  int64_t tokens;
  std::vector<float> logits, weights, bias;
  std::vector<int32_t> chosen, row_of_place, place_of_row, row_ends;
};

std::vector<double> plain_scores(const Rule& rule, const std::vector<double>& logits) {
  std::vector<double> scores;
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  for (const double logit : logits) {
    scores.push_back(rule.sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit) / sum);
  }
  return scores;
}

// The indices of the `count` highest, ascending; of equal ones the first.
std::vector<int32_t> highest(const std::vector<double>& values, int64_t count) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<int32_t> plain_choice(const Rule& rule, const std::vector<double>& logits,
                                  const std::vector<float>& bias) {
  std::vector<double> ranks = plain_scores(rule, logits);
  if (rule.biased) {
    for (size_t e = 0; e < ranks.size(); ++e) ranks[e] += bias[e];
  }
  const auto size = ranks.size() / static_cast<size_t>(rule.groups);
  std::vector<double> group_scores;
  for (size_t begin = 0; begin < ranks.size(); begin += size) {
    std::vector<double> own(ranks.begin() + static_cast<std::ptrdiff_t>(begin),
                            ranks.begin() + static_cast<std::ptrdiff_t>(begin + size));
    std::sort(own.rbegin(), own.rend());
    group_scores.push_back(own[0] + (rule.pairs && size > 1 ? own[1] : 0));
  }
  const auto kept = highest(group_scores, rule.chosen_groups);
  for (size_t e = 0; e < ranks.size(); ++e) {
    const auto group = static_cast<int32_t>(e / size);
    if (!std::binary_search(kept.begin(), kept.end(), group)) {
      ranks[e] = -std::numeric_limits<double>::infinity();
    }
  }
  return highest(ranks, rule.chosen);
}

// The weights of chosen experts, whatever is chosen.
std::vector<double> plain_weights(const Rule& rule, const std::vector<double>& logits,
                                  const std::vector<int32_t>& list) {
  const std::vector<double> scores = plain_scores(rule, logits);
  std::vector<double> weights;
  for (const int32_t e : list) weights.push_back(scores[static_cast<size_t>(e)]);
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  sum = rule.sigmoid ? sum + rule.sum_offset : std::max<double>(sum, rule.sum_min);
  for (double& weight : weights) weight *= rule.scale / (rule.normalised ? sum : 1.0);
  return weights;
}

std::vector<Rule> rules() {
  std::vector<Rule> all;
  const int64_t shapes[][4] = {{1, 1, 1, 1},  {5, 2, 1, 1},   {12, 4, 3, 2},  {37, 8, 1, 1},
                               {40, 6, 4, 1}, {64, 8, 8, 4},  {6, 6, 2, 2},   {9, 3, 9, 5},
                               {34, 3, 2, 1}, {256, 8, 8, 4}, {1024, 2, 1, 1}};
  for (const auto& [experts, chosen, groups, chosen_groups] : shapes) {
    for (int flags = 0; flags < 16; ++flags) {
      all.push_back({.experts = experts,
                     .chosen = chosen,
                     .groups = groups,
                     .chosen_groups = chosen_groups,
                     .sigmoid = (flags & 1) != 0,
                     .normalised = (flags & 2) != 0,
                     .biased = (flags & 4) != 0,
                     .pairs = (flags & 8) != 0,
                     .scale = flags % 3 == 0 ? 1.0f : 2.5f,
                     .sum_offset = chosen % 2 == 0 ? 0.5f : 1e-20f});
    }
  }
  for (const float least : {1e-12f, 0.3f, 0.99f}) {  // of some tokens, of most, of none or all
    all.push_back({.experts = 12,
                   .chosen = 3,
                   .normalised = true,
                   .biased = true,
                   .scale = 1.5f,
                   .sum_min = least});
  }
  return all;
}

TEST(ExpertChoice, MatchesDoubleOnEveryInstructionSet) {
  test::for_each_isa([] {
    for (const Rule& rule : rules()) {
      TestStream stream;
      RuledRoutes routes(11, rule);
      routes.randomise(*stream, 23);
      for (int64_t t = 0; t < routes.tokens; ++t) {
        const auto logits = routes.token_logits(t);
        const auto list = plain_choice(rule, logits, routes.bias);
        ASSERT_EQ(routes.list(t), list) << rule.experts << " experts, token " << t;
        const auto weights = plain_weights(rule, logits, list);
        for (size_t j = 0; j < list.size(); ++j) {
          EXPECT_NEAR(routes.weights[static_cast<size_t>(t * rule.chosen) + j], weights[j],
                      2e-6 * weights[j] + 1e-9);
        }
      }
    }
  });
}

TEST(ExpertChoice, SlopesMatchFiniteDifferencesOnEveryInstructionSet) {
  test::for_each_isa([] {
    for (const Rule& rule : rules()) {
      if (rule.experts > 64) continue;
      TestStream stream;
      RuledRoutes routes(3, rule);
      routes.randomise(*stream, 29);
      Rng rng(7);
      std::vector<float> grads(routes.weights.size());
      for (float& grad : grads) grad = rough_normal(rng);
      std::vector<float> slopes(static_cast<size_t>(3 * rule.experts));
      route_backward(*stream, routes.routing(),
                     TensorView::of(slopes.data(), DType::kF32, {3, rule.experts}),
                     TensorView::of(grads.data(), DType::kF32, {3, rule.chosen}));
      for (int64_t t = 0; t < 3; ++t) {
        const auto loss = [&](const std::vector<double>& logits) {
          const auto weights = plain_weights(rule, logits, routes.list(t));
          double total = 0;
          for (size_t j = 0; j < weights.size(); ++j) {
            total += grads[static_cast<size_t>(t * rule.chosen) + j] * weights[j];
          }
          return total;
        };
        const auto expected = test::finite_difference(loss, routes.token_logits(t));
        for (size_t e = 0; e < expected.size(); ++e) {
          EXPECT_NEAR(slopes[static_cast<size_t>(t * rule.experts) + e], expected[e], 5e-6);
        }
      }
    }
  });
}

TEST(ExpertChoice, BitsDependOnNeitherThreadsInstructionSetNorOtherTokens) {
  const Rule rule{.experts = 24,
                  .chosen = 4,
                  .groups = 4,
                  .chosen_groups = 2,
                  .sigmoid = true,
                  .normalised = true,
                  .biased = true,
                  .pairs = true,
                  .scale = 2.5f};
  test::expect_same_bits_everywhere([&](Stream& stream) {
    RuledRoutes all(70, rule), one(1, rule);
    all.randomise(stream, 9);
    std::copy(all.logits.end() - 25, all.logits.end(), one.logits.begin());
    one.bias = all.bias;
    route(stream, one.routing());
    EXPECT_EQ(one.chosen, all.list(69));
    EXPECT_TRUE(std::equal(one.weights.begin(), one.weights.end(), all.weights.end() - 4));
    return std::pair(all.chosen, all.weights);
  });
}

TEST(ExpertChoice, OfEqualScoresAndGroupsTheFirstAreChosenAndNanLast) {
  TestStream stream;
  RuledRoutes routes(3, {.experts = 6,
                         .chosen = 2,
                         .groups = 3,
                         .chosen_groups = 1,
                         .sigmoid = true,
                         .normalised = true,
                         .pairs = true});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  routes.logits = {0, 1, 1, 0, 1, 0, 0, nan, 5, 1, 1, 0, 0, 0, nan, nan, nan, nan, nan, nan, 0};
  route(*stream, routes.routing());
  EXPECT_EQ(routes.chosen, (std::vector<int32_t>{0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(routes.weights[2], 0.5f);
}

// A bias may choose experts that the softmax gives nothing.
TEST(ExpertChoice, WeightsOfASoftmaxNearZeroStayFiniteWhereTheirSumHasALeast) {
  TestStream stream;
  RuledRoutes routes(
      1, {.experts = 3, .chosen = 2, .normalised = true, .biased = true, .sum_min = 1e-12f});
  routes.logits = {-200, -200, 10, 0};
  routes.bias = {2, 2, 0};
  route(*stream, routes.routing());
  EXPECT_EQ(routes.chosen, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(routes.weights, (std::vector<float>{0, 0}));
}

// As transformers has it, weights of sigmoids that are all next to nothing do not become infinite.
TEST(ExpertChoice, WeightsOfSigmoidsNearZeroStayFinite) {
  TestStream stream;
  RuledRoutes routes(1, {.experts = 3, .chosen = 2, .sigmoid = true, .normalised = true});
  routes.logits = {-80, -80, -90, 0};
  route(*stream, routes.routing());
  EXPECT_LT(routes.weights[0], 1e-12f);
  EXPECT_GE(routes.weights[0], 0.0f);
}

}  // namespace
}  // namespace jige::ops
