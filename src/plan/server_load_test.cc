#include "plan/server_load.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace jige::plan {
namespace {

TEST(ServerLoad, TakesForOthersWhatIsNotItsOwn) {
  ServerLoad load({});
  EXPECT_FALSE(load.known(0));
  EXPECT_EQ(load.others(0).running, 0);
  load.asked(3);
  load.told(1, {.running = 6, .waiting = 6});
  EXPECT_TRUE(load.known(1));
  EXPECT_DOUBLE_EQ(load.others(1).running, 4.5) << "nine of twelve, as all run and wait";
  EXPECT_DOUBLE_EQ(load.others(1).waiting, 4.5);
  ServerLoad none({});
  none.asked(7);
  none.told(1, {.running = 4, .waiting = 0});
  EXPECT_EQ(none.others(1).running, 0) << "never fewer than nobody";
}

// A server may count what was over here a moment ago, or not yet what has just been sent.
TEST(ServerLoad, CountsAsItsOwnWhatItHadWhileTheAnswerWasOnItsWay) {
  ServerLoad load({});
  load.asked(2);
  load.own_is(5);
  load.own_is(1);
  load.told(1, {.running = 5, .waiting = 0});
  EXPECT_EQ(load.others(1).running, 0);
  load.asked(1);
  load.told(2, {.running = 5, .waiting = 0});
  EXPECT_EQ(load.others(2).running, 2)
      << "four, by half: the largest number is that of one question";
}

TEST(ServerLoad, ComesToWhatIsToldAgainAndAgain) {
  ServerLoad load({});
  double before = 0;
  for (int i = 0; i < 12; ++i) {
    load.asked(0);
    load.told(i, {.running = 8, .waiting = i == 0 ? 16.0 : 0.0});
    if (i > 0) {
      EXPECT_LT(load.others(i).waiting, before) << i;
    }
    before = load.others(i).waiting;
  }
  EXPECT_NEAR(load.others(11).running, 8, 1e-9);
  EXPECT_NEAR(load.others(11).waiting, 0, 0.01);
}

TEST(ServerLoad, ForgetsWithTime) {
  ServerLoad load({.fresh_s = 3, .gone_s = 7});
  load.asked(0);
  load.told(100, {.running = 8, .waiting = 4});
  EXPECT_EQ(load.others(103).running, 8);
  EXPECT_EQ(load.others(105).running, 4);
  EXPECT_EQ(load.others(105).waiting, 2);
  EXPECT_EQ(load.others(107).running, 0);
  EXPECT_EQ(load.others(1e9).running, 0);
  EXPECT_FALSE(load.known(107));
  // What is gone does not count any more beside what is new.
  load.asked(0);
  load.told(107, {.running = 2, .waiting = 0});
  EXPECT_EQ(load.others(107).running, 2);
  load.forget();
  EXPECT_EQ(load.others(107).running, 0);
}

TEST(ServerLoad, AsksSeldomWhereNothingIsTold) {
  ServerLoad load({.silent_s = 30});
  EXPECT_TRUE(load.due(0));
  load.not_told(10);
  EXPECT_FALSE(load.due(39));
  EXPECT_TRUE(load.due(40));
  load.not_told(40);
  load.forget();  // it was away: it may be another now
  EXPECT_TRUE(load.due(41));
}

TEST(ServerLoad, IsNeverNegative) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(derive_key(seed, "server load"));
    ServerLoad load({});
    double now_s = 0;
    for (int i = 0; i < 100; ++i) {
      now_s += rng.uniform() * 5;
      const uint64_t what = rng.below(4);
      if (what == 0) load.asked(static_cast<int64_t>(rng.below(10)));
      if (what == 1) load.own_is(static_cast<int64_t>(rng.below(20)));
      if (what == 2) {
        load.told(now_s, {.running = static_cast<double>(rng.below(20)),
                          .waiting = static_cast<double>(rng.below(20))});
      }
      const OtherRequests others = load.others(now_s + rng.uniform() * 20);
      ASSERT_GE(others.running, 0) << seed;
      ASSERT_GE(others.waiting, 0) << seed;
      ASSERT_LE(others.running + others.waiting, 38) << seed;
    }
  }
}

}  // namespace
}  // namespace jige::plan
