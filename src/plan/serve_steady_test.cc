// The closed form beside plain sums and a plain iteration of rounds; beside the simulation it is in
// sim/serve_steady_test.cc.
#include "plan/serve_steady.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace jige::plan {
namespace {

std::vector<RequestLengths> random_lengths(uint64_t seed, int count, uint64_t output_max) {
  Rng rng(derive_key(seed, "lengths"));
  std::vector<RequestLengths> lengths;
  for (int i = 0; i < count; ++i) {
    const auto output = static_cast<int64_t>(1 + rng.below(output_max) * rng.below(2));
    lengths.push_back({static_cast<int64_t>(1 + rng.below(50)) + output / 2, output});
  }
  return lengths;
}

double linear_seconds(const StepLoad& load) {
  return 1 + 0.1 * load.rows() + 0.01 * load.kv_tokens + 0.02 * load.sampled_rows() +
         0.001 * load.pairs;
}

TEST(LengthModel, SumsAsOneDoesByHand) {
  const std::vector<RequestLengths> lengths = random_lengths(1, 40, 30);
  const LengthModel model(lengths, 16);
  const double share = 1.0 / 40;
  double read_mean = 0, steps_mean = 0, prompt_mean = 0, pairs_mean = 0;
  for (int64_t j = 0; j <= model.steps_max(); ++j) {
    double live = 0, read = 0, square = 0;
    for (const RequestLengths& one : lengths) {
      if (one.output_tokens - 1 < j) continue;
      live += share;
      const auto tokens = static_cast<double>(one.prompt_tokens + j);
      read += share * tokens;
      square += share * tokens * tokens;
    }
    EXPECT_NEAR(model.live(j), live, 1e-12);
    EXPECT_NEAR(model.read(j), read, 1e-10);
    EXPECT_NEAR(model.read_square(j), square, 1e-8);
    if (j > 0) read_mean += read;
  }
  for (const RequestLengths& one : lengths) {
    steps_mean += share * static_cast<double>(one.output_tokens - 1);
    prompt_mean += share * static_cast<double>(one.prompt_tokens);
    for (int64_t i = 1; i <= one.prompt_tokens; ++i) pairs_mean += share * static_cast<double>(i);
  }
  EXPECT_EQ(model.live(0), 1);
  EXPECT_NEAR(model.steps_mean(), steps_mean, 1e-10);
  EXPECT_NEAR(model.read_mean(), read_mean, 1e-9);
  EXPECT_NEAR(model.prompt_mean(), prompt_mean, 1e-10);
  EXPECT_NEAR(model.pairs_mean(), pairs_mean, 1e-9);
  EXPECT_EQ(model.blocks({16, 16}), 2);
  EXPECT_EQ(model.blocks({16, 17}), 3);
  EXPECT_EQ(
      LengthModel(std::vector<RequestLengths>{{1, 5}, {1, 2}, {1, 9}}, 16).output_quantile(0.5), 5);
}

// Rounds one after the other, with shares of requests in place of requests.
struct PlainRound {
  double inside = 0;
  std::vector<StepLoad> loads;
  double cycle_s = 0;
};
PlainRound plain_round(const std::vector<RequestLengths>& lengths, double prompts, int64_t steps) {
  std::vector<std::vector<double>> left(lengths.size());  // by the iterations that are done
  const double share = prompts / static_cast<double>(lengths.size());
  PlainRound round;
  for (int repeat = 0; repeat < 80; ++repeat) {
    round = {};
    StepLoad prompt_load{.prompts = prompts};
    for (size_t i = 0; i < lengths.size(); ++i) {
      left[i].resize(static_cast<size_t>(lengths[i].output_tokens));
      left[i][0] += share;
      const auto tokens = static_cast<double>(lengths[i].prompt_tokens);
      prompt_load.prompt_tokens += share * tokens;
      prompt_load.kv_tokens += share * tokens;
      prompt_load.pairs += share * tokens * (tokens + 1) / 2;
      for (const double amount : left[i]) round.inside += amount;
      left[i].back() = 0;  // those that have their last token
    }
    round.cycle_s = linear_seconds(prompt_load);
    for (int64_t u = 0; u < steps; ++u) {
      StepLoad load;
      for (size_t i = 0; i < lengths.size(); ++i) {
        for (size_t done = left[i].size() - 1; done > 0; --done) {
          const double amount = left[i][done - 1];
          load.next_rows += amount;
          load.kv_tokens +=
              amount * static_cast<double>(lengths[i].prompt_tokens + static_cast<int64_t>(done));
          left[i][done] = amount;
        }
        left[i][0] = 0;
        left[i].back() = 0;
      }
      load.pairs = load.kv_tokens;
      round.loads.push_back(load);
      round.cycle_s += linear_seconds(load);
    }
  }
  return round;
}

TEST(ServeSteady, RoundsAreThoseOfAPlainIteration) {
  for (const int32_t steps : {1, 3, 8, 20}) {
    const std::vector<RequestLengths> lengths = random_lengths(7, 30, 60);
    const LengthModel model(lengths, 16);
    const PlainRound plain = plain_round(lengths, 400, steps);
    SteadyOptions options{.policy = ServePolicy::kRounds,
                          .batch_requests_max = 1 << 20,
                          .round_prompts = 400,
                          .round_steps = steps,
                          .block_count = 1 << 20};
    const SteadyState state = steady_state(model, options, linear_seconds);
    EXPECT_NEAR(state.prompts, 400, 1e-3);
    EXPECT_NEAR(state.inside / plain.inside, 1, 1e-4);
    EXPECT_NEAR(state.cycle_s / plain.cycle_s, 1, 1e-4);
    EXPECT_NEAR(state.requests_per_s * plain.cycle_s / 400, 1, 1e-4);
    ASSERT_EQ(state.steps_s.size(), plain.loads.size());
    double rows = 0, tokens = 0;
    for (size_t u = 0; u < plain.loads.size(); ++u) {
      EXPECT_NEAR(state.steps_s[u] / linear_seconds(plain.loads[u]), 1, 1e-4);
      rows += plain.loads[u].next_rows / steps;
      tokens += plain.loads[u].kv_tokens / steps;
    }
    EXPECT_NEAR(state.next_rows / rows, 1, 1e-4);
    EXPECT_NEAR(state.kv_tokens / tokens, 1, 1e-4);
    // The width is of E[max(c, 1)]; 1 / E[1 / max(c, 1)] counts each request once whatever it
    // stays.
    double mean = 0, inverse = 0;
    for (const RequestLengths& one : lengths) {
      const double rounds =
          std::max(1.0, std::ceil(static_cast<double>(one.output_tokens - 1) / steps));
      mean += rounds / 30;
      inverse += 1 / rounds / 30;
    }
    EXPECT_NEAR(state.inside / 400, mean, 1e-3 * mean);
    EXPECT_GT(mean * inverse, steps == 20 ? 1.1 : 1.3) << "the lengths are too alike for this test";
  }
}

TEST(ServeSteady, AnAnswerTakesItsRounds) {
  const std::vector<RequestLengths> lengths(5, {10, 8});  // 7 iterations, 3 rounds of 3
  const LengthModel model(lengths, 16);
  SteadyOptions options{
      .policy = ServePolicy::kRounds, .round_prompts = 2, .round_steps = 3, .block_count = 100};
  const SteadyState state = steady_state(model, options, linear_seconds);
  EXPECT_NEAR(state.inside, 6, 1e-5);
  // The seventh iterations are beside the first and fourth ones of others: 11, 14 and 17 tokens.
  EXPECT_NEAR(state.steps_s[0], linear_seconds({.next_rows = 6, .kv_tokens = 84, .pairs = 84}),
              1e-4);
  EXPECT_NEAR(state.steps_s[2], linear_seconds({.next_rows = 4, .kv_tokens = 58, .pairs = 58}),
              1e-4);
  const double prompts_s = state.prompts_s;
  EXPECT_NEAR(prompts_s,
              linear_seconds({.prompts = 2, .prompt_tokens = 20, .kv_tokens = 20, .pairs = 110}),
              1e-4);
  EXPECT_EQ(state.latency_s(1), prompts_s);
  EXPECT_NEAR(state.latency_s(3), prompts_s + state.steps_s[0] + state.steps_s[1], 1e-9);
  EXPECT_NEAR(state.latency_s(8), 2 * state.cycle_s + prompts_s + state.steps_s[0], 1e-9);
  EXPECT_NEAR(state.answer_s, state.latency_s(8), 1e-9);
  // One gap in three holds a round's prompts, but for those who have just begun.
  EXPECT_NEAR(state.gap_quantile_s(0.99), prompts_s + state.steps_s[0], 1e-4);
  EXPECT_LT(state.gap_quantile_s(0.5), prompts_s);
}

TEST(ServeSteady, LoadsThatAreLessThanCanBeCarried) {
  const LengthModel model(random_lengths(3, 60, 40), 16);
  for (const ServePolicy policy : kServePolicies) {
    SteadyOptions options{.policy = policy, .batch_requests_max = 16, .block_count = 1000};
    const SteadyState full = steady_state(model, options, linear_seconds);
    EXPECT_TRUE(full.carried);
    EXPECT_GT(full.requests_per_s, 0);
    options.rate_per_s = 0.6 * full.requests_per_s;
    const SteadyState some = steady_state(model, options, linear_seconds);
    EXPECT_TRUE(some.carried);
    EXPECT_NEAR(some.requests_per_s / options.rate_per_s, 1, 1e-3) << policy_name(policy);
    EXPECT_LT(some.inside, full.inside);
    EXPECT_LE(some.answer_s, full.answer_s * 1.0001);
    options.rate_per_s = 1.01 * full.requests_per_s;
    EXPECT_FALSE(steady_state(model, options, linear_seconds).carried);
    options.rate_per_s = 0;
    options.users = 5;  // of which everybody is inside, or waits
    const SteadyState closed = steady_state(model, options, linear_seconds);
    EXPECT_LE(closed.inside, 5.0001);
    EXPECT_NEAR((closed.wait_s + closed.answer_s) * closed.requests_per_s, 5, 0.6);
    EXPECT_LE(closed.requests_per_s, full.requests_per_s);
  }
}

TEST(ServeSteady, RequestsAreLetInAsBlocksAllow) {
  const LengthModel model(std::vector<RequestLengths>(3, {24, 24}), 16);  // 3 blocks
  SteadyOptions options{.policy = ServePolicy::kOrca, .batch_requests_max = 64, .block_count = 31};
  EXPECT_NEAR(steady_state(model, options, linear_seconds).inside, 10, 1e-9);
  options.block_count = 3;
  EXPECT_EQ(steady_state(model, options, linear_seconds).inside, 1);
  options.block_count = 2;
  EXPECT_FALSE(steady_state(model, options, linear_seconds).carried);
}

}  // namespace
}  // namespace jige::plan
