#include "sim/route_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <set>

#include "sim/serve_simulation.h"

namespace jige::sim {
namespace {

RouteSimulationOptions routed_options(plan::RouteRule rule) {
  RouteSimulationOptions options;
  options.server_count = 3;
  options.route.rule = rule;
  options.scheduler.batch_tokens_max = 128;
  options.scheduler.pool = {.block_count = 1200};
  options.step = {.base_s = 0.01, .token_s = 1e-4, .kv_token_s = 1e-7};
  options.load = {.user_count = 12,
                  .conversation_count = 60,
                  .turns = {.low = 2, .high = 5},
                  .system_prompts = 3,
                  .system_tokens = {.low = 200, .high = 200},
                  .question_tokens = {.low = 20, .high = 90},
                  .answer_tokens = {.low = 5, .high = 60},
                  .think_s = 0.5};
  return options;
}

RouteSimulationResult run_routed(const RouteSimulationOptions& options) {
  auto result = simulate_route(options);
  EXPECT_TRUE(result) << result.error().message;
  return result ? std::move(*result) : RouteSimulationResult{};
}

TEST(Conversations, GoOnWithAllThatWasSaid) {
  Conversations talk(routed_options(plan::RouteRule::kPrefix).load);
  std::map<int64_t, Turn> last;
  std::set<int64_t> systems;
  int64_t turns = 0;
  for (int64_t user = 0; user < 12; ++user) {
    while (const auto turn = talk.next(user)) {
      ++turns;
      systems.insert(turn->system);
      const std::vector<int32_t> prompt = Conversations::prompt(*turn, 1);
      ASSERT_EQ(std::ssize(prompt), turn->prompt_tokens);
      ASSERT_GE(turn->think_s, 0);
      if (turn->number == 0) {
        ASSERT_GT(turn->prompt_tokens, 200);
        for (const auto& [id, other] : last) {
          const std::vector<int32_t> theirs = Conversations::prompt(other, 1);
          const auto [end, ignored] = std::ranges::mismatch(prompt, theirs);
          ASSERT_EQ(end - prompt.begin(), other.system == turn->system ? 200 : 0);
        }
      } else {
        const Turn& before = last.at(turn->conversation);
        std::vector<int32_t> said = Conversations::prompt(before, 1);
        for (int64_t i = 0; i < before.answer_tokens; ++i) {
          said.push_back(Conversations::token(before, before.prompt_tokens + i, 1));
        }
        ASSERT_LT(said.size(), prompt.size());
        ASSERT_TRUE(std::equal(said.begin(), said.end(), prompt.begin()));
      }
      last[turn->conversation] = *turn;
    }
  }
  EXPECT_EQ(last.size(), 60U);
  EXPECT_EQ(systems.size(), 3U);
  EXPECT_GE(turns, 120);
}

TEST(RouteSimulation, AnswersEverybodyInFull) {
  for (const plan::RouteRule rule : plan::kRouteRules) {
    const RouteSimulationOptions options = routed_options(rule);
    const RouteSimulationResult result = run_routed(options);
    Conversations talk(options.load);
    std::multiset<std::pair<int64_t, int64_t>> wanted, got;
    for (int64_t user = 0; user < 12; ++user) {
      while (const auto turn = talk.next(user)) {
        wanted.emplace(turn->prompt_tokens, turn->answer_tokens);
      }
    }
    int64_t answered = 0;
    for (const RequestOutcome& one : result.outcomes) {
      got.emplace(one.prompt_tokens, one.output_tokens);
      answered += one.output_tokens;
      EXPECT_LT(one.start_s, one.first_token_s);
      EXPECT_LE(one.first_token_s, one.end_s);
    }
    EXPECT_EQ(got, wanted);
    // Every token of a prompt was found or computed; those of answers but the last were computed.
    const int64_t computed =
        std::accumulate(result.computed_tokens.begin(), result.computed_tokens.end(), int64_t{0});
    EXPECT_EQ(computed,
              result.prompt_tokens - result.cached_tokens + answered - std::ssize(result.outcomes));
  }
}

TEST(RouteSimulation, RepeatsExactly) {
  const RouteSimulationResult first = run_routed(routed_options(plan::RouteRule::kPrefix));
  const RouteSimulationResult second = run_routed(routed_options(plan::RouteRule::kPrefix));
  ASSERT_EQ(first.outcomes.size(), second.outcomes.size());
  for (size_t i = 0; i < first.outcomes.size(); ++i) {
    EXPECT_EQ(first.outcomes[i].end_s, second.outcomes[i].end_s);
  }
}

// One server, and nothing shared: what simulate_serve says.
TEST(RouteSimulation, OfOneServerIsTheSimulationOfServing) {
  RouteSimulationOptions options = routed_options(plan::RouteRule::kPrefix);
  options.server_count = 1;
  options.load = {.user_count = 5,
                  .conversation_count = 30,
                  .turns = {.low = 1, .high = 1},
                  .system_prompts = 0,
                  .question_tokens = {.low = 50, .high = 50},
                  .answer_tokens = {.low = 7, .high = 7},
                  .think_s = 0};
  const RouteSimulationResult routed = run_routed(options);
  const std::vector<RequestShape> shapes(30, {.prompt_tokens = 50, .output_tokens = 7});
  const auto served =
      simulate_serve(shapes, {.scheduler = options.scheduler, .step = options.step, .users = 5});
  ASSERT_TRUE(served);
  ASSERT_EQ(routed.outcomes.size(), 30U);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_DOUBLE_EQ(routed.outcomes[i].start_s, served->outcomes[i].start_s) << i;
    EXPECT_DOUBLE_EQ(routed.outcomes[i].first_token_s, served->outcomes[i].first_token_s) << i;
    EXPECT_DOUBLE_EQ(routed.outcomes[i].end_s, served->outcomes[i].end_s) << i;
  }
}

TEST(RouteSimulation, FindsMoreWhereItKnowsWhatIsThere) {
  const auto share = [](plan::RouteRule rule) {
    const RouteSimulationResult result = run_routed(routed_options(rule));
    return static_cast<double>(result.cached_tokens) / static_cast<double>(result.prompt_tokens);
  };
  EXPECT_GT(share(plan::RouteRule::kPrefix), share(plan::RouteRule::kRoundRobin) + 0.1);
  EXPECT_GT(share(plan::RouteRule::kPrefix), share(plan::RouteRule::kLeastLoaded) + 0.1);
}

double mean_e2e(const std::vector<RequestOutcome>& outcomes) {
  double sum = 0;
  for (const RequestOutcome& one : outcomes) sum += one.end_s - one.start_s;
  return sum / static_cast<double>(outcomes.size());
}

// The last server is four times as fast as the others.
RouteSimulationOptions unequal_options(KnownSpeeds known) {
  RouteSimulationOptions options = routed_options(plan::RouteRule::kPrefix);
  options.speeds = {1, 1, 4};
  options.known_speeds = known;
  options.load.user_count = 60;
  options.load.conversation_count = 250;
  options.load.think_s = 0.2;
  return options;
}

TEST(RouteSimulation, LearnsHowFastServersAre) {
  const RouteSimulationResult equal = run_routed(unequal_options(KnownSpeeds::kEqual));
  const RouteSimulationResult learned = run_routed(unequal_options(KnownSpeeds::kLearned));
  const RouteSimulationResult exact = run_routed(unequal_options(KnownSpeeds::kExact));
  const auto share = [](const RouteSimulationResult& result) {
    const double sum = static_cast<double>(
        std::accumulate(result.computed_tokens.begin(), result.computed_tokens.end(), int64_t{0}));
    return static_cast<double>(result.computed_tokens.back()) / sum;
  };
  // It does four of six parts of the work where that is known.
  EXPECT_GT(share(learned), share(equal) + 0.03);
  EXPECT_NEAR(share(learned), share(exact), 0.08);
  EXPECT_LT(mean_e2e(learned.outcomes), 0.85 * mean_e2e(equal.outcomes));
  EXPECT_LT(mean_e2e(learned.outcomes), 1.15 * mean_e2e(exact.outcomes));
}

TEST(RouteSimulation, DoesNotTakeEqualServersForUnequal) {
  RouteSimulationOptions options = unequal_options(KnownSpeeds::kEqual);
  options.speeds.clear();
  const double equal = mean_e2e(run_routed(options).outcomes);
  options.known_speeds = KnownSpeeds::kLearned;
  EXPECT_NEAR(mean_e2e(run_routed(options).outcomes) / equal, 1, 0.05);
}

TEST(RouteSimulation, GoesAroundOthersWhereServersTell) {
  RouteSimulationOptions options = routed_options(plan::RouteRule::kPrefix);
  options.known_speeds = KnownSpeeds::kEqual;
  options.load.user_count = 36;
  options.load.conversation_count = 240;
  options.other_users = 24;
  const RouteSimulationResult blind = run_routed(options);
  options.tell_s = 1;
  const RouteSimulationResult told = run_routed(options);
  EXPECT_EQ(blind.outcomes.size() + blind.other_outcomes.size(),
            told.outcomes.size() + told.other_outcomes.size());
  EXPECT_LT(told.computed_tokens[0], blind.computed_tokens[0]);
  EXPECT_LT(mean_e2e(told.outcomes), mean_e2e(blind.outcomes));
  EXPECT_LT(mean_e2e(told.other_outcomes), mean_e2e(blind.other_outcomes));
}

TEST(RouteSimulation, SaysWhatCannotRun) {
  RouteSimulationOptions options = routed_options(plan::RouteRule::kPrefix);
  options.scheduler.pool.block_count = 4;
  const auto too_large = simulate_route(options);
  ASSERT_FALSE(too_large);
  EXPECT_EQ(too_large.error().code, Code::kExhausted);
  options = routed_options(plan::RouteRule::kPrefix);
  options.route.requests_max = 1;
  options.route.waiting_max = 2;
  EXPECT_EQ(simulate_route(options).error().code, Code::kExhausted);
  options.route.waiting_max = 100;
  EXPECT_TRUE(simulate_route(options));
  const std::atomic<bool> cancel{true};
  options.cancel = &cancel;
  EXPECT_EQ(simulate_route(options).error().code, Code::kCancelled);
}

}  // namespace
}  // namespace jige::sim
