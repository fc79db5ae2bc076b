#include "sim/serve_simulation.h"

#include <gtest/gtest.h>

#include <atomic>

namespace jige::sim {
namespace {

using plan::ServePolicy;

ServeSimulationOptions options_of(ServePolicy policy, int32_t block_count = 4096) {
  ServeSimulationOptions options;
  options.scheduler.policy = policy;
  options.scheduler.batch_tokens_max = 64;
  options.scheduler.pool = {.block_count = block_count};
  options.step = {.base_s = 1, .token_s = 0.1, .kv_token_s = 0.01};
  return options;
}

ServeSimulationResult run(const std::vector<RequestShape>& requests,
                          const ServeSimulationOptions& options) {
  auto result = simulate_serve(requests, options);
  EXPECT_TRUE(result) << result.error().message;
  return result ? std::move(*result) : ServeSimulationResult{};
}

TEST(ServeSimulation, OneRequestTakesItsStepsOneAfterTheOther) {
  const auto result = run({{2, 10, 3}}, options_of(ServePolicy::kOrca));
  const RequestOutcome& outcome = result.outcomes[0];
  const double prefill_s = 1 + 0.1 * 10 + 0.01 * 10;
  const double first_s = 1 + 0.1 + 0.01 * 11;
  const double second_s = 1 + 0.1 + 0.01 * 12;
  EXPECT_DOUBLE_EQ(outcome.start_s, 2);
  EXPECT_DOUBLE_EQ(outcome.first_token_s, 2 + prefill_s);
  EXPECT_DOUBLE_EQ(outcome.end_s, 2 + prefill_s + first_s + second_s);
  ASSERT_EQ(outcome.gaps_s.size(), 2u);
  EXPECT_NEAR(outcome.gaps_s[1], second_s, 1e-12);
  EXPECT_EQ(result.iterations, 3);
  EXPECT_EQ(result.computed_tokens, 12);
  EXPECT_EQ(result.kv_blocks_live_max, 1);
  EXPECT_EQ(result.kv_blocks_live_end, 0);
  EXPECT_NEAR(result.busy_s, outcome.end_s - 2, 1e-12);
}

// One at a time, constant service S, Poisson arrivals: a request waits rho S / (2 (1 - rho)).
TEST(ServeSimulation, AgreesWithTheQueueOfConstantService) {
  ServeSimulationOptions options = options_of(ServePolicy::kOrca);
  options.scheduler.batch_requests_max = 1;
  options.step = {.base_s = 1};
  for (const double rho : {0.3, 0.6}) {
    const Workload load = make_workload({.request_count = 20'000,
                                         .rate_per_s = rho,
                                         .lengths = {.prompt = {.low = 3, .high = 3}, .output = {}},
                                         .seed = 3});
    const LoadReport report = make_report(run(load.requests, options).outcomes);
    const double expected_s = rho / (2 * (1 - rho));
    EXPECT_NEAR(report.e2e_s.mean - 1, expected_s, 0.06 * expected_s) << rho;
    EXPECT_NEAR(report.requests_per_s, rho, 0.03);
  }
}

TEST(ServeSimulation, UsersWaitForTheirAnswers) {
  ServeSimulationOptions options = options_of(ServePolicy::kChunked);
  options.users = 3;
  const std::vector<RequestShape> requests(12, {99, 8, 4});  // arrival times do not matter
  const auto result = run(requests, options);
  for (const RequestOutcome& one : result.outcomes) {
    int at_once = 0;
    for (const RequestOutcome& other : result.outcomes) {
      at_once += other.start_s <= one.start_s && one.start_s < other.end_s;
    }
    EXPECT_LE(at_once, 3);
  }
  EXPECT_EQ(result.outcomes[2].start_s, 0);
  EXPECT_EQ(result.outcomes[3].start_s, result.outcomes[0].end_s);
}

TEST(ServeSimulation, NoiseMakesATailAndRepeats) {
  ServeSimulationOptions options = options_of(ServePolicy::kChunked);
  options.users = 3;
  options.faults = {.cancel_share = 0.1, .cancel_after_s = 20, .stop_share = 0.05};
  const std::vector<RequestShape> requests(300, {0, 8, 20});
  const auto quiet = run(requests, options);
  NoiseGroup group{.end_s = 1};
  for (const double share : noise_shares()) {
    group.quantiles.push_back(share <= 0.9 ? 1 : 1 + (share - 0.9) / 0.1 * 9);
  }
  options.step.noise.groups = {group};
  const auto noisy = run(requests, options);
  const LoadReport before = make_report(quiet.outcomes), after = make_report(noisy.outcomes);
  EXPECT_NEAR(after.itl_s.p50 / before.itl_s.p50, 1, 0.05);
  EXPECT_GT(after.itl_s.p99, 4 * before.itl_s.p99);
  // The mean of all iterations is that of what is drawn.
  const double longer = noisy.busy_s / static_cast<double>(noisy.iterations) /
                        (quiet.busy_s / static_cast<double>(quiet.iterations));
  EXPECT_NEAR(longer, group.mean(), 0.1 * group.mean());
  EXPECT_EQ(run(requests, options).busy_s, noisy.busy_s);
  options.seed = 2;
  EXPECT_NE(run(requests, options).busy_s, noisy.busy_s);
}

// What comes while an iteration is under way waits for the next one.
TEST(ServeSimulation, UsersTakeTheirTimeToAskAgain) {
  ServeSimulationOptions options = options_of(ServePolicy::kChunked);
  options.users = 1;
  options.turnaround_s = 0.25;
  const std::vector<RequestShape> requests(3, {0, 8, 4});
  const auto result = run(requests, options);
  for (size_t i = 1; i < requests.size(); ++i) {
    EXPECT_DOUBLE_EQ(result.outcomes[i].start_s, result.outcomes[i - 1].end_s + 0.25);
  }
  options.users = 2;
  options.step = {.base_s = 1};
  const auto beside = run(std::vector<RequestShape>{{0, 8, 4}, {0, 8, 9}, {0, 8, 4}}, options);
  EXPECT_DOUBLE_EQ(beside.outcomes[2].start_s, 4.25);
  EXPECT_DOUBLE_EQ(beside.outcomes[2].first_token_s, 6) << "the second user's step had begun";
  // All are due at once, and the first to come is a batch by itself.
  options.scheduler.policy = ServePolicy::kStatic;
  options.users = 3;
  const auto fixed = run(std::vector<RequestShape>(6, {0, 8, 4}), options);
  EXPECT_DOUBLE_EQ(fixed.outcomes[0].end_s, 4);
  EXPECT_DOUBLE_EQ(fixed.outcomes[2].start_s, 0.5);
  EXPECT_DOUBLE_EQ(fixed.outcomes[2].end_s, 8);
  EXPECT_DOUBLE_EQ(fixed.outcomes[3].start_s, 4.25);
  EXPECT_DOUBLE_EQ(fixed.outcomes[4].start_s, 8.25) << "two are due at 8";
  EXPECT_DOUBLE_EQ(fixed.outcomes[5].start_s, 8.5);
}

TEST(ServeSimulation, StaticAnswersEndWithTheirBatch) {
  const std::vector<RequestShape> requests = {{0, 4, 1}, {0, 4, 6}};
  const auto fixed = run(requests, options_of(ServePolicy::kStatic));
  EXPECT_EQ(fixed.outcomes[0].end_s, fixed.outcomes[1].end_s);
  const auto orca = run(requests, options_of(ServePolicy::kOrca));
  EXPECT_LT(orca.outcomes[0].end_s, orca.outcomes[1].end_s);
}

// Orca's figure: at a rate that request-level batching cannot follow, iteration-level batching
// still answers fast.
TEST(ServeSimulation, IterationLevelBatchingCarriesSeveralTimesTheLoad) {
  const auto median_of = [](ServePolicy policy, double rate) {
    ServeSimulationOptions options = options_of(policy, 2048);
    options.scheduler.batch_requests_max = 32;
    options.scheduler.batch_tokens_max = 512;
    options.step = {.base_s = 0.02, .token_s = 1e-5, .kv_token_s = 1e-8};
    const Workload load = make_workload(
        {.request_count = 300, .rate_per_s = rate, .lengths = orca_lengths(), .seed = 2});
    return make_report(run(load.requests, options).outcomes).normalised_s.p50;
  };
  const double quick = 2 * 0.025;  // twice an unloaded step
  EXPECT_GT(median_of(ServePolicy::kStatic, 4), quick);
  EXPECT_LT(median_of(ServePolicy::kOrca, 10), quick);
  EXPECT_LT(median_of(ServePolicy::kChunked, 10), quick);
}

TEST(ServeSimulation, ABatchInEveryStageOfThePipeline) {
  ServeSimulationOptions options = options_of(ServePolicy::kOrca);
  options.scheduler.batch_requests_max = 1;
  options.step = {.base_s = 1};
  const std::vector<RequestShape> requests(8, {0, 4, 10});
  const double alone_s = make_report(run(requests, options).outcomes).seconds;
  options.scheduler.batches_in_flight_max = 4;
  const double piped_s = make_report(run(requests, options).outcomes).seconds;
  EXPECT_NEAR(alone_s, 80, 1e-9);
  EXPECT_NEAR(piped_s, 20, 1);
}

// Found by a random trace: who waits for the last member of a static batch is over when that one is
// cancelled in flight and its batch is lost, too.
TEST(ServeSimulation, ALostBatchOfCancelledRequestsReleasesThoseWhoWaited) {
  plan::ServeScheduler scheduler({.policy = ServePolicy::kStatic, .pool = {.block_count = 8}});
  ASSERT_TRUE(scheduler.arrive({.id = 1, .prompt = {1, 2}, .max_new_tokens = 1}));
  ASSERT_TRUE(scheduler.arrive({.id = 2, .prompt = {3, 4}, .max_new_tokens = 5}));
  auto batch = scheduler.next_batch();
  EXPECT_TRUE(
      scheduler.complete(batch->id, std::vector<plan::SampledNext>{{1, 7}, {2, 7}}).empty());
  batch = scheduler.next_batch();
  EXPECT_TRUE(scheduler.cancel(2).empty());
  EXPECT_EQ(scheduler.lose(batch->id), (std::vector<plan::RequestId>{1}));
  EXPECT_TRUE(scheduler.idle());
}

TEST(ServeSimulation, CancelsAndLostBatchesAreCountedAndLeaveNoBlocks) {
  ServeSimulationOptions options = options_of(ServePolicy::kChunked, 64);
  options.faults = {.cancel_share = 0.5, .cancel_after_s = 20, .lose_share = 0.3};
  const Workload load = make_workload(
      {.request_count = 200,
       .rate_per_s = 0.2,
       .lengths = {.prompt = {.low = 1, .high = 100}, .output = {.low = 1, .high = 30}}});
  const auto result = run(load.requests, options);
  const LoadReport report = make_report(result.outcomes);
  EXPECT_GT(report.failures.at("cancelled"), 40);
  EXPECT_LT(report.failures.at("cancelled"), 125);
  EXPECT_NEAR(static_cast<double>(result.iterations_lost) /
                  static_cast<double>(result.iterations + result.iterations_lost),
              0.3, 0.05);
  EXPECT_EQ(result.kv_blocks_live_end, 0);
  for (size_t i = 0; i < result.outcomes.size(); ++i) {
    if (!result.outcomes[i].failure.empty()) continue;
    EXPECT_EQ(result.outcomes[i].output_tokens, load.requests[i].output_tokens);
  }
}

TEST(ServeSimulation, WhatCanNeverRunFailsAlone) {
  ServeSimulationOptions options = options_of(ServePolicy::kOrca, 2);  // 32 tokens
  options.users = 1;
  const auto result = run({{0, 40, 5}, {0, 10, 5}, {0, 20, 20}}, options);
  EXPECT_EQ(result.outcomes[0].failure, "too large");
  EXPECT_EQ(result.outcomes[1].failure, "");
  EXPECT_EQ(result.outcomes[1].output_tokens, 5);
  EXPECT_EQ(result.outcomes[2].failure, "too large");
}

TEST(ServeSimulation, EndsWhenItIsCancelled) {
  const std::atomic<bool> cancel{true};
  ServeSimulationOptions options = options_of(ServePolicy::kChunked);
  options.cancel = &cancel;
  const std::vector<RequestShape> requests = {{0, 4, 10}};
  const auto result = simulate_serve(requests, options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kCancelled);
}

TEST(ServeSimulation, RepeatsExactly) {
  ServeSimulationOptions options = options_of(ServePolicy::kChunked, 12);
  options.scheduler.admission = plan::Admission::kOptimistic;
  options.faults = {.cancel_share = 0.2, .cancel_after_s = 5, .lose_share = 0.1, .stop_share = 0.1};
  const Workload load = make_workload(
      {.request_count = 60,
       .rate_per_s = 1,
       .lengths = {.prompt = {.low = 1, .high = 90}, .output = {.low = 1, .high = 40}}});
  const auto first = run(load.requests, options);
  const auto second = run(load.requests, options);
  EXPECT_GT(first.preemptions, 0);
  for (size_t i = 0; i < first.outcomes.size(); ++i) {
    EXPECT_EQ(first.outcomes[i].end_s, second.outcomes[i].end_s);
    EXPECT_EQ(first.outcomes[i].gaps_s, second.outcomes[i].gaps_s);
  }
}

}  // namespace
}  // namespace jige::sim
