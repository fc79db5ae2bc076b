#include "sim/serve_replanner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/rng.h"

namespace jige::sim {
namespace {

using plan::ReplanOutcome;
using ::testing::AllOf;
using ::testing::HasSubstr;

// 20 ms an iteration and 100 us a token: one of 512 tokens takes 71 ms.
const StepTime kFigures = {.base_s = 0.02, .token_s = 1e-4, .kv_token_s = 2e-8};
constexpr int32_t kBlocks = 4096;

plan::RecentLoad recent_load(int64_t prompts_max, double rate_per_s = 4, int64_t answers_max = 64) {
  Rng rng(3);
  plan::RecentLoad recent;
  double now_s = 1000;
  for (int i = 0; i < 256; ++i) {
    const auto upper_half = [&](int64_t most) {
      return most / 2 + static_cast<int64_t>(rng.below(static_cast<uint64_t>(most / 2) + 1));
    };
    recent.ended.push_back(
        {.prompt_tokens = upper_half(prompts_max), .answer_tokens = upper_half(answers_max)});
    recent.arrivals_s.push_back(now_s -= std::log(1 - rng.uniform()) / rate_per_s);
  }
  return recent;
}

ServePlanFile plan_file(const ServeBounds& bounds) {
  ServePlanFile file;
  file.users = 16;
  file.bounds = bounds;
  file.kv_tokens = kBlocks * 16;
  file.iteration = "by figures";
  file.search = {.policies = {plan::ServePolicy::kChunked, plan::ServePolicy::kOrca},
                 .batch_requests_max = 32,
                 .batch_tokens_max = 512,
                 .step = kFigures};
  return file;
}

ServeReplan replan(const ServePlanFile& planned, const plan::RecentLoad& recent,
                   const ServeSettings& settings) {
  auto found = replan_serving(
      {.planned = planned, .recent = recent, .settings = settings, .block_count = kBlocks});
  EXPECT_TRUE(found) << found.error().message;
  return found ? std::move(*found) : ServeReplan{};
}

// What is best for short prompts makes gaps of 71 ms beside long ones.
TEST(ServeReplanner, SwitchesWhereLongPromptsBreakABound) {
  const ServePlanFile planned = plan_file({.itl_s = 0.05});
  const ServeSettings before = {.batch_requests_max = 16, .batch_tokens_max = 512};
  const ServeReplan kept = replan(planned, recent_load(64), before);
  EXPECT_EQ(kept.outcome, ReplanOutcome::kKept) << kept.text();
  const ServeReplan found = replan(planned, recent_load(2000), before);
  ASSERT_EQ(found.outcome, ReplanOutcome::kSwitched) << found.text();
  EXPECT_EQ(found.plan.usual.settings, before);
  EXPECT_FALSE(found.plan.usual.keeps_bounds());
  EXPECT_TRUE(found.plan.chosen->keeps_bounds());
  EXPECT_LT(found.plan.chosen->settings.batch_tokens_max, 512);
  EXPECT_LE(found.plan.chosen->itl_s.bounded, 0.05);
  EXPECT_THAT(found.text(), AllOf(HasSubstr("in place of chunked, 16 answers at once, 512 tokens"),
                                  HasSubstr("before"), HasSubstr("beyond the bound of itl")));
  // The same again is the same, and nothing is better than it.
  const ServeReplan again = replan(planned, recent_load(2000), found.plan.chosen->settings);
  EXPECT_EQ(again.outcome, ReplanOutcome::kKept) << again.text();
}

TEST(ServeReplanner, ThePlanIsForTheRequestsAndTheCacheThatThereAre) {
  const ServePlanFile planned = plan_file({.itl_s = 0.05});
  const plan::RecentLoad recent = recent_load(2000);
  const ServeReplan found =
      replan(planned, recent, {.batch_requests_max = 16, .batch_tokens_max = 512});
  ASSERT_EQ(found.outcome, ReplanOutcome::kSwitched);
  const auto file = serve_plan_from_json(found.to_json(planned), "p");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->settings, found.plan.chosen->settings);
  EXPECT_EQ(file->users, 16);
  EXPECT_EQ(file->requests, 256);
  EXPECT_EQ(file->kv_tokens, kBlocks * 16);
  EXPECT_EQ(file->iteration, "by figures");
  const plan::PlannedLoad load = plan::planned_for(recent, false);
  EXPECT_EQ(file->lengths.prompt_tokens, load.prompt_tokens);
  EXPECT_EQ(file->lengths.answer_tokens, load.answer_tokens);
  EXPECT_EQ(file->lengths.requests, load.requests);
  ASSERT_TRUE(file->search) << "as good for yet another plan";
  EXPECT_EQ(file->search->policies, planned.search->policies);
  EXPECT_EQ(file->search->batch_requests_max, 32);
}

// More a second by less than a simulation of 256 requests can tell.
TEST(ServeReplanner, WhatIsHardlyBetterIsLeft) {
  ServePlanFile planned = plan_file({});
  planned.users = 32;
  const plan::RecentLoad recent = recent_load(300);
  const ServeSettings best =
      replan(planned, recent, {.batch_requests_max = 1}).plan.chosen->settings;
  ServeSettings nearly = best;
  ServeReplan found;
  // The first step down that costs something.
  do {
    --nearly.batch_requests_max;
    found = replan(planned, recent, nearly);
  } while (found.gain < 0.005);
  EXPECT_LT(found.gain, kWorthSwitching);
  EXPECT_EQ(found.outcome, ReplanOutcome::kKept);
  EXPECT_THAT(found.text(), AllOf(HasSubstr("stays"), HasSubstr("% only")));
  nearly.batch_requests_max = 1;
  found = replan(planned, recent, nearly);
  EXPECT_GT(found.gain, kWorthSwitching);
  EXPECT_EQ(found.outcome, ReplanOutcome::kSwitched);
}

TEST(ServeReplanner, SaysWhereNothingKeepsTheBounds) {
  const ServeReplan found =
      replan(plan_file({.itl_s = 0.01}), recent_load(300), {.batch_requests_max = 16});
  EXPECT_EQ(found.outcome, ReplanOutcome::kInfeasible);
  EXPECT_FALSE(found.plan.chosen);
  EXPECT_THAT(found.text(), AllOf(HasSubstr("no setting keeps the bounds"), HasSubstr("times")));
}

TEST(ServeReplanner, AtARateRequestsComeAsTheyCame) {
  ServePlanFile planned = plan_file({});
  planned.users = 0;
  planned.rate_per_s = 4;
  const plan::RecentLoad recent = recent_load(200, 9);
  const ServeReplan found = replan(planned, recent, {.batch_requests_max = 1});
  EXPECT_EQ(found.outcome, ReplanOutcome::kSwitched) << found.text();
  EXPECT_EQ(found.request.load.rate_per_s, recent.rate_per_s());
  EXPECT_EQ(found.request.load.users, 0);
  ASSERT_EQ(found.request.load.requests.size(), 256);
  EXPECT_NEAR(found.request.load.requests[100].arrival_s,
              recent.arrivals_s[100] - recent.arrivals_s[0], 1e-9);
  const ServeReplan too_many =
      replan(planned, recent_load(2000, 400, 500), {.batch_requests_max = 8});
  EXPECT_EQ(too_many.outcome, ReplanOutcome::kInfeasible);
  EXPECT_THAT(too_many.text(), HasSubstr("nothing carries"));
}

TEST(ServeReplanner, RefusesWhatItCannotPlan) {
  ServePlanFile planned = plan_file({});
  const plan::RecentLoad recent = recent_load(64), none;
  const std::atomic<bool> cancelled{true};
  const auto error_of = [&](const plan::RecentLoad& load, int32_t blocks,
                            const std::atomic<bool>* cancel = nullptr) {
    const auto found = replan_serving({.planned = planned,
                                       .recent = load,
                                       .settings = {.batch_requests_max = 16},
                                       .block_count = blocks,
                                       .cancel = cancel});
    return found ? Code::kInternal : found.error().code;
  };
  EXPECT_EQ(error_of(none, kBlocks), Code::kInvalidArgument);
  EXPECT_EQ(error_of(recent, 1), Code::kExhausted);
  EXPECT_EQ(error_of(recent, kBlocks, &cancelled), Code::kCancelled);
  planned.search.reset();
  EXPECT_EQ(error_of(recent, kBlocks), Code::kInvalidArgument);
}

}  // namespace
}  // namespace jige::sim
