#include "ops/sampling_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"

namespace jige::ops {
namespace {

double sum_of(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += static_cast<double>(candidate.weight);
  return sum;
}

// The filters by their definition: sort everything, then cut.
std::vector<Candidate> brute_force(const std::vector<float>& weights,
                                   const SamplingParams& params) {
  std::vector<Candidate> sorted;
  for (size_t i = 0; i < weights.size(); ++i) {
    sorted.push_back({weights[i], static_cast<int32_t>(i)});
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(sorted.size())) {
    sorted.resize(static_cast<size_t>(params.top_k));
  }
  if (params.top_p < 1) {
    const double wanted = params.top_p * sum_of(sorted);
    double mass = 0;
    size_t kept = 0;
    while (kept < sorted.size() && mass < wanted)
      mass += static_cast<double>(sorted[kept++].weight);
    sorted.resize(std::max<size_t>(kept, 1));
  }
  const float bar = static_cast<float>(params.min_p) * sorted.front().weight;
  std::erase_if(sorted, [&](const Candidate& c) { return c.weight < bar || c.weight <= 0; });
  std::sort(sorted.begin(), sorted.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  return sorted;
}

// Weights of which many are equal and some are zero; the largest is 1. They are multiples of 2^-20,
// so that sums are exact in any order.
std::vector<float> random_weights(Rng& rng, size_t count) {
  std::vector<float> weights(count);
  const double sharpness = 0.05 + rng.uniform();
  for (float& weight : weights) {
    const double value = std::exp(-sharpness * static_cast<double>(rng.below(40)));
    weight = static_cast<float>(std::ldexp(std::floor(std::ldexp(value, 20)), -20));
    if (rng.below(8) == 0) weight = 0;
  }
  weights[rng.below(count)] = 1;
  return weights;
}

TEST(SamplingFilter, AgreesWithSortingEverything) {
  const uint64_t seed = 20;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  for (int round = 0; round < 1500; ++round) {
    const size_t count = 1 + rng.below(round % 10 == 0 ? 3000 : 60);
    const std::vector<float> weights = random_weights(rng, count);
    SamplingParams params;
    if (rng.below(2)) params.top_k = static_cast<int64_t>(rng.below(count + 3));
    if (rng.below(2)) params.top_p = 1e-6 + rng.uniform() * (1 - 1e-6);
    if (rng.below(3) == 0) params.min_p = rng.uniform();
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    ASSERT_EQ(filter(weights, total, params), brute_force(weights, params))
        << "round " << round << ": " << count << " weights, top_k " << params.top_k << ", top_p "
        << params.top_p << ", min_p " << params.min_p;
  }
}

// Sums of these weights are exact, so blocks, pieces and whole numbers choose as one running sum.
TEST(SamplingFilter, DrawsTheTokenAtWhichTheRunningSumPassesTheShare) {
  Rng rng(22);
  for (int round = 0; round < 400; ++round) {
    const size_t count = 1 + rng.below(round % 40 == 0 ? 20000 : 300);
    const std::vector<float> weights = random_weights(rng, count);
    std::vector<double> block_sums;
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < count; ++i) {
      if (i % 4096 == 0) block_sums.push_back(0);
      block_sums.back() += static_cast<double>(weights[i]);
      if (weights[i] > 0) candidates.push_back({weights[i], static_cast<int32_t>(i)});
    }
    const double total = sum_of(candidates);
    // Numbers at which a running sum is met exactly, and its last one, among others.
    const double uniforms[] = {rng.uniform(), 0, 0.5, 1 - 0x1p-53,
                               static_cast<double>(candidates.front().weight) / total};
    for (const double uniform : uniforms) {
      double sum = 0;
      const auto passes = [&](const Candidate& candidate) {
        sum += static_cast<double>(candidate.weight);
        return sum > uniform * total;
      };
      const auto found = std::find_if(candidates.begin(), candidates.end(), passes);
      const int32_t expected = found == candidates.end() ? candidates.back().token : found->token;
      ASSERT_EQ(draw_from(candidates, uniform), expected) << uniform << ", round " << round;
      ASSERT_EQ(draw_from_all(weights, block_sums, uniform), expected) << uniform;
    }
  }
}

TEST(SamplingFilter, TopPStopsWhereTheSumIsReachedExactly) {
  const std::vector<float> weights = {0.25f, 0.5f, 1.0f, 0.25f};  // in all 2
  const auto kept = [&](double top_p) { return filter(weights, 2.0, {.top_p = top_p}).size(); };
  EXPECT_EQ(kept(0.49), 1u);
  EXPECT_EQ(kept(0.5), 1u);
  EXPECT_EQ(kept(0.51), 2u);
  EXPECT_EQ(kept(0.75), 2u);
  EXPECT_EQ(kept(0.875), 3u);
  EXPECT_EQ(kept(0.88), 4u);
  const std::vector<Candidate> three = {{0.25f, 0}, {0.5f, 1}, {1.0f, 2}};  // the lower of equals
  EXPECT_EQ(filter(weights, 2.0, {.top_p = 0.8}), three);
}

TEST(SamplingFilter, HeaviestAgreesWithSortingInAnyOrderOfInput) {
  Rng rng(21);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> weights = random_weights(rng, 1 + rng.below(round % 10 == 0 ? 5000 : 500));
    if (round % 3 == 1) std::sort(weights.begin(), weights.end());
    if (round % 3 == 2) std::sort(weights.rbegin(), weights.rend());
    const auto count = static_cast<int64_t>(rng.below(weights.size() + 5));
    std::vector<Candidate> expected;
    for (size_t i = 0; i < weights.size(); ++i) {
      expected.push_back({weights[i], static_cast<int32_t>(i)});
    }
    std::stable_sort(expected.begin(), expected.end(),
                     [](const Candidate& a, const Candidate& b) { return a.weight > b.weight; });
    expected.resize(std::min(expected.size(), static_cast<size_t>(count)));
    ASSERT_EQ(heaviest(weights, count), expected) << "round " << round;
  }
}

TEST(SamplingFilter, HeaviestTakesMinusInfinityAndOddCounts) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {-infinity, -5.0f, -infinity, 2.0f};
  const std::vector<Candidate> all = {{2.0f, 3}, {-5.0f, 1}, {-infinity, 0}, {-infinity, 2}};
  EXPECT_EQ(heaviest(logits, 100), all);
  EXPECT_TRUE(heaviest(logits, 0).empty());
  EXPECT_TRUE(heaviest(logits, -3).empty());
  EXPECT_TRUE(heaviest({}, 3).empty());
}

TEST(SamplingFilter, PenaltiesFollowTheirFormulas) {
  SamplingParams params;
  params.repetition_penalty = 2.0;
  params.presence_penalty = 0.25;
  params.frequency_penalty = 0.5;
  std::vector<float> logits = {4.0f, -4.0f, 4.0f, -4.0f, 1.0f, 3.0f};
  const std::vector<int32_t> prompt = {0, 1, 0, 2};
  const std::vector<int32_t> generated = {2, 3, 3, 3};
  apply_penalties(logits, params, prompt, generated);
  EXPECT_EQ(logits[0], 2.0f);          // prompt only, once however often it occurs
  EXPECT_EQ(logits[1], -8.0f);         // negative: multiplied
  EXPECT_EQ(logits[2], 2.0f - 0.75f);  // prompt and once generated
  EXPECT_EQ(logits[3], -8.0f - 0.25f - 3 * 0.5f);
  EXPECT_EQ(logits[4], 1.0f);  // never seen
  EXPECT_EQ(logits[5], 3.0f);
}

TEST(SamplingFilter, PenaltiesPassOverUnknownTokensAndKeepInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  SamplingParams params;
  params.repetition_penalty = 1e-310;
  params.presence_penalty = -1e308;
  params.frequency_penalty = 1e308;
  std::vector<float> logits = {-infinity, 1.0f, -1.0f};
  const std::vector<int32_t> tokens = {
      0, 1, 2, 3, -1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(),
      1, 1, 1};
  apply_penalties(logits, params, tokens, tokens);
  EXPECT_EQ(logits[0], -infinity);
  EXPECT_TRUE(std::isfinite(logits[1]));
  EXPECT_TRUE(std::isfinite(logits[2]));
}

}  // namespace
}  // namespace jige::ops
