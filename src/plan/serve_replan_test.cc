// Drift, plans and switches on a virtual clock: what a server does whose requests change.
#include "plan/serve_replan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"

namespace jige::plan {
namespace {

// Requests of one kind: prompts of up to twice a mean, answers of 1 to 64, at a rate.
struct Kind {
  double prompt_mean = 100;
  double rate_per_s = 10;
};

// A server whose plan is for the prompts' mean and, perhaps, their rate. Requests end when they
// come; a plan takes plan_s, and is then in force.
class ReplannedServer {
 public:
  explicit ReplannedServer(const Kind& planned, ReplanOptions options = {})
      : policy_(options), with_rate_(options.with_rate), drift_(plan_for(planned)) {}

  // What a plan comes to; without it one for the mean of the prompts is switched to.
  std::function<ReplanOutcome(const RecentLoad&)> outcome = [](const RecentLoad&) {
    return ReplanOutcome::kSwitched;
  };
  double plan_s = 1;

  void run(const Kind& kind, int requests) {
    for (int i = 0; i < requests; ++i) {
      const double gap_s = -std::log(1 - rng_.uniform()) / kind.rate_per_s;
      clock_.advance(static_cast<int64_t>(gap_s * 1e9));
      finish_plan();
      drift_.arrive(now_s());
      drift_.add(next(kind));
      if (drift_.state().looks == 0 || i % 4 != 0) continue;  // asked now and then
      if (!policy_.wants(drift_.state(), drift_.recent(), now_s())) continue;
      EXPECT_FALSE(planning_) << "two plans at once";
      planning_ = drift_.recent();
      planned_at_s_.push_back(now_s());
      planned_mean_.push_back(mean_prompt(*planning_));
    }
  }

  const std::vector<double>& planned_at_s() const { return planned_at_s_; }
  const std::vector<double>& planned_mean() const { return planned_mean_; }
  const DriftState& drift() const { return drift_.state(); }
  double now_s() const { return static_cast<double>(clock_.now_ns()) * 1e-9; }

 private:
  EndedRequest next(const Kind& kind) {
    return {.prompt_tokens =
                1 + static_cast<int64_t>(rng_.below(static_cast<uint64_t>(2 * kind.prompt_mean))),
            .answer_tokens = 1 + static_cast<int64_t>(rng_.below(64))};
  }

  PlannedLoad plan_for(const Kind& kind) {
    RecentLoad load;
    for (int i = 0; i < 400; ++i) {
      load.ended.push_back(next(kind));
      load.arrivals_s.push_back(i / kind.rate_per_s);
    }
    return planned_for(load, with_rate_);
  }

  static double mean_prompt(const RecentLoad& load) {
    double sum = 0;
    for (const EndedRequest& one : load.ended) sum += static_cast<double>(one.prompt_tokens);
    return sum / static_cast<double>(load.ended.size());
  }

  void finish_plan() {
    if (!planning_ || now_s() < planned_at_s_.back() + plan_s) return;
    const ReplanOutcome came = outcome(*planning_);
    PlannedLoad load = planned_for(*planning_, with_rate_);
    if (came == ReplanOutcome::kSwitched || came == ReplanOutcome::kKept) drift_.replan(load);
    policy_.ended(came, std::move(load), now_s());
    planning_.reset();
  }

  Rng rng_{7};
  VirtualClock clock_;
  ReplanPolicy policy_;
  const bool with_rate_;
  DriftDetector drift_;
  std::optional<RecentLoad> planning_;
  std::vector<double> planned_at_s_, planned_mean_;
};

constexpr Kind kShort = {.prompt_mean = 100}, kLong = {.prompt_mean = 600};

TEST(Replan, PlansOnceForRequestsThatHaveChanged) {
  ReplannedServer server(kShort);
  server.run(kShort, 2000);
  EXPECT_TRUE(server.planned_at_s().empty());
  server.run(kLong, 4000);
  ASSERT_EQ(server.planned_mean().size(), 1);
  EXPECT_FALSE(server.drift().drifted);
  EXPECT_EQ(server.drift().plans, 2);
}

// Drift is told when a fifth of the window is new; a plan for those would be one for short prompts.
TEST(Replan, WaitsForTheWindowToBeOfTheNewKind) {
  ReplannedServer server(kShort);
  server.run(kShort, 2000);
  server.run(kLong, 128);
  EXPECT_TRUE(server.drift().drifted);
  EXPECT_TRUE(server.planned_at_s().empty());
  server.run(kLong, 400);
  ASSERT_EQ(server.planned_mean().size(), 1);
  EXPECT_GT(server.planned_mean()[0], 500);
}

TEST(Replan, GoesBackWithTheRequests) {
  ReplannedServer server(kShort, {.pause_s = 20});
  for (int times = 0; times < 3; ++times) {
    server.run(kShort, 1500);
    server.run(kLong, 1500);
  }
  ASSERT_EQ(server.planned_mean().size(), 5);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(server.planned_mean()[i], i % 2 == 0 ? 600 : 100, i % 2 == 0 ? 100 : 60) << i;
  }
}

// Requests that change their kind sooner than a plan may follow.
TEST(Replan, NeverPlansSoonerThanThePauseSays) {
  ReplannedServer server(kShort, {.pause_s = 200});
  for (int times = 0; times < 24; ++times) server.run(times % 2 == 0 ? kLong : kShort, 350);
  const auto& at_s = server.planned_at_s();
  ASSERT_GT(at_s.size(), 2);
  for (size_t i = 1; i < at_s.size(); ++i) EXPECT_GT(at_s[i] - at_s[i - 1], 200);
}

// Prompts become longer and longer: half a window later they are half as long again.
TEST(Replan, ALoadThatNeverRestsIsPlannedForAsItIs) {
  ReplannedServer server(kShort);
  server.run(kShort, 300);
  Kind growing = kShort;
  for (int times = 0; times < 90; ++times) {
    growing.prompt_mean *= 1.035;
    server.run(growing, 10);
    EXPECT_TRUE(times > 50 || server.planned_mean().empty()) << "it waits for two windows";
  }
  ASSERT_EQ(server.planned_mean().size(), 1);
  EXPECT_GT(server.planned_mean()[0], 400);
}

TEST(Replan, SettingsThatAreAsGoodAreNotLookedAtAgain) {
  ReplannedServer server(kShort, {.pause_s = 5});
  server.outcome = [](const RecentLoad&) { return ReplanOutcome::kKept; };
  server.run(kLong, 6000);
  EXPECT_EQ(server.planned_at_s().size(), 1);
  EXPECT_FALSE(server.drift().drifted);
}

TEST(Replan, WhatCameToNothingIsTriedAgainForOtherRequestsOnly) {
  for (const ReplanOutcome nothing : {ReplanOutcome::kInfeasible, ReplanOutcome::kFailed}) {
    ReplannedServer server(kShort, {.pause_s = 5});
    bool possible = false;
    server.outcome = [&](const RecentLoad&) {
      return possible ? ReplanOutcome::kSwitched : nothing;
    };
    server.run(kLong, 4000);
    EXPECT_EQ(server.planned_at_s().size(), 1);
    EXPECT_TRUE(server.drift().drifted) << "the plan in force is the first";
    possible = true;
    server.run({.prompt_mean = 300}, 2000);
    EXPECT_EQ(server.planned_at_s().size(), 2);
    EXPECT_FALSE(server.drift().drifted);
    EXPECT_NEAR(server.planned_mean().back(), 300, 60);
  }
}

TEST(Replan, ForOtherRatesWhereThePlanHasOne) {
  for (const bool with_rate : {false, true}) {
    ReplannedServer server(kShort, {.pause_s = 5, .with_rate = with_rate});
    server.run(kShort, 1000);
    server.run({.rate_per_s = 30}, 2000);
    EXPECT_EQ(server.planned_at_s().size(), with_rate ? 1 : 0);
    EXPECT_FALSE(server.drift().drifted);
    EXPECT_NEAR(server.drift().rate_ratio, 1, 0.35);
  }
}

// A state from before the engine took the last plan says nothing of that one.
TEST(Replan, AStateFromBeforeTheLastPlanDoesNotCount) {
  ReplanPolicy policy({.pause_s = 0, .looks_max = 0});
  RecentLoad recent;
  for (int i = 0; i < 256; ++i) {
    recent.ended.push_back({.prompt_tokens = 600, .answer_tokens = 5});
    recent.arrivals_s.push_back(i);
  }
  const DriftState drifted{.drifted = true, .looks = 3};
  EXPECT_TRUE(policy.wants(drifted, recent, 10));
  EXPECT_FALSE(policy.wants(drifted, recent, 11)) << "while a plan is made";
  policy.ended(ReplanOutcome::kSwitched, planned_for(recent, false), 12);
  EXPECT_FALSE(policy.wants(drifted, recent, 13));
  EXPECT_TRUE(policy.wants({.drifted = true, .plans = 2, .looks = 4}, recent, 14));
}

TEST(Replan, WithoutRequestsThereIsNothingToPlanFor) {
  ReplanPolicy policy;
  EXPECT_FALSE(policy.wants({.drifted = true}, {}, 1));
}

}  // namespace
}  // namespace jige::plan
