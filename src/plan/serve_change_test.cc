// Settings of the serving scheduler that change while requests are inside.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/serve_scheduler_test_support.h"
#include "plan/serve_settings.h"

namespace jige::plan {
namespace {

class ServeChange : public ::testing::Test {
 protected:
  void arrive(RequestId first, RequestId last, int32_t prompt = 2, int32_t new_tokens = 20) {
    for (RequestId id = first; id <= last; ++id) {
      ASSERT_TRUE(scheduler_.arrive(request_of(id, prompt, new_tokens)));
    }
  }

  // Runs a batch: each request with its tokens, if they are several.
  std::string run() {
    const auto batch = scheduler_.next_batch();
    if (!batch) return "-";
    std::string text;
    for (const WorkItem& item : batch->items) {
      text += (text.empty() ? "" : " ") + std::to_string(item.request);
      if (item.tokens.size() > 1) text += "*" + std::to_string(item.tokens.size());
    }
    scheduler_.complete(batch->id, sample_all(*batch));
    scheduler_.check_invariants();
    return text;
  }

  ServeSettings in_force() const { return settings_of(scheduler_.options()); }

  ServeScheduler scheduler_{options_of(ServePolicy::kChunked, Admission::kReserve, 200)};
};

const ServeSettings kTwoAtOnce = {.batch_requests_max = 2, .batch_tokens_max = 16};

TEST_F(ServeChange, IsInForceInTheNextBatch) {
  scheduler_.change(kTwoAtOnce);
  EXPECT_EQ(in_force(), kTwoAtOnce) << "nobody is inside";
  arrive(1, 3);
  EXPECT_EQ(run(), "1*2 2*2");
  const ServeSettings three = {
      .policy = ServePolicy::kOrca, .batch_requests_max = 3, .batch_tokens_max = 16};
  scheduler_.change(three);
  EXPECT_EQ(run(), "1 2 3*2");
  EXPECT_EQ(in_force(), three);
}

TEST_F(ServeChange, ComesBehindTheBatchInFlight) {
  arrive(1, 3);
  const auto batch = scheduler_.next_batch();
  ASSERT_TRUE(batch);
  scheduler_.change(kTwoAtOnce);
  EXPECT_NE(in_force(), kTwoAtOnce);
  scheduler_.complete(batch->id, sample_all(*batch));
  EXPECT_EQ(run(), "1 2 3");
  EXPECT_EQ(in_force(), kTwoAtOnce);
}

// Five are inside when two at once come: they go on, and nobody begins until one is left.
TEST_F(ServeChange, WhoIsInsideKeepsItsPlaceAndNobodyEnters) {
  arrive(1, 4, 2, 3);
  arrive(5, 5, 2, 9);
  EXPECT_EQ(run(), "1*2 2*2 3*2 4*2 5*2");
  arrive(6, 8, 2, 3);
  scheduler_.change(kTwoAtOnce);
  EXPECT_EQ(run(), "1 2 3 4 5");
  EXPECT_EQ(scheduler_.places(), 5);
  EXPECT_EQ(run(), "1 2 3 4 5") << "four are over";
  EXPECT_EQ(run(), "5 6*2");
  EXPECT_EQ(scheduler_.places(), 2);
  EXPECT_EQ(run(), "5 6");
}

// Fewer tokens than are inside would let the last ones wait until others are over.
TEST_F(ServeChange, NextTokensOfThoseInsideHaveRoom) {
  arrive(1, 5);
  EXPECT_EQ(run(), "1*2 2*2 3*2 4*2 5*2");
  scheduler_.change({.batch_requests_max = 4, .batch_tokens_max = 3});
  EXPECT_EQ(run(), "1 2 3 4 5");
  scheduler_.cancel(1);
  EXPECT_EQ(run(), "2 3 4") << "as the settings have it, now that these are so few";
}

TEST_F(ServeChange, WaitsForTheEndOfARound) {
  ServeSettings rounds{.policy = ServePolicy::kRounds,
                       .batch_requests_max = 6,
                       .round_prompts = 2,
                       .round_steps = 3};
  scheduler_.change(rounds);
  arrive(1, 4);
  EXPECT_EQ(run(), "1*2 2*2");
  scheduler_.change({.policy = ServePolicy::kOrca, .batch_requests_max = 6});
  for (int step = 0; step < 3; ++step) EXPECT_EQ(run(), "1 2");
  EXPECT_EQ(in_force(), rounds);
  EXPECT_EQ(run(), "1 2 3*2 4*2");
  EXPECT_EQ(in_force().policy, ServePolicy::kOrca);
  // And back: the first round begins with prompts.
  arrive(5, 6);
  rounds.batch_requests_max = 8;
  scheduler_.change(rounds);
  EXPECT_EQ(run(), "5*2 6*2");
  EXPECT_EQ(run(), "1 2 3 4 5 6");
}

TEST_F(ServeChange, WaitsForTheEndOfAStaticBatch) {
  scheduler_.change({.policy = ServePolicy::kStatic, .batch_requests_max = 2});
  arrive(1, 1, 2, 2);
  arrive(2, 2, 2, 4);
  arrive(3, 5, 2, 2);
  EXPECT_EQ(run(), "1*2 2*2");
  scheduler_.change({.batch_requests_max = 4});
  EXPECT_EQ(run(), "1 2");
  EXPECT_EQ(run(), "2");
  EXPECT_EQ(in_force().policy, ServePolicy::kStatic);
  EXPECT_EQ(run(), "2");
  EXPECT_EQ(run(), "3*2 4*2 5*2");
  EXPECT_EQ(in_force().policy, ServePolicy::kChunked);
}

TEST_F(ServeChange, DoesNotWaitForSomebodyToCome) {
  for (const bool cancels : {false, true}) {
    scheduler_.change({.policy = ServePolicy::kStatic, .batch_requests_max = 1});
    arrive(1, 1, 2, 2);
    EXPECT_EQ(run(), "1*2");
    scheduler_.change(kTwoAtOnce);
    EXPECT_EQ(in_force().policy, ServePolicy::kStatic);
    if (cancels) {
      scheduler_.cancel(1);
    } else {
      EXPECT_EQ(run(), "1");
    }
    EXPECT_EQ(in_force(), kTwoAtOnce);
  }
}

// Those who are inside are the batch.
TEST_F(ServeChange, AStaticBatchBeginsWithThoseInside) {
  arrive(1, 1, 2, 2);
  arrive(2, 2, 2, 4);
  EXPECT_EQ(run(), "1*2 2*2");
  arrive(3, 3);
  scheduler_.change({.policy = ServePolicy::kStatic, .batch_requests_max = 4});
  EXPECT_EQ(run(), "1 2");
  EXPECT_EQ(run(), "2");
  EXPECT_EQ(run(), "2");
  EXPECT_EQ(run(), "3*2");
}

TEST_F(ServeChange, OfSeveralTheLastCounts) {
  scheduler_.change({.policy = ServePolicy::kStatic, .batch_requests_max = 1});
  arrive(1, 2, 2, 3);
  EXPECT_EQ(run(), "1*2");
  scheduler_.change({.policy = ServePolicy::kOrca, .batch_requests_max = 6});
  scheduler_.change(kTwoAtOnce);
  EXPECT_EQ(run(), "1");
  EXPECT_EQ(run(), "1");
  EXPECT_EQ(run(), "2*2");
  EXPECT_EQ(in_force(), kTwoAtOnce);
}

}  // namespace
}  // namespace jige::plan
