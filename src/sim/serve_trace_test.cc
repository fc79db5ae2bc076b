#include "sim/serve_trace.h"

#include <gtest/gtest.h>

namespace jige::sim {
namespace {

TEST(ServeTraces, EightThousandKeepEveryInvariant) {
  TraceCounts all;
  for (uint64_t seed = 0; seed < 8'000; ++seed) {
    const auto counts = run_checked_trace(seed);
    ASSERT_TRUE(counts) << counts.error().message;
    all += *counts;
  }
  // The traces are worth something only if all of this happens in them.
  EXPECT_GT(all.cancelled, 2'000);
  EXPECT_GT(all.iterations_lost, 2'000);
  EXPECT_GT(all.preemptions, 400);
  EXPECT_GT(all.cached_tokens, 4'000);
  EXPECT_GT(all.restarts, 2'000);
  EXPECT_GT(all.kept_state_tokens, 200);
  EXPECT_GT(all.accepted_tokens, 4'000);
  EXPECT_GT(all.changes, 2'000);
  EXPECT_GT(all.drafted_tokens - all.accepted_tokens, 2'000);
}

// The checks themselves: each must see what it is for.
class TraceCheckerSees : public ::testing::Test {
 protected:
  TraceCheckerSees() {
    setup_.options.scheduler.policy = plan::ServePolicy::kChunked;
    setup_.options.scheduler.batch_requests_max = 2;
    setup_.options.scheduler.batch_tokens_max = 4;
    setup_.options.scheduler.preemptions_max = 1;
    setup_.options.scheduler.pool = {.block_count = 4, .block_tokens = 4};
    setup_.requests = {{0, 3, 2}, {0, 3, 2}, {0, 3, 2}};
  }

  void arrive(TraceChecker& checker) {
    for (plan::RequestId id = 0; id < 3; ++id) {
      plan::RequestSpec spec;
      spec.id = id;
      spec.prompt = {static_cast<int32_t>(id), 5, 6};
      spec.max_new_tokens = 2;
      checker.on_arrival(spec);
    }
  }

  static plan::WorkItem item(plan::RequestId id, plan::BlockId block) {
    return {.request = id, .tokens = {static_cast<int32_t>(id), 5, 6}, .blocks = {block}};
  }

  TraceSetup setup_;
};

TEST_F(TraceCheckerSees, NothingWrongInAGoodBatch) {
  TraceChecker checker(setup_, 1);
  arrive(checker);
  const plan::Batch batch{.items = {item(0, 2)}};
  checker.on_batch(batch);
  checker.on_complete(batch);
  EXPECT_FALSE(checker.violation());
}

TEST_F(TraceCheckerSees, ARequestInTwoBatches) {
  TraceChecker checker(setup_, 1);
  arrive(checker);
  checker.on_batch({.items = {item(0, 2)}});
  checker.on_batch({.items = {item(0, 2)}});
  EXPECT_EQ(checker.violation(), "request 0 is in two batches");
}

TEST_F(TraceCheckerSees, ABlockThatTwoRequestsWrite) {
  TraceChecker checker(setup_, 1);
  arrive(checker);
  const plan::Batch first{.items = {item(0, 2)}};
  checker.on_batch(first);
  checker.on_batch({.items = {item(1, 2)}});
  checker.on_complete(first);
  EXPECT_EQ(checker.violation(), "request 0 reads other tokens than its own");
}

TEST_F(TraceCheckerSees, ABlockThatAnotherAdapterHasWritten) {
  TraceChecker checker(setup_, 1);
  for (plan::RequestId id = 0; id < 2; ++id) {
    checker.on_arrival({.id = id, .prompt = {7, 5, 6, 4, 3}, .adapter = static_cast<int32_t>(id)});
  }
  const plan::Batch first{
      .items = {{.request = 0, .adapter = 0, .tokens = {7, 5, 6, 4}, .blocks = {2}}}};
  checker.on_batch(first);
  checker.on_complete(first);
  EXPECT_FALSE(checker.violation());
  const plan::Batch second{
      .items = {{.request = 1, .adapter = 1, .context_count = 4, .tokens = {3}, .blocks = {2, 3}}}};
  checker.on_batch(second);
  checker.on_complete(second);
  EXPECT_EQ(checker.violation(), "request 1 reads what another adapter has written");
}

TEST_F(TraceCheckerSees, AStateOfAnotherRequest) {
  setup_.options.scheduler.state_count = 2;
  TraceChecker checker(setup_, 1);
  arrive(checker);
  plan::WorkItem first = item(0, 2);
  plan::WorkItem second = item(1, 1);
  first.state = second.state = 1;
  checker.on_batch({.items = {first}});
  EXPECT_FALSE(checker.violation());
  second.context_count = 1;
  second.tokens = {5, 6};
  checker.on_batch({.items = {second}});
  EXPECT_EQ(checker.violation(), "request 1 goes on from another state than its own");
}

TEST_F(TraceCheckerSees, AKeptStateOfALostBatch) {
  setup_.options.scheduler.state_count = 1;
  setup_.options.scheduler.kept_state_count = 1;
  for (const bool lost : {false, true}) {
    TraceChecker checker(setup_, 1);
    arrive(checker);
    plan::WorkItem first = item(0, 2);
    first.state = 0;
    first.tokens = {0};
    const plan::Batch begins{.items = {first}};
    checker.on_batch(begins);
    checker.on_complete(begins);
    first.context_count = 1;
    first.tokens = {5, 6};
    const plan::Batch keeps{.items = {first}, .state_copies = {{.src = 0, .dst = 1}}};
    checker.on_batch(keeps);
    lost ? checker.on_lost(keeps) : checker.on_complete(keeps);
    checker.on_batch({.items = {first}, .state_copies = {{.src = 1, .dst = 0}}});
    EXPECT_EQ(checker.violation().value_or(""),
              lost ? "request 0 goes on from another state than its own" : "");
  }
}

TEST_F(TraceCheckerSees, BatchesBeyondTheLimits) {
  for (const size_t count : {0u, 2u, 3u}) {
    TraceChecker checker(setup_, 1);
    arrive(checker);
    plan::Batch batch;
    for (size_t i = 0; i < count; ++i) {
      batch.items.push_back(item(static_cast<plan::RequestId>(i), static_cast<int32_t>(i)));
    }
    checker.on_batch(batch);
    EXPECT_EQ(checker.violation(), count == 0   ? "an empty batch"
                                   : count == 2 ? "too many tokens in a batch"
                                                : "too many requests in a batch");
  }
}

TEST_F(TraceCheckerSees, PromptsBesideNextTokensAndTooManyPromptsInARound) {
  setup_.options.scheduler.policy = plan::ServePolicy::kRounds;
  setup_.options.scheduler.round_prompts = 1;
  {
    TraceChecker checker(setup_, 1);
    arrive(checker);
    checker.on_batch({.items = {item(0, 2), item(1, 1)}});
    EXPECT_EQ(checker.violation(), "too many prompts begin a round");
  }
  TraceChecker checker(setup_, 1);
  arrive(checker);
  const plan::Batch first{.items = {item(0, 2)}};
  checker.on_batch(first);
  checker.on_complete(first);
  const plan::WorkItem next{.request = 0, .context_count = 3, .tokens = {1}, .blocks = {2}};
  checker.on_batch({.items = {next, item(1, 1)}});
  EXPECT_EQ(checker.violation(), "prompts beside next tokens");
}

TEST_F(TraceCheckerSees, APreemptionTooMany) {
  TraceChecker checker(setup_, 1);
  arrive(checker);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(checker.violation());
    const plan::Batch batch{.items = {item(0, 2)}, .preempted = {1}};
    checker.on_batch(batch);
    checker.on_lost(batch);
  }
  EXPECT_EQ(checker.violation(), "preempted too often");
}

TEST_F(TraceCheckerSees, ARequestThatStarves) {
  TraceChecker checker(setup_, 1);
  arrive(checker);
  // 15 tokens in all: the last must be over after 15 iterations.
  const plan::Batch batch{.items = {item(0, 2)}};
  for (int i = 0; i < 16; ++i) {
    checker.on_batch(batch);
    checker.on_complete(batch);
  }
  checker.on_over(2);
  EXPECT_EQ(checker.violation(), "request 2 is over 1 iterations too late");
}

TEST_F(TraceCheckerSees, LeaksAndAnswersThatAreNotWhole) {
  ServeSimulationResult result;
  result.outcomes.resize(3);
  for (RequestOutcome& outcome : result.outcomes) outcome.output_tokens = 2;
  const auto violation_of = [&](const ServeSimulationResult& end) {
    TraceChecker checker(setup_, 1);
    arrive(checker);
    for (plan::RequestId id = 0; id < 3; ++id) checker.on_over(id);
    checker.check_end(end);
    return checker.violation();
  };
  EXPECT_FALSE(violation_of(result));
  result.outcomes[1].output_tokens = 1;
  EXPECT_EQ(violation_of(result), "request 1 got 1 tokens of 2");
  result.outcomes[1].failure = "cancelled";
  EXPECT_FALSE(violation_of(result));
  result.iterations = 16;
  EXPECT_EQ(violation_of(result), "16 iterations for 15 tokens");
  result.kv_blocks_live_end = 3;
  EXPECT_EQ(violation_of(result), "3 blocks are live at the end");
}

}  // namespace
}  // namespace jige::sim
