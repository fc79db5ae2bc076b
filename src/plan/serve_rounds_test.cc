// The policy of rounds in the serving scheduler: prompts and next tokens in phases of their own.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "plan/serve_scheduler_test_support.h"

namespace jige::plan {
namespace {

class ServeRounds : public ::testing::Test {
 protected:
  ServeRounds() {
    options_.batch_requests_max = 8;
    options_.round_prompts = 2;
    options_.round_steps = 3;
  }

  void arrive(RequestId id, int32_t prompt, int32_t new_tokens, int32_t priority = 0) {
    if (!scheduler_) scheduler_.emplace(options_);
    RequestSpec spec = request_of(id, prompt, new_tokens);
    spec.priority = priority;
    ASSERT_TRUE(scheduler_->arrive(std::move(spec)));
  }

  // Runs a batch: "p" and its prompts, or "n" and whose next tokens; lost ones in brackets.
  std::string run(bool lost = false) {
    const auto batch = scheduler_->next_batch();
    if (!batch) return "-";
    bool prompts = false, next = false;
    std::string text;
    for (const WorkItem& item : batch->items) {
      const bool prompt = item.tokens.size() > 1;
      (prompt ? prompts : next) = true;
      text += " " + std::to_string(item.request);
    }
    EXPECT_FALSE(prompts && next) << text;
    text = (prompts ? "p" : "n") + text;
    if (lost) {
      scheduler_->lose(batch->id);
      text = "(" + text + ")";
    } else {
      scheduler_->complete(batch->id, sample_all(*batch));
    }
    scheduler_->check_invariants();
    return text;
  }

  std::string runs(int count) {
    std::string text = run();
    while (--count > 0) text += ", " + run();
    return text;
  }

  ServeSchedulerOptions options_ = options_of(ServePolicy::kRounds, Admission::kReserve, 60);
  std::optional<ServeScheduler> scheduler_;
};

TEST_F(ServeRounds, PromptsBeginTogetherAndNextTokensFollow) {
  for (RequestId id = 0; id < 5; ++id) arrive(id, 30, 6);
  EXPECT_EQ(runs(4), "p 0 1, n 0 1, n 0 1, n 0 1");
  EXPECT_EQ(runs(4), "p 2 3, n 0 1 2 3, n 0 1 2 3, n 2 3") << "those who finish leave at once";
  EXPECT_EQ(runs(7), "p 4, n 2 3 4, n 2 3 4, n 4, n 4, n 4, -");
  EXPECT_TRUE(scheduler_->idle());
}

TEST_F(ServeRounds, APhaseWithNothingToDoEnds) {
  arrive(0, 4, 20);
  EXPECT_EQ(runs(6), "p 0, n 0, n 0, n 0, n 0, n 0") << "while nobody waits";
  arrive(1, 4, 20);
  EXPECT_EQ(runs(2), "p 1, n 0 1") << "the steps since the last prompts have passed";
  arrive(2, 4, 2);
  EXPECT_EQ(runs(4), "n 0 1, n 0 1, p 2, n 0 1 2") << "the steps behind 1";
  scheduler_->cancel(0);
  scheduler_->cancel(1);
  arrive(3, 4, 2);
  EXPECT_EQ(runs(3), "p 3, n 3, -") << "nobody is inside, so that a round begins";
}

TEST_F(ServeRounds, NobodyBeginsWithoutAPlaceForNextTokens) {
  options_.batch_requests_max = 3;
  for (RequestId id = 0; id < 4; ++id) arrive(id, 4, id == 0 ? 3 : 9);
  EXPECT_EQ(runs(4), "p 0 1, n 0 1, n 0 1, n 1");
  EXPECT_EQ(runs(4), "p 2 3, n 1 2 3, n 1 2 3, n 1 2 3");
  arrive(4, 4, 2);
  EXPECT_EQ(runs(4), "n 1 2 3, n 1 2 3, p 4, n 2 3 4") << "as soon as there is one";
}

TEST_F(ServeRounds, WhoDoesNotFitLeavesTheDoorToNobody) {
  options_.pool.block_count = 10;
  arrive(0, 20, 12);  // 8 blocks
  EXPECT_EQ(run(), "p 0");
  arrive(1, 12, 4);  // 4 blocks
  arrive(2, 4, 4);   // 2 blocks, which are there
  EXPECT_EQ(runs(11), "n 0, n 0, n 0, n 0, n 0, n 0, n 0, n 0, n 0, n 0, n 0");
  EXPECT_EQ(run(), "p 1 2");
}

TEST_F(ServeRounds, LostPromptsRunAgainBeforeNextTokens) {
  arrive(0, 4, 9);
  EXPECT_EQ(runs(4), "p 0, n 0, n 0, n 0");
  arrive(1, 4, 9);
  arrive(2, 4, 9);
  arrive(3, 4, 9);
  EXPECT_EQ(run(/*lost=*/true), "(p 1 2)");
  EXPECT_EQ(runs(4), "p 1 2, n 0 1 2, n 0 1 2, n 0 1 2") << "and 3 does not begin with them";
  EXPECT_EQ(run(), "p 3");
}

TEST_F(ServeRounds, PromptsThatBordersCutGoOnBeforeNextTokens) {
  options_.state_count = 4;
  options_.kept_state_count = 2;
  options_.kept_margin = 2;
  arrive(0, 11, 9);
  arrive(1, 3, 9);
  EXPECT_EQ(runs(3), "p 0 1, p 0, n 0 1") << "the state behind eight tokens is kept";
}

TEST_F(ServeRounds, MoreUrgentOnesBeginFirstAndTakeTheirPlaces) {
  options_.batch_requests_max = 2;
  arrive(0, 4, 9);
  arrive(1, 4, 9);
  EXPECT_EQ(runs(4), "p 0 1, n 0 1, n 0 1, n 0 1");
  arrive(2, 4, 9);
  arrive(3, 4, 3, /*priority=*/1);
  EXPECT_EQ(runs(4), "p 3, n 3 0, n 3 0, n 0 1");
}

// However many come behind it, a request is held up by one batch of prompts in round_steps + 1.
TEST_F(ServeRounds, NewcomersHoldNobodyUpForLong) {
  options_.round_prompts = 1;
  arrive(0, 4, 19);
  RequestId next = 1;
  for (int steps = 0; steps < 19 + 18 / 3; ++steps) {
    ASSERT_FALSE(scheduler_->idle());
    arrive(next++, 2, 1);
    const std::string batch = run();
    EXPECT_EQ(batch.starts_with("p"), steps % 4 == 0) << batch;
  }
  EXPECT_EQ(run(), "p 7") << "0 is over";
}

// It is admitted with the prompts, and has a next token only.
TEST_F(ServeRounds, WhatGaveItsBlocksBackMayFindAllButItsLastToken) {
  options_ = options_of(ServePolicy::kRounds, Admission::kOptimistic, 3);
  scheduler_.emplace(options_);
  const std::vector<int32_t> shared = {1, 2, 3, 4};
  RequestSpec urgent{.id = 0, .prompt = shared, .max_new_tokens = 3, .priority = 1};
  urgent.prompt.insert(urgent.prompt.end(), {5, 6, 7});
  ASSERT_TRUE(scheduler_->arrive(urgent));
  ASSERT_TRUE(scheduler_->arrive({.id = 1, .prompt = shared, .max_new_tokens = 3}));
  EXPECT_EQ(runs(3), "p 0 1, n 0, n 0") << "and takes the block of 1";
  EXPECT_EQ(runs(3), "n 1, n 1, -");
  EXPECT_TRUE(scheduler_->idle());
}

TEST_F(ServeRounds, WhatGaveItsBlocksBackBeginsAsOthersDo) {
  options_ = options_of(ServePolicy::kRounds, Admission::kOptimistic, 6);
  options_.round_prompts = 2;
  options_.round_steps = 2;
  options_.preemptions_max = 1;
  arrive(0, 8, 12);
  arrive(1, 8, 12);
  std::string text;
  while (!scheduler_->idle()) {
    text += run() + "; ";
    ASSERT_LT(text.size(), 1000u) << text;
  }
  EXPECT_NE(text.find("n 0; n 0"), std::string::npos) << text;
  EXPECT_NE(text.find("p 1;"), std::string::npos) << text;
}

}  // namespace
}  // namespace jige::plan
