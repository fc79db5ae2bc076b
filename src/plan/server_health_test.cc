#include "plan/server_health.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace jige::plan {
namespace {

void probe(ServerHealth& health, double now_s, bool well) {
  ASSERT_TRUE(health.probe_due(now_s));
  health.probe_sent();
  EXPECT_FALSE(health.probe_due(now_s)) << "one at a time";
  health.probe_answered(now_s, well);
}

TEST(ServerHealth, IsDownUntilAProbeIsAnswered) {
  ServerHealth health({.probe_s = 1});
  EXPECT_EQ(health.state(0), ServerState::kDown);
  probe(health, 0, true);
  EXPECT_EQ(health.state(0), ServerState::kUp);
  EXPECT_FALSE(health.probe_due(0.9));
  EXPECT_EQ(health.next_event_s(0.5), 1);
}

TEST(ServerHealth, GoesDownBehindProbesThatFailInARow) {
  ServerHealth health({.probe_s = 1, .backoff_s = 0.25, .probe_failures_max = 2});
  probe(health, 0, true);
  probe(health, 1, false);
  EXPECT_EQ(health.state(1), ServerState::kUp) << "one may be lost";
  probe(health, 1.25, true);
  probe(health, 2.25, false);
  probe(health, 2.5, false);
  EXPECT_EQ(health.state(2.5), ServerState::kDown);
  probe(health, 2.75, true);
  EXPECT_EQ(health.state(2.75), ServerState::kUp);
}

TEST(ServerHealth, GoesDownAtOnceWhereARequestFails) {
  ServerHealth health({});
  probe(health, 0, true);
  health.request_failed(0.1);
  EXPECT_EQ(health.state(0.1), ServerState::kDown);
  EXPECT_FALSE(health.probe_due(0.2));
  EXPECT_FALSE(health.unanswering()) << "it may be that request's fault";
  probe(health, 0.35, false);
  EXPECT_TRUE(health.unanswering());
  probe(health, 0.9, true);
  EXPECT_FALSE(health.unanswering());
}

TEST(ServerHealth, RestsWhereItAnswersNoRequest) {
  ServerHealth health({.probe_s = 1, .silent_max = 3, .silent_rest_s = 60});
  probe(health, 0, true);
  for (int i = 0; i < 2; ++i) health.request_silent(5);
  health.request_answered();
  for (int i = 0; i < 2; ++i) health.request_silent(10);
  EXPECT_EQ(health.state(10), ServerState::kUp) << "not three in a row";
  EXPECT_FALSE(health.silent(10));
  health.request_silent(10);
  EXPECT_TRUE(health.silent(10));
  EXPECT_EQ(health.state(10), ServerState::kDown);
  EXPECT_FALSE(health.unanswering()) << "what it has goes on";
  probe(health, 11, true);
  EXPECT_EQ(health.state(11), ServerState::kDown) << "that is no news";
  health.request_silent(30);  // that was asked before
  health.request_silent(30);
  EXPECT_EQ(health.state(69.9), ServerState::kDown);
  EXPECT_EQ(health.state(70.1), ServerState::kUp);
  // The next one is enough, and takes it out for longer, within a bound.
  double at_s = 100;
  for (const double rest_s : {120, 240, 480, 600, 600}) {
    health.request_silent(at_s);
    EXPECT_EQ(health.state(at_s + rest_s - 1), ServerState::kDown) << rest_s;
    EXPECT_EQ(health.state(at_s + rest_s + 1), ServerState::kUp) << rest_s;
    at_s += 1000;
  }
  health.request_silent(at_s);
  health.request_answered();
  EXPECT_EQ(health.state(at_s), ServerState::kUp);
}

// Behind a rest there is one request at a time, until one is answered.
TEST(ServerHealth, IsTriedByOneRequestBehindARest) {
  ServerHealth health({.probe_s = 1, .silent_max = 1, .silent_rest_s = 60});
  probe(health, 0, true);
  EXPECT_FALSE(health.request_begun(1)) << "it is well";
  health.request_silent(10);
  EXPECT_FALSE(health.request_begun(20)) << "asked before it was known";
  EXPECT_EQ(health.state(71), ServerState::kUp);
  EXPECT_TRUE(health.request_begun(71));
  EXPECT_EQ(health.state(71), ServerState::kResting);
  EXPECT_EQ(health.rest_left_s(71), 0);
  EXPECT_GT(health.next_event_s(71), 0);
  EXPECT_FALSE(health.request_begun(72));
  health.trial_over();  // its client went soon: the next one tries
  EXPECT_EQ(health.state(73), ServerState::kUp);
  EXPECT_TRUE(health.request_begun(73));
  health.request_silent(80);
  EXPECT_EQ(health.state(80), ServerState::kDown);
  health.trial_over();
  EXPECT_EQ(health.state(199), ServerState::kDown) << "two minutes";
  EXPECT_TRUE(health.request_begun(201));
  health.request_answered();
  EXPECT_EQ(health.state(201), ServerState::kUp);
  EXPECT_FALSE(health.request_begun(202));
  health.trial_over();
  EXPECT_EQ(health.state(202), ServerState::kUp);
}

TEST(ServerHealth, RestsWhereClientsGoUnanswered) {
  ServerHealth health({.probe_s = 1, .silent_rest_s = 60, .abandoned_max = 3, .abandoned_s = 30});
  probe(health, 0, true);
  for (int i = 0; i < 10; ++i) health.request_abandoned(50, 29.9);
  for (int i = 0; i < 2; ++i) health.request_abandoned(50, 30);
  health.request_answered();
  for (int i = 0; i < 2; ++i) health.request_abandoned(60, 30);
  EXPECT_EQ(health.state(60), ServerState::kUp) << "not three in a row";
  health.request_abandoned(60, 31);
  EXPECT_TRUE(health.silent(60));
  for (int i = 0; i < 5; ++i) health.request_abandoned(61, 90);  // that were asked before
  EXPECT_EQ(health.state(120.5), ServerState::kUp);
  EXPECT_TRUE(health.request_begun(121));
  health.request_abandoned(140, 19);
  health.trial_over();
  EXPECT_EQ(health.state(140), ServerState::kUp) << "that one was in a hurry";
  EXPECT_TRUE(health.request_begun(141));
  health.request_abandoned(171, 30);
  EXPECT_EQ(health.state(290), ServerState::kDown) << "two minutes";
  EXPECT_EQ(health.state(291.1), ServerState::kUp);
}

// Its probes go on meanwhile; when it has been gone it may be another process.
TEST(ServerHealth, IsForgivenItsSilenceWhenItHasBeenGone) {
  ServerHealth health({.probe_s = 1, .backoff_s = 0.25, .silent_max = 1, .silent_rest_s = 60});
  probe(health, 0, true);
  health.request_silent(0.5);
  EXPECT_EQ(health.next_event_s(0.5), 1);
  probe(health, 1, false);
  EXPECT_FALSE(health.unanswering()) << "one may be lost";
  probe(health, 1.25, false);
  EXPECT_TRUE(health.unanswering());
  probe(health, 2, true);
  EXPECT_EQ(health.state(2), ServerState::kUp);
  health.request_silent(3);
  EXPECT_EQ(health.state(62.9), ServerState::kDown);
  EXPECT_EQ(health.state(63.1), ServerState::kUp) << "as long as the first time";
}

TEST(ServerHealth, IsAskedSoonerWhereItIsDoubted) {
  ServerHealth health({.probe_s = 1, .backoff_s = 0.25});
  probe(health, 0, true);
  health.doubted();
  EXPECT_FALSE(health.probe_due(0.2)) << "not at once: it would be asked without end";
  probe(health, 0.3, false);
  health.doubted();
  EXPECT_FALSE(health.probe_due(0.5)) << "one that failed has its time";
  probe(health, 0.55, false);
  EXPECT_EQ(health.state(0.55), ServerState::kDown);
  const double due_s = health.next_event_s(0.55);
  health.doubted();
  EXPECT_EQ(health.next_event_s(0.55), due_s) << "one that is down is asked less and less";
}

// It drained, ended, and has been started again.
TEST(ServerHealth, RestsNoMoreWhereItHasBeenDown) {
  ServerHealth health({.backoff_s = 0.25, .rest_max_s = 5});
  probe(health, 0, true);
  health.request_refused(0.1, 5);
  health.request_failed(0.2);
  EXPECT_EQ(health.state(0.2), ServerState::kDown);
  probe(health, 0.45, true);
  EXPECT_EQ(health.state(0.45), ServerState::kUp);
  EXPECT_EQ(health.rest_left_s(0.45), 0);
  health.request_refused(0.5, 5);
  probe(health, 1.45, true);
  EXPECT_EQ(health.state(1.45), ServerState::kResting) << "it was up all the time";
}

TEST(ServerHealth, AsksLessAndLessWhileItIsDown) {
  ServerHealth health({.backoff_s = 0.25, .backoff_max_s = 2});
  double now_s = 0;
  probe(health, now_s, true);
  health.request_failed(now_s);
  for (const double gap_s : {0.25, 0.5, 1.0, 2.0, 2.0, 2.0}) {
    EXPECT_EQ(health.next_event_s(now_s), now_s + gap_s);
    now_s += gap_s;
    probe(health, now_s, false);
  }
}

TEST(ServerHealth, ForgivesOnlyWhoWasUpForLong) {
  ServerHealth health({.backoff_s = 0.25, .backoff_max_s = 10, .steady_s = 30});
  probe(health, 0, true);
  health.request_failed(1);
  probe(health, 1.25, true);
  health.request_failed(2);  // it comes and goes
  EXPECT_EQ(health.next_event_s(2), 2.5);
  probe(health, 2.5, true);
  health.request_failed(40);
  EXPECT_EQ(health.next_event_s(40), 40.25);
}

TEST(ServerHealth, RestsForAsLongAsItSays) {
  ServerHealth health({.probe_s = 100, .rest_min_s = 0.5, .rest_max_s = 5});
  probe(health, 0, true);
  health.request_refused(1, 2);
  EXPECT_EQ(health.state(2.9), ServerState::kResting);
  EXPECT_EQ(health.next_event_s(2.9), 3);
  EXPECT_EQ(health.state(3), ServerState::kUp);
  EXPECT_EQ(health.next_event_s(3), 100) << "a rest that is over is no event";
  health.request_refused(4, -1);
  EXPECT_EQ(health.state(4.4), ServerState::kResting);
  EXPECT_EQ(health.state(4.5), ServerState::kUp);
  health.request_refused(5, 3600);
  EXPECT_EQ(health.state(10), ServerState::kUp);
}

// Whatever happens: it never asks twice at once nor too often, and comes back when it is asked.
TEST(ServerHealth, ProbesNoFasterThanItMay) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(derive_key(seed, "health"));
    ServerHealth health({.probe_s = 1, .backoff_s = 0.25});
    double now_s = 0, last_s = -1;
    for (int i = 0; i < 200; ++i) {
      now_s += rng.uniform() * 0.3;
      if (rng.below(10) == 0) health.request_failed(now_s);
      if (rng.below(10) == 0) health.request_refused(now_s, rng.uniform() * 4);
      if (!health.probe_due(now_s)) {
        ASSERT_GT(health.next_event_s(now_s), now_s);
        continue;
      }
      ASSERT_GE(now_s - last_s, 0.25) << "seed " << seed;
      health.probe_sent();
      ASSERT_TRUE(std::isinf(health.next_event_s(now_s)) || health.next_event_s(now_s) > now_s);
      const bool well = rng.below(3) > 0;
      health.probe_answered(now_s, well);
      last_s = now_s;
      ASSERT_TRUE(!well || health.state(now_s) != ServerState::kDown);
    }
  }
}

TEST(ServerHealth, TellsHowLongItWantsNoMore) {
  ServerHealth health({.rest_min_s = 0.5, .rest_max_s = 5});
  health.probe_sent();
  health.probe_answered(0, true);
  EXPECT_EQ(health.rest_left_s(0), 0);
  health.request_refused(10, 60);
  EXPECT_EQ(health.rest_left_s(12), 58) << "as it said, though it is asked again sooner";
  EXPECT_EQ(health.rest_left_s(15), 0);
  health.request_refused(20, -1);
  EXPECT_EQ(health.rest_left_s(20.25), 0.25);
}

}  // namespace
}  // namespace jige::plan
