#include "ops/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ops/likeliest.h"
#include "ops/testing.h"

namespace jige::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Context {
  std::vector<int32_t> prompt, generated;
};

// The distribution sample() draws from, by the definition of every step, in double.
std::vector<double> sampling_reference(const std::vector<float>& raw, const SamplingParams& params,
                                       const Context& context) {
  std::vector<double> logits(raw.begin(), raw.end());
  std::set<int32_t> seen(context.prompt.begin(), context.prompt.end());
  std::map<int32_t, int> counts;
  for (const int32_t token : context.generated) {
    seen.insert(token);
    ++counts[token];
  }
  for (const int32_t token : seen) {
    double& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  }
  for (const auto& [token, count] : counts) {
    logits[static_cast<size_t>(token)] -=
        params.presence_penalty + count * params.frequency_penalty;
  }
  for (const auto& [token, bias] : params.logit_bias) logits[static_cast<size_t>(token)] += bias;
  std::vector<size_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> result(logits.size(), 0.0);
  if (params.temperature == 0) {
    result[order[0]] = 1;
    return result;
  }
  if (params.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(params.top_k)));
  double total = 0;
  const double largest = logits[order[0]];
  for (const size_t i : order) {
    result[i] = std::exp((logits[i] - largest) / params.temperature);
    total += result[i];
  }
  double mass = 0;
  double kept = 0;
  for (const size_t i : order) {
    const bool drop = mass >= params.top_p * total || result[i] < params.min_p;
    mass += result[i];
    if (drop) result[i] = 0;
    kept += result[i];
  }
  for (double& p : result) p /= kept;
  return result;
}

std::vector<float> some_logits(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>(2 * rng.normal());
  return logits;
}

// Draws many tokens; every one must be possible and their counts must fit the reference by a
// chi-square test: a statistic of df degrees lies above df + 5 sqrt(2 df) about once in 10^5.
void expect_distribution(const std::vector<float>& logits, const SamplingParams& params,
                         const Context& context, const std::string& what, int draw_count = 8000) {
  const std::vector<double> expected = sampling_reference(logits, params, context);
  std::vector<int> counts(logits.size(), 0);
  Rng rng(derive_key(1, what));
  for (int i = 0; i < draw_count; ++i) {
    const auto sampled = sample(logits, params, context.prompt, context.generated, rng);
    ASSERT_TRUE(sampled.has_value()) << what;
    ++counts[static_cast<size_t>(sampled->token)];
  }
  double statistic = 0;
  double degrees = -1;
  double rest_expected = 0;
  double rest_count = 0;
  const auto add = [&](double count, double mean) {
    statistic += (count - mean) * (count - mean) / mean;
    degrees += 1;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double mean = expected[i] * draw_count;
    ASSERT_TRUE(mean > 0 || counts[i] == 0) << what << ": drew token " << i;
    if (mean >= 10) {
      add(counts[i], mean);
    } else {
      rest_expected += mean;
      rest_count += counts[i];
    }
  }
  if (rest_expected >= 10) add(rest_count, rest_expected);
  EXPECT_LE(statistic, degrees + 5 * std::sqrt(2 * std::max(degrees, 1.0))) << what;
}

TEST(Sampling, DrawsFromTheFilteredDistribution) {
  const std::vector<float> logits = some_logits(40, 30);
  const Context none;
  expect_distribution(logits, {.temperature = 1}, none, "plain");
  expect_distribution(logits, {.temperature = 0.5}, none, "cold");
  expect_distribution(logits, {.temperature = 2.5}, none, "hot");
  expect_distribution(logits, {.temperature = 1, .top_k = 5}, none, "top-k");
  expect_distribution(logits, {.temperature = 1, .top_k = 400}, none, "top-k of all");
  expect_distribution(logits, {.temperature = 1.5, .top_p = 0.8}, none, "top-p");
  expect_distribution(logits, {.temperature = 1, .min_p = 0.1}, none, "min-p");
  expect_distribution(logits, {.temperature = 1.2, .top_k = 12, .top_p = 0.9, .min_p = 0.05}, none,
                      "all filters");
}

TEST(Sampling, DrawsFromThePenalisedDistribution) {
  const std::vector<float> logits = some_logits(40, 31);
  const Context context = {{1, 2, 3, 3, 3, 39}, {3, 5, 5, 5, 7, 0}};
  expect_distribution(logits, {.temperature = 1, .repetition_penalty = 1.5}, context, "repetition");
  expect_distribution(logits, {.temperature = 1, .presence_penalty = 1.0}, context, "presence");
  expect_distribution(logits, {.temperature = 1, .frequency_penalty = -0.7}, context, "frequency");
  expect_distribution(logits,
                      {.temperature = 0.8,
                       .top_k = 20,
                       .top_p = 0.95,
                       .min_p = 0.01,
                       .repetition_penalty = 1.2,
                       .presence_penalty = 0.5,
                       .frequency_penalty = 0.3},
                      context, "everything");
}

TEST(Sampling, DrawsFromTheBiasedDistribution) {
  const std::vector<float> logits = some_logits(40, 33);
  const Context context = {{1, 2}, {3, 5, 5}};
  expect_distribution(logits, {.temperature = 1, .logit_bias = {{7, 2.5f}, {8, -1.0f}, {7, -1.0f}}},
                      {}, "bias");
  expect_distribution(logits, {.temperature = 0.7, .logit_bias = {{4, -kInfinity}, {4, 50.0f}}}, {},
                      "a token is forbidden");
  expect_distribution(logits,
                      {.temperature = 1.3,
                       .top_k = 9,
                       .repetition_penalty = 1.4,
                       .frequency_penalty = 0.3,
                       .logit_bias = {{5, 3.0f}, {1, -kInfinity}}},
                      context, "bias with everything");
}

TEST(Sampling, BiasDecidesGreedyChoicesAndCanForbidAll) {
  Rng rng(3);
  const std::vector<float> logits = {1, 4, 2, 3};
  const auto token = [&](const SamplingParams& params) {
    const auto sampled = sample(logits, params, {}, {}, rng);
    EXPECT_TRUE(sampled.has_value());
    return sampled ? sampled->token : -1;
  };
  EXPECT_EQ(token({.logit_bias = {{2, 2.5f}}}), 2);
  EXPECT_EQ(token({.logit_bias = {{1, -kInfinity}}}), 3);
  EXPECT_EQ(token({.logit_bias = {{-1, 100.0f}, {4, 100.0f}}}), 1);  // no such tokens
  // The reported probability is that of the raw logits.
  const auto plain = sample(logits, {.logit_bias = {{1, 5.0f}}}, {}, {}, rng);
  EXPECT_EQ(plain->logprob, sample(logits, {}, {}, {}, rng)->logprob);
  SamplingParams all;
  for (int32_t i = 0; i < 4; ++i) all.logit_bias.push_back({i, -kInfinity});
  for (const double temperature : {0.0, 1.0}) {
    all.temperature = temperature;
    const auto sampled = sample(logits, all, {}, {}, rng);
    ASSERT_FALSE(sampled.has_value());
    EXPECT_EQ(sampled.error().code, Code::kInvalidArgument);
  }
}

TEST(Sampling, DrawsAcrossBlocksOfALargeVocabulary) {
  // Mass in the first, a middle and the last block only, with empty blocks between and behind.
  std::vector<float> logits(13001, -kInfinity);
  logits[5] = logits[8191] = 1.0f;
  logits[8192] = 0.0f;
  logits[9999] = 2.0f;
  expect_distribution(logits, {.temperature = 1}, {}, "sparse", 1500);
  expect_distribution(logits, {.temperature = 1, .top_p = 0.9}, {}, "sparse top-p", 1500);
}

TEST(Sampling, GreedyTakesTheLowestAmongTheLargest) {
  Rng rng(1);
  std::vector<float> logits(100, 1.0f);
  logits[41] = logits[42] = logits[77] = 3.0f;
  const auto greedy = [&](const SamplingParams& params, std::vector<int32_t> generated) {
    return sample(logits, params, {}, generated, rng)->token;
  };
  EXPECT_EQ(greedy({}, {}), 41);
  EXPECT_EQ(greedy({.top_k = 3, .top_p = 0.1, .min_p = 0.5}, {}), 41);
  EXPECT_EQ(greedy({.presence_penalty = 0.5}, {41, 42}), 77);
  EXPECT_EQ(greedy({.repetition_penalty = 4}, {41, 42, 77}), 0);
}

TEST(Sampling, TheLikeliestIsTheLowestAmongTheLargest) {
  EXPECT_EQ(likeliest(std::vector<float>{1, 3, -2, 3}), 1);
  EXPECT_EQ(likeliest(std::vector<float>{-7, -5, -kInfinity}), 1);
  EXPECT_FALSE(likeliest(std::vector<float>{NAN, -5, -kInfinity}));
  EXPECT_FALSE(likeliest(std::vector<float>{-kInfinity, -kInfinity}));
  EXPECT_FALSE(likeliest(std::vector<float>{1, kInfinity}));
}

TEST(Sampling, AdvancesTheRngByTheSameNumberOfDrawsEveryTime) {
  const std::vector<float> good = some_logits(10, 32);
  const std::vector<float> bad = {NAN};
  Rng rng(1);
  ASSERT_TRUE(sample(good, {}, {}, {}, rng).has_value());
  const uint64_t draws = rng.position();
  uint64_t calls = 1;
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.temperature = 1},
        SamplingParams{.temperature = 1, .top_k = 1},
        SamplingParams{.temperature = 1, .top_p = 0.5, .repetition_penalty = 2}}) {
    for (const auto& logits : {good, bad}) {
      (void)sample(logits, params, {}, {}, rng, 3);
      EXPECT_EQ(rng.position(), ++calls * draws);
    }
  }
}

TEST(Sampling, ReportsLogProbabilitiesOfTheRawLogits) {
  const std::vector<float> logits = some_logits(50, 33);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  std::vector<size_t> order(50);
  for (size_t i = 0; i < 50; ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  Rng rng(3);
  const SamplingParams params = {.temperature = 3, .top_k = 20, .repetition_penalty = 3};
  const std::vector<int32_t> seen = {0, 1, 2, 3};
  for (int round = 0; round < 20; ++round) {
    const auto sampled = sample(logits, params, seen, seen, rng, 5);
    ASSERT_TRUE(sampled.has_value());
    const auto exact = [&](int32_t token) {
      return logits[static_cast<size_t>(token)] - std::log(sum);
    };
    EXPECT_NEAR(sampled->logprob, exact(sampled->token), 1e-6);
    ASSERT_EQ(sampled->top.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(sampled->top[i].token, static_cast<int32_t>(order[i]));
      EXPECT_NEAR(sampled->top[i].logprob, exact(sampled->top[i].token), 1e-6);
    }
  }
}

TEST(Sampling, ReportsNoImpossibleAlternatives) {
  Rng rng(4);
  const std::vector<float> logits = {1.0f, -kInfinity, 1.0f, -kInfinity};
  const auto sampled = sample(logits, {}, {}, {}, rng, 10);
  ASSERT_TRUE(sampled.has_value());
  ASSERT_EQ(sampled->top.size(), 2u);
  EXPECT_EQ(sampled->top[0].token, 0);
  EXPECT_EQ(sampled->top[1].token, 2);
  EXPECT_FLOAT_EQ(sampled->top[0].logprob, std::log(0.5f));
}

// What filters and temperatures at their limits must still do: choose a possible token.
std::vector<SamplingParams> extreme_params() {
  return {{},
          {.temperature = 1},
          {.temperature = 5e-324},
          {.temperature = 1e308},
          {.temperature = 1, .top_k = 1},
          {.temperature = 1, .top_p = 1e-12},
          {.temperature = 1, .top_p = 1 - 1e-16},
          {.temperature = 1, .min_p = 1 - 1e-16},
          {.temperature = 1, .repetition_penalty = 1e-310},
          {.temperature = 1, .repetition_penalty = 1e308},
          {.temperature = 1, .presence_penalty = 1e308, .frequency_penalty = 1e308},
          {.temperature = 1e308, .top_k = 2, .top_p = 0.5, .presence_penalty = -1e308}};
}

TEST(Sampling, ChoosesTheOnlyPossibleToken) {
  Rng rng(5);
  const std::vector<int32_t> seen = {0, 6, 6, 9};
  for (const SamplingParams& params : extreme_params()) {
    ASSERT_TRUE(validate(params).has_value());
    std::vector<float> logits(9000, -kInfinity);
    logits[6] = -3.0f;
    for (int round = 0; round < 20; ++round) {
      const auto sampled = sample(logits, params, seen, seen, rng, 2);
      ASSERT_TRUE(sampled.has_value());
      EXPECT_EQ(sampled->token, 6);
      EXPECT_EQ(sampled->logprob, 0.0f);
    }
    const std::vector<float> one = {0.25f};
    EXPECT_EQ(sample(one, params, seen, seen, rng)->token, 0);
  }
}

TEST(Sampling, StaysWithinBoundsForExtremeParameters) {
  Rng rng(6);
  const std::vector<int32_t> seen = {0, 6, 6, 9};
  std::vector<float> logits = some_logits(300, 34);
  logits[3] = -kInfinity;
  logits[4] = std::numeric_limits<float>::max();
  logits[5] = std::numeric_limits<float>::lowest();
  for (const SamplingParams& params : extreme_params()) {
    for (int round = 0; round < 50; ++round) {
      const auto sampled = sample(logits, params, seen, seen, rng);
      ASSERT_TRUE(sampled.has_value());
      EXPECT_TRUE(sampled->token >= 0 && sampled->token < 300 && sampled->token != 3);
    }
  }
}

TEST(Sampling, ATinyTopPIsGreedy) {
  Rng rng(7);
  const std::vector<float> logits = some_logits(1000, 35);
  const int32_t best = sample(logits, {}, {}, {}, rng)->token;
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(sample(logits, {.temperature = 1, .top_p = 1e-9}, {}, {}, rng)->token, best);
    EXPECT_EQ(sample(logits, {.temperature = 1e-5}, {}, {}, rng)->token, best);
  }
}

TEST(Sampling, FailsOnLogitsThatAreNoDistribution) {
  Rng rng(8);
  std::vector<float> logits = some_logits(5000, 36);
  logits[4321] = NAN;
  for (const double temperature : {0.0, 1.0}) {
    const auto sampled = sample(logits, {.temperature = temperature}, {}, {}, rng);
    ASSERT_FALSE(sampled.has_value());
    EXPECT_EQ(sampled.error().code, Code::kInternal);
    EXPECT_NE(sampled.error().message.find("4321"), std::string::npos);
  }
  for (const std::vector<float>& bad :
       {std::vector<float>{}, {-kInfinity, -kInfinity}, {1.0f, kInfinity}, {NAN, NAN}}) {
    const auto sampled = sample(bad, {.temperature = 1}, {}, {}, rng);
    ASSERT_FALSE(sampled.has_value());
    EXPECT_EQ(sampled.error().code, Code::kInternal);
  }
}

TEST(Sampling, ValidatesEveryField) {
  EXPECT_TRUE(validate({}).has_value());
  EXPECT_TRUE(validate({.logit_bias = {{1, -100.0f}, {2, 100.0f}, {3, -kInfinity}}}).has_value());
  EXPECT_TRUE(validate({.temperature = 2, .top_k = 1, .top_p = 1, .min_p = 0}).has_value());
  const std::vector<std::pair<SamplingParams, std::string>> bad = {
      {{.temperature = -0.1}, "temperature"},
      {{.temperature = NAN}, "temperature"},
      {{.temperature = INFINITY}, "temperature"},
      {{.top_k = -1}, "top_k"},
      {{.top_p = 0}, "top_p"},
      {{.top_p = 1.1}, "top_p"},
      {{.top_p = NAN}, "top_p"},
      {{.min_p = -0.1}, "min_p"},
      {{.min_p = 1}, "min_p"},
      {{.repetition_penalty = 0}, "repetition_penalty"},
      {{.repetition_penalty = NAN}, "repetition_penalty"},
      {{.presence_penalty = NAN}, "presence_penalty"},
      {{.frequency_penalty = INFINITY}, "frequency_penalty"},
      {{.logit_bias = {{1, 0.0f}, {2, 100.5f}}}, "logit_bias of token 2"},
      {{.logit_bias = {{1, kInfinity}}}, "logit_bias of token 1"},
      {{.logit_bias = {{1, NAN}}}, "logit_bias of token 1"}};
  for (const auto& [params, field] : bad) {
    const Status status = validate(params);
    ASSERT_FALSE(status.has_value()) << field;
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_EQ(status.error().message.find(field), 0u) << status.error().message;
  }
}

TEST(Sampling, DrawsTheSameTokensOnEveryInstructionSet) {
  const std::vector<float> logits = some_logits(5001, 37);
  std::vector<std::vector<int32_t>> runs;
  test::for_each_isa([&] {
    Rng rng(9);
    std::vector<int32_t> tokens;
    for (int round = 0; round < 100; ++round) {
      const SamplingParams params = {.temperature = 1.3, .top_p = round % 2 ? 1.0 : 0.9};
      tokens.push_back(sample(logits, params, {}, {}, rng)->token);
    }
    runs.push_back(tokens);
  });
  for (const auto& run : runs) EXPECT_EQ(run, runs.front());
}

// What is allowed is drawn as if the others were not there, whatever the filters; the reported
// probability stays that of the raw logits.
TEST(Sampling, DrawsAllowedTokensAlone) {
  std::vector<float> logits(130);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i) * 0.1f;
  const std::vector<uint64_t> allowed = {uint64_t{1} << 3 | uint64_t{1} << 60, 1};  // 3, 60, 64
  SamplingParams params;
  Rng rng(1);
  EXPECT_EQ(sample(logits, params, {}, {}, rng, 0, allowed)->token, 64) << "greedy";
  params.temperature = 1;
  std::map<int32_t, int> counts;
  for (int i = 0; i < 4000; ++i) ++counts[sample(logits, params, {}, {}, rng, 0, allowed)->token];
  EXPECT_EQ(counts.size(), 3u);
  const double total = std::exp(0.3) + std::exp(6.0) + std::exp(6.4);
  EXPECT_NEAR(counts[60] / 4000.0, std::exp(6.0) / total, 0.03);
  params.top_k = 1;
  const auto top = sample(logits, params, {}, {}, rng, 1, allowed);
  EXPECT_EQ(top->token, 64) << "top-k counts allowed ones";
  EXPECT_EQ(top->top[0].token, 129) << "alternatives are those of the raw logits";
  SamplingParams biased{.logit_bias = {{64, -kInfinity}, {60, -kInfinity}, {3, -kInfinity}}};
  EXPECT_FALSE(sample(logits, biased, {}, {}, rng, 0, allowed));
  const Rng before = rng;
  Rng plain = rng;
  (void)sample(logits, params, {}, {}, rng, 0, allowed);
  (void)sample(logits, params, {}, {}, plain);
  EXPECT_EQ(rng.position(), plain.position()) << "as many draws either way";
  EXPECT_GT(rng.position(), before.position());
}

}  // namespace
}  // namespace jige::ops
