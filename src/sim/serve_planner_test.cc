#include "sim/serve_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>

namespace jige::sim {
namespace {

using plan::ServePolicy;
using ::testing::HasSubstr;

// Short requests, so that a simulation takes a millisecond or two.
ServePlanRequest request_of(int64_t users = 0, double rate_per_s = 0) {
  ServePlanRequest request;
  request.load.step = {.base_s = 0.02, .token_s = 2e-4, .kv_token_s = 1e-7};
  request.load.requests = make_workload({.request_count = 150,
                                         .rate_per_s = 1,
                                         .lengths = {.prompt = {.low = 8, .high = 100},
                                                     .output = {.low = 1, .high = 24}},
                                         .seed = 5})
                              .requests;
  request.load.users = users;
  request.load.rate_per_s = rate_per_s;
  request.load.pool = {.block_count = 512};
  request.batch_requests_max = 16;
  request.batch_tokens_max = 128;
  request.usual = {.batch_requests_max = 16, .batch_tokens_max = 128};
  return request;
}

ServePlan plan_of(const ServePlanRequest& request) {
  auto plan = plan_serving(request);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? std::move(*plan) : ServePlan{};
}

void expect_figures(const ServePrediction& one) {
  EXPECT_GT(one.requests_per_s, 0);
  EXPECT_GT(one.output_tokens_per_s, one.requests_per_s);
  for (const ServeFigure* figure : {&one.ttft_s, &one.itl_s, &one.tpot_s, &one.e2e_s}) {
    EXPECT_GT(figure->p50, 0);
    EXPECT_LE(figure->p50, figure->p90);
    EXPECT_LE(figure->p90, figure->p99);
    // Bounds count at this quantile, those of gaps beyond it.
    EXPECT_TRUE(figure == &one.itl_s ? figure->bounded >= figure->p99
                                     : figure->bounded == figure->p99);
  }
  EXPECT_LT(one.ttft_s.p50, one.e2e_s.p50);
}

TEST(ServePlanner, WhatIsChosenKeepsItsBoundsAndIsNoWorseThanUsual) {
  for (const int64_t users : {0, 12}) {
    for (const double itl_s : {0.0, 0.03}) {
      ServePlanRequest request = request_of(users);
      if (itl_s > 0) request.bounds.itl_s = itl_s;
      const ServePlan plan = plan_of(request);
      ASSERT_TRUE(plan.chosen) << itl_s;
      expect_figures(*plan.chosen);
      expect_figures(plan.usual);
      EXPECT_TRUE(plan.chosen->keeps_bounds());
      EXPECT_TRUE(itl_s == 0 || plan.chosen->itl_s.p99 <= itl_s);
      if (plan.usual.keeps_bounds()) {
        EXPECT_GE(plan.chosen->requests_per_s, 0.995 * plan.usual.requests_per_s);
      }
      ASSERT_TRUE(plan.runner_up);
      EXPECT_NE(plan.runner_up->settings, plan.chosen->settings);
      EXPECT_LE(plan.runner_up->requests_per_s, plan.chosen->requests_per_s);
      EXPECT_EQ(plan.by_policy.size(), request.policies.size());
      EXPECT_FALSE(plan.binding.empty());
      EXPECT_LE(plan.simulated, request.simulations_max);
      EXPECT_LE(plan.evaluated, plan.settings);
      // Users of a fixed number are looked at with all settings, else few are enough.
      EXPECT_EQ(plan.evaluated == plan.settings, users > 0);
      // Users who come one after the other make small static batches, which formulas do not know.
      EXPECT_LT(plan.steady_error_max, users > 0 ? 0.4 : 0.25);
    }
  }
}

TEST(ServePlanner, LookingAtAllSettingsFindsLittleMore) {
  ServePlanRequest request = request_of();
  request.load.requests.resize(40);
  request.batch_requests_max = 4;
  request.batch_tokens_max = 32;
  request.bounds.e2e_s = 0.8;
  request.certify = true;
  const ServePlan plan = plan_of(request);
  ASSERT_TRUE(plan.certified);
  EXPECT_EQ(plan.simulated, plan.settings);
  EXPECT_GE(plan.certified->requests_per_s, plan.chosen->requests_per_s);
  EXPECT_LT(plan.certified_gain, 0.02) << settings_text(plan.certified->settings) << " instead of "
                                       << settings_text(plan.chosen->settings);
}

TEST(ServePlanner, WithoutASettingThatKeepsTheBoundsTheNearestIsTold) {
  ServePlanRequest request = request_of();
  request.bounds.e2e_s = 0.3;
  const ServePlan plan = plan_of(request);
  EXPECT_FALSE(plan.chosen);
  ASSERT_TRUE(plan.nearest);
  EXPECT_GT(plan.nearest->ratio, 1);
  EXPECT_EQ(plan.binding, "e2e");
  // Bounds that are as much larger can be kept.
  request.bounds.e2e_s = 0.3 * plan.nearest->ratio * 1.0001;
  EXPECT_TRUE(plan_of(request).chosen);
}

// What keeps a bound on the first token may be what carries least, one answer at a time.
TEST(ServePlanner, WhatCarriesLittleIsFoundWhereNothingElseKeepsTheBounds) {
  ServePlanRequest request = request_of();
  request.load.requests = make_workload({.request_count = 20,
                                         .lengths = {.prompt = {.low = 32, .high = 512},
                                                     .output = {.low = 1, .high = 128}},
                                         .seed = 1})
                              .requests;
  request.load.pool = {.block_count = 1024};
  request.batch_requests_max = request.usual.batch_requests_max = 64;
  request.batch_tokens_max = request.usual.batch_tokens_max = 512;
  request.bounds.ttft_s = 1e-3;
  const ServePlan never = plan_of(request);
  ASSERT_TRUE(never.nearest);
  request.bounds.ttft_s = 1e-3 * never.nearest->ratio * 1.001;
  const ServePlan plan = plan_of(request);
  EXPECT_TRUE(plan.chosen) << settings_text(never.nearest->settings) << " keeps it";
  EXPECT_LE(plan.simulated, request.simulations_max);
}

TEST(ServePlanner, AMarginMakesBoundsTighter) {
  ServePlanRequest request = request_of();
  request.bounds.e2e_s = 1;
  const ServePlan plan = plan_of(request);
  request.bounds.margin = 0.2;
  const ServePlan tighter = plan_of(request);
  ASSERT_TRUE(plan.chosen && tighter.chosen);
  EXPECT_LE(tighter.chosen->e2e_s.p99, 0.8);
  EXPECT_LT(tighter.chosen->requests_per_s, plan.chosen->requests_per_s);
}

TEST(ServePlanner, ALoadAtARateIsAnsweredSoon) {
  ServePlanRequest request = request_of(0, 8);
  request.simulations_max = 12;
  request.bounds.itl_s = 0.06;
  const ServePlan plan = plan_of(request);
  ASSERT_TRUE(plan.chosen);
  expect_figures(*plan.chosen);
  EXPECT_NEAR(plan.chosen->requests_per_s, 8, 1);
  EXPECT_EQ(plan.chosen->users, 0);
  for (const ServePrediction& other : plan.by_policy) {
    EXPECT_TRUE(!other.keeps_bounds() || other.e2e_s.mean >= plan.chosen->e2e_s.mean);
  }
  request.load.rate_per_s = 500;  // more than anything carries
  EXPECT_FALSE(plan_of(request).chosen);
}

TEST(ServePlanner, TellsWhatIsInTheWay) {
  ServePlanRequest request = request_of();
  request.load.pool.block_count = 20;  // two or three at once
  EXPECT_EQ(plan_of(request).binding, "memory");
  request = request_of(2);
  EXPECT_EQ(plan_of(request).binding, "users");
  request = request_of();
  request.batch_requests_max = 4;
  EXPECT_EQ(plan_of(request).binding, "answers at once");
  request = request_of();
  request.bounds.ttft_s = 0.06;
  EXPECT_EQ(plan_of(request).binding, "ttft");
}

TEST(ServePlanner, RepeatsExactly) {
  ServePlanRequest request = request_of(6);
  request.bounds.itl_s = 0.04;
  const ServePlan first = plan_of(request), second = plan_of(request);
  EXPECT_EQ(first.chosen->settings, second.chosen->settings);
  EXPECT_EQ(first.chosen->requests_per_s, second.chosen->requests_per_s);
  EXPECT_EQ(first.simulated, second.simulated);
}

TEST(ServePlanner, TellsHowFarItIsAndCanBeStopped) {
  std::atomic<bool> cancel = false;
  ServePlanRequest request = request_of();
  int64_t seen = -1;
  request.progress = [&](int64_t done, int64_t total) {
    EXPECT_GT(done, seen);
    EXPECT_LE(done, total);
    seen = done;
    if (done == 3) cancel = true;
  };
  request.load.cancel = &cancel;
  const auto plan = plan_serving(request);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kCancelled);
  EXPECT_EQ(seen, 3);
}

TEST(ServePlanner, RefusesWhatCannotBePlanned) {
  const auto message_of = [](const auto& change) {
    ServePlanRequest request = request_of();
    change(request);
    const auto plan = plan_serving(request);
    EXPECT_FALSE(plan);
    return plan ? "" : plan.error().message;
  };
  EXPECT_THAT(message_of([](auto& r) { r.load.requests.clear(); }), HasSubstr("no requests"));
  EXPECT_THAT(message_of([](auto& r) { r.load.requests[3].output_tokens = 0; }), HasSubstr("+ 0"));
  EXPECT_THAT(message_of([](auto& r) { r.load.requests[3].prompt_tokens = 9000; }),
              HasSubstr("has no room in a cache of 8192"));
  EXPECT_THAT(message_of([](auto& r) { r.load.step = {}; }), HasSubstr("time of an iteration"));
  EXPECT_THAT(message_of([](auto& r) { r.load.users = r.load.rate_per_s = 2; }),
              HasSubstr("2 users and 2 requests a second"));
  EXPECT_THAT(message_of([](auto& r) { r.load.rate_per_s = -1; }), HasSubstr("-1"));
  EXPECT_THAT(message_of([](auto& r) { r.bounds.itl_s = 0; }), HasSubstr("bound of itl is 0"));
  EXPECT_THAT(message_of([](auto& r) { r.bounds.e2e_s = NAN; }), HasSubstr("bound of e2e"));
  EXPECT_THAT(message_of([](auto& r) { r.bounds.quantile = 1; }), HasSubstr("quantile"));
  EXPECT_THAT(message_of([](auto& r) { r.bounds.margin = 1; }), HasSubstr("margin"));
  EXPECT_THAT(message_of([](auto& r) { r.policies.clear(); }), HasSubstr("policies"));
  EXPECT_THAT(message_of([](auto& r) { r.batch_requests_max = 0; }), HasSubstr("answers at once"));
  EXPECT_THAT(message_of([](auto& r) { r.simulations_max = 0; }), HasSubstr("simulations"));
}

// Where an iteration takes as long for one as for many at once, more only makes answers slower.
TEST(ServePlanner, OfThroughputsThatAreAlikeTheOneWithTheFastestAnswersIsChosen) {
  ServePlanRequest request = request_of();
  request.load.step = {.base_s = 1e-6, .token_s = 1e-3};
  request.usual.batch_requests_max = 3;
  const ServePlan plan = plan_of(request);
  ASSERT_TRUE(plan.chosen);
  for (const ServePrediction& other : plan.by_policy) {
    EXPECT_TRUE(other.requests_per_s < 0.994 * plan.chosen->requests_per_s ||
                other.e2e_s.mean >= plan.chosen->e2e_s.mean);
  }
}

}  // namespace
}  // namespace jige::sim
