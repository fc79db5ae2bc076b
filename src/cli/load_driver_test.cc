#include "cli/load_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace jige::cli {
namespace {

// Answers after a fixed time, on a clock that only wait() moves.
class VirtualTarget final : public LoadTarget {
 public:
  explicit VirtualTarget(double service_s, double send_s = 0)
      : service_s_(service_s), send_s_(send_s) {}

  double now_s() const override { return now_s_; }
  void send(size_t index, const sim::RequestShape& shape) override {
    now_s_ += send_s_;
    sent_s.push_back(now_s_);
    sim::RequestOutcome outcome{.end_s = now_s_ + service_s_, .output_tokens = shape.output_tokens};
    under_way_.emplace(outcome.end_s, Finished{index, outcome});
    under_way_max = std::max(under_way_max, under_way_.size());
  }
  void wait(double seconds_max, std::vector<Finished>& finished) override {
    EXPECT_GE(seconds_max, 0);
    const double until_s = now_s_ + seconds_max;
    const double next_s = under_way_.empty() ? until_s : under_way_.begin()->first;
    now_s_ = std::max(now_s_, std::min(until_s, next_s));
    while (!under_way_.empty() && under_way_.begin()->first <= now_s_) {
      finished.push_back(std::move(under_way_.begin()->second));
      under_way_.erase(under_way_.begin());
    }
  }
  void cancel_all() override {
    cancelled = under_way_.size();
    for (auto& [end_s, one] : std::exchange(under_way_, {})) {
      one.outcome.failure = "cancelled";
      under_way_.emplace(now_s_, std::move(one));
    }
  }

  std::vector<double> sent_s;
  size_t under_way_max = 0;
  size_t cancelled = 0;

 private:
  const double service_s_, send_s_;
  double now_s_ = 0;
  std::multimap<double, Finished> under_way_;
};

const std::atomic<bool> kGoOn = false;

TEST(LoadDriver, OpenLoopSendsAtArrivalWhateverTheServerDoes) {
  VirtualTarget target(5);
  const std::vector<sim::RequestShape> requests = {{0, 1, 3}, {0.25, 1, 3}, {2.5, 1, 3}};
  const LoadRun run = drive_load(requests, 0, target, kGoOn);
  ASSERT_EQ(target.sent_s.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(target.sent_s[i], requests[i].arrival_s, 1e-9);
    EXPECT_NEAR(run.outcomes[i].start_s, requests[i].arrival_s, 1e-9);
    EXPECT_NEAR(run.outcomes[i].end_s, requests[i].arrival_s + 5, 1e-9);
  }
  EXPECT_FALSE(run.stopped);
  EXPECT_EQ(run.short_count, 0);
}

// What a slow sender costs is part of the latency, and told.
TEST(LoadDriver, CountsFromThePlannedArrival) {
  VirtualTarget target(1, 0.5);
  const LoadRun run = drive_load(std::vector<sim::RequestShape>(4, {0, 1, 1}), 0, target, kGoOn);
  EXPECT_EQ(run.outcomes[3].start_s, 0);
  EXPECT_NEAR(run.outcomes[3].end_s, 3, 1e-9);
  EXPECT_NEAR(run.late_s_max, 1.5, 1e-9);
}

TEST(LoadDriver, ClosedLoopKeepsEveryUserBusy) {
  VirtualTarget target(0.7);
  const LoadRun run = drive_load(std::vector<sim::RequestShape>(20, {99, 1, 1}), 4, target, kGoOn);
  EXPECT_EQ(target.under_way_max, 4u);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(run.outcomes[i].start_s, 0.7 * std::floor(static_cast<double>(i) / 4), 1e-9);
  }
}

TEST(LoadDriver, StopsWhenAskedAndKeepsWhatWasSent) {
  VirtualTarget target(1, 0.1);
  std::atomic<bool> stop = false;
  int64_t heard = 0;
  const std::vector<sim::RequestShape> requests(50, {0, 1, 1});
  const LoadRun run = drive_load(requests, 5, target, stop, [&](int64_t over) {
    heard = over;
    if (over >= 10) stop = true;
  });
  EXPECT_TRUE(run.stopped);
  EXPECT_EQ(run.outcomes.size(), target.sent_s.size());
  EXPECT_EQ(heard, std::ssize(run.outcomes));
  EXPECT_LT(run.outcomes.size(), 20u);
  EXPECT_EQ(run.outcomes[0].failure, "");
  EXPECT_GT(target.cancelled, 0u);
  EXPECT_EQ(sim::make_report(run.outcomes).failures.at("cancelled"),
            static_cast<int64_t>(target.cancelled));
}

TEST(LoadDriver, CountsAnswersThatAreTooShort) {
  class ShortTarget final : public LoadTarget {
   public:
    double now_s() const override { return 0; }
    void send(size_t index, const sim::RequestShape& shape) override {
      ended_.push_back({index, {.output_tokens = shape.output_tokens - (index == 1)}});
    }
    void wait(double, std::vector<Finished>& finished) override { finished.swap(ended_); }
    void cancel_all() override {}

   private:
    std::vector<Finished> ended_;
  } target;
  EXPECT_EQ(drive_load(std::vector<sim::RequestShape>(3, {0, 1, 5}), 0, target, kGoOn).short_count,
            1);
}

}  // namespace
}  // namespace jige::cli
