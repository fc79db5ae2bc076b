// States of recurrent layers in the serving scheduler: slots, their copies, beginning again.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "plan/serve_scheduler_test_support.h"

namespace jige::plan {
namespace {

using StateTraceCase = std::tuple<ServePolicy, Admission, int32_t, bool>;

class ServeStateTraces : public ::testing::TestWithParam<StateTraceCase> {};

TEST_P(ServeStateTraces, EverySlotHoldsItsRequestsTokens) {
  const auto [policy, admission, in_flight, fair_share] = GetParam();
  int64_t copies = 0, overwritten = 0, ahead = 0, lost = 0, restarts = 0;
  int64_t went_back = 0, ran_again = 0, without_spare = 0, claims_broken = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ServeSchedulerOptions options =
        options_of(policy, admission, 24 + static_cast<int32_t>(seed % 8));
    options.state_count = 3 + static_cast<int32_t>(seed % 5);
    options.batch_requests_max = 2 + static_cast<int32_t>(seed % 4);
    options.batches_in_flight_max = in_flight;
    options.fair_share = fair_share;
    options.shortest_first = !fair_share && seed % 3 == 0;
    TraceRun run(options, seed, /*priorities=*/seed % 2 == 1, /*drafts=*/seed % 8 < 3);
    run.run(60);
    if (HasFailure()) return;
    copies += run.copies;
    overwritten += run.copies_overwritten;
    ahead += run.copies_ahead;
    lost += run.copies_lost;
    restarts += run.restarts;
    went_back += run.went_back;
    ran_again += run.ran_again;
    without_spare += run.without_spare;
    claims_broken += run.claims_broken;
  }
  // The traces are worth something only if all of this happens in them.
  EXPECT_GT(restarts, 33);
  EXPECT_GT(copies, 166);
  // A static batch lets nobody in before it is over, and next tokens come behind a round's prompts.
  const bool apart = policy == ServePolicy::kRounds && in_flight == 1;
  EXPECT_TRUE(apart || policy == ServePolicy::kStatic ? overwritten == 0 : overwritten > 3)
      << overwritten;
  EXPECT_GT(ahead, 6);
  EXPECT_GT(lost, 2);
  EXPECT_TRUE(in_flight == 1 ? went_back > 16 : went_back == 0) << went_back;
  EXPECT_TRUE(in_flight == 1 ? ran_again > 13 : ran_again == 0) << ran_again;
  EXPECT_TRUE(in_flight == 1 ? without_spare > 16 : without_spare == 0) << without_spare;
  EXPECT_TRUE(in_flight == 1 ? claims_broken > 0 : claims_broken == 0) << claims_broken;
}

INSTANTIATE_TEST_SUITE_P(
    Policies, ServeStateTraces,
    ::testing::Combine(::testing::Values(ServePolicy::kOrca, ServePolicy::kChunked,
                                         ServePolicy::kStatic),
                       ::testing::Values(Admission::kReserve, Admission::kOptimistic),
                       ::testing::Values(1, 3), ::testing::Bool()));

INSTANTIATE_TEST_SUITE_P(Rounds, ServeStateTraces,
                         ::testing::Combine(::testing::Values(ServePolicy::kRounds),
                                            ::testing::Values(Admission::kReserve,
                                                              Admission::kOptimistic),
                                            ::testing::Values(1, 3), ::testing::Values(true)));

// -2 where the request is not in the batch.
int32_t state_of(const Batch& batch, RequestId request) {
  for (const WorkItem& item : batch.items) {
    if (item.request == request) return item.state;
  }
  return -2;
}

int32_t context_of(const Batch& batch, RequestId request) {
  for (const WorkItem& item : batch.items) {
    if (item.request == request) return item.context_count;
  }
  return -2;
}

class ServeStates : public ::testing::Test {
 protected:
  ServeStates() { options_.state_count = 3; }

  void start() { scheduler_.emplace(options_); }
  void arrive(RequestId id, int32_t prompt, int32_t new_tokens, int32_t forks = 0) {
    RequestSpec spec = request_of(id, prompt, new_tokens);
    spec.fork_count = forks;
    ASSERT_TRUE(scheduler_->arrive(std::move(spec)));
  }
  Batch next() {
    std::optional<Batch> batch = scheduler_->next_batch();
    EXPECT_TRUE(batch);
    scheduler_->check_invariants();
    return batch.value_or(Batch{});
  }
  // `parent` forks `children` and, if so wanted, ends.
  std::vector<RequestId> complete(const Batch& batch, RequestId parent = -1,
                                  const std::vector<RequestId>& children = {}, bool ends = false) {
    std::vector<SampledNext> sampled = sample_all(batch);
    for (SampledNext& next : sampled) {
      if (next.request != parent) continue;
      for (const RequestId child : children) next.forks.push_back({child, 8, false});
      next.finished = ends;
    }
    std::vector<RequestId> over = scheduler_->complete(batch.id, sampled);
    scheduler_->check_invariants();
    return over;
  }
  void lose(const Batch& batch) {
    scheduler_->lose(batch.id);
    scheduler_->check_invariants();
  }
  void cancel(RequestId id) {
    scheduler_->cancel(id);
    scheduler_->check_invariants();
  }

  ServeSchedulerOptions options_ = options_of(ServePolicy::kOrca, Admission::kReserve, 40);
  std::optional<ServeScheduler> scheduler_;
};

TEST_F(ServeStates, NoneWithoutThem) {
  options_.state_count = 0;
  start();
  arrive(1, 3, 3, /*forks=*/2);
  Batch batch = next();
  EXPECT_EQ(batch.items[0].state, kNoState);
  complete(batch, 1, {2, 3});
  batch = next();
  EXPECT_EQ(batch.items.size(), 3u);
  EXPECT_TRUE(batch.state_copies.empty());
}

TEST_F(ServeStates, ARequestWithMoreForksThanThereAreStatesIsRefused) {
  start();
  RequestSpec spec = request_of(1, 3, 3);
  spec.fork_count = 3;
  const Status status = scheduler_->arrive(spec);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kExhausted);
  EXPECT_EQ(status.error().message,
            "request 1 needs 4 states, one for each of its answers; the server has 3");
  spec.fork_count = 2;
  EXPECT_TRUE(scheduler_->arrive(spec));
}

TEST_F(ServeStates, ARequestEntersWhenItsSlotsAndThoseOfItsForksAreFree) {
  for (const auto admission : {Admission::kReserve, Admission::kOptimistic}) {
    options_.admission = admission;
    start();
    arrive(1, 2, 1);
    arrive(2, 2, 2);
    arrive(3, 2, 2, /*forks=*/1);
    arrive(4, 2, 2);  // there would be room for it, but nobody overtakes
    Batch batch = next();
    EXPECT_EQ(batch.items.size(), 2u);
    EXPECT_EQ(state_of(batch, 1), 0);
    EXPECT_EQ(state_of(batch, 2), 1);
    EXPECT_EQ(complete(batch), std::vector<RequestId>{1});
    batch = next();  // one is free and one was given back
    EXPECT_EQ(batch.items.size(), 2u);
    EXPECT_EQ(state_of(batch, 2), 1);
    EXPECT_EQ(state_of(batch, 3), 0);
    complete(batch);  // the fork was not made: what was kept for it is free
    batch = next();
    EXPECT_NE(state_of(batch, 4), -2);
  }
}

TEST_F(ServeStates, APreemptedRequestGivesItsSlotBack) {
  options_ = options_of(ServePolicy::kOrca, Admission::kOptimistic, 3);
  options_.state_count = 2;
  start();
  arrive(1, 4, 8);
  arrive(2, 3, 6);
  Batch batch = next();
  EXPECT_EQ(state_of(batch, 2), 1);
  complete(batch);
  batch = next();
  complete(batch);
  while (batch.preempted.empty()) complete(batch = next());
  EXPECT_EQ(batch.preempted, std::vector<RequestId>{2});
  while (!scheduler_->idle()) {
    batch = next();
    if (state_of(batch, 2) != -2) break;
    complete(batch);
  }
  EXPECT_EQ(context_of(batch, 2), 0) << "at its first token again";
}

TEST_F(ServeStates, AForkBeginsAsACopyBeforeItsParentGoesOn) {
  start();
  arrive(1, 5, 3, /*forks=*/2);
  complete(next(), 1, {2, 3});
  const Batch batch = next();
  ASSERT_EQ(batch.state_copies.size(), 2u);
  for (const StateCopy& copy : batch.state_copies) EXPECT_EQ(copy.src, state_of(batch, 1));
  EXPECT_EQ(batch.state_copies[0].dst, state_of(batch, 2));
  EXPECT_EQ(batch.state_copies[1].dst, state_of(batch, 3));
  for (const RequestId id : {1, 2, 3}) EXPECT_EQ(context_of(batch, id), 5);
  complete(batch);
  EXPECT_TRUE(next().state_copies.empty()) << "once";
}

// Whoever gets the slot begins in the batch that copies it first.
TEST_F(ServeStates, TheSlotOfAParentThatEndsAtOnceIsCopiedBeforeItIsUsed) {
  options_.state_count = 2;
  start();
  arrive(1, 5, 3, /*forks=*/1);
  arrive(3, 2, 1);
  Batch batch = next();
  EXPECT_EQ(batch.items.size(), 1u);
  const int32_t parent = state_of(batch, 1);
  EXPECT_EQ(complete(batch, 1, {2}, /*ends=*/true), std::vector<RequestId>{1});
  batch = next();
  ASSERT_EQ(batch.state_copies.size(), 1u);
  EXPECT_EQ(batch.state_copies[0].src, parent);
  EXPECT_EQ(batch.state_copies[0].dst, state_of(batch, 2));
  EXPECT_EQ(state_of(batch, 3), parent);
  EXPECT_EQ(context_of(batch, 3), 0);
}

TEST_F(ServeStates, AParentCancelledBeforeTheCopyIsCopied) {
  start();
  arrive(1, 5, 3, /*forks=*/1);
  Batch batch = next();
  const int32_t parent = state_of(batch, 1);
  complete(batch, 1, {2});
  cancel(1);
  batch = next();
  ASSERT_EQ(batch.state_copies.size(), 1u);
  EXPECT_EQ(batch.state_copies[0].src, parent);
  EXPECT_EQ(context_of(batch, 2), 5);
}

TEST_F(ServeStates, AForkCancelledBeforeTheCopyNeedsNone) {
  start();
  arrive(1, 5, 3, /*forks=*/1);
  complete(next(), 1, {2});
  cancel(2);
  EXPECT_TRUE(next().state_copies.empty());
}

TEST_F(ServeStates, AParentCancelledInFlightForksNonetheless) {
  start();
  arrive(1, 5, 3, /*forks=*/1);
  Batch batch = next();
  cancel(1);
  complete(batch, 1, {2});
  batch = next();
  EXPECT_EQ(batch.state_copies.size(), 1u);
  EXPECT_EQ(context_of(batch, 2), 5);
  EXPECT_EQ(state_of(batch, 1), -2);
}

// A more urgent request needs a block between the fork and its copy.
TEST_F(ServeStates, AParentAndItsForkPreemptedBeforeTheCopyBeginAgain) {
  options_ = options_of(ServePolicy::kOrca, Admission::kOptimistic, 4);
  options_.state_count = 3;
  start();
  RequestSpec urgent = request_of(9, 11, 5);
  urgent.priority = 1;
  ASSERT_TRUE(scheduler_->arrive(urgent));
  complete(next());
  arrive(1, 4, 2, /*forks=*/1);
  complete(next(), 1, {2});
  Batch batch = next();
  EXPECT_EQ(batch.preempted, (std::vector<RequestId>{2, 1}));
  EXPECT_EQ(batch.items.size(), 1u);
  EXPECT_TRUE(batch.state_copies.empty());
  complete(batch);
  while (state_of(batch, 1) == -2) complete(batch = next());
  EXPECT_EQ(context_of(batch, 1), 0);
  EXPECT_EQ(context_of(batch, 2), 0);
  EXPECT_NE(state_of(batch, 1), state_of(batch, 2));
}

TEST_F(ServeStates, NoPrefixIsCached) {
  start();
  arrive(1, 9, 9);
  complete(next());
  RequestSpec same = request_of(1, 9, 9);
  same.id = 2;
  ASSERT_TRUE(scheduler_->arrive(same));
  EXPECT_EQ(context_of(next(), 2), 0);
  cancel(1);
  EXPECT_EQ(scheduler_->pool().cached_count(), 0);
}

// Of one request that has sampled; the next batch has these drafts.
class DraftsWithStates : public ServeStates {
 protected:
  void begin(int32_t new_tokens = 20) {
    start();
    arrive(1, 5, new_tokens);
    complete(next());
  }
  Batch drafted(const std::vector<int32_t>& tokens, int32_t certain = 0) {
    scheduler_->draft(1, tokens, certain);
    return next();
  }
  void came_true(const Batch& batch, int32_t accepted, bool finished = false) {
    scheduler_->complete(
        batch.id, std::vector<SampledNext>{
                      {.request = 1, .token = 9, .finished = finished, .accepted = accepted}});
    scheduler_->check_invariants();
  }
};

TEST_F(DraftsWithStates, WhereAllComeTrueTheStateGoesOn) {
  begin();
  Batch batch = drafted({4, 5, 6});
  const WorkItem item = batch.items[0];
  EXPECT_EQ(item.draft_count, 3);
  EXPECT_EQ(item.context_count, 5);
  EXPECT_NE(item.spare, kNoState);
  EXPECT_NE(item.spare, item.state);
  EXPECT_EQ(scheduler_->spare_count(), 1);
  came_true(batch, 3);
  EXPECT_EQ(scheduler_->spare_count(), 2);
  batch = next();
  EXPECT_EQ(batch.items[0].state, item.state);
  EXPECT_EQ(batch.items[0].context_count, 9);
  EXPECT_EQ(batch.items[0].tokens, std::vector<int32_t>{9});
  EXPECT_EQ(batch.items[0].spare, kNoState) << "nothing is drafted";
}

TEST_F(DraftsWithStates, BehindAWrongOneTheSpareStateGoesOnWithWhatWasRight) {
  for (int32_t right = 0; right < 3; ++right) {
    begin();
    Batch batch = drafted({4, 5, 6});
    const WorkItem item = batch.items[0];
    came_true(batch, right);
    EXPECT_EQ(scheduler_->again_count(1), right);
    batch = next();
    std::vector<int32_t> tokens{4, 5, 6};
    tokens.resize(static_cast<size_t>(right));
    tokens.push_back(9);
    EXPECT_EQ(batch.items[0].state, item.spare);
    EXPECT_EQ(batch.items[0].context_count, 6);
    EXPECT_EQ(batch.items[0].again_count, right);
    EXPECT_EQ(batch.items[0].tokens, tokens);
    EXPECT_EQ(batch.items[0].sample_rows(), 1);
    complete(batch);
    EXPECT_EQ(scheduler_->again_count(1), 0);
    EXPECT_EQ(next().items[0].context_count, 7 + right);
  }
}

TEST_F(DraftsWithStates, MoreMayBeDraftedBehindWhatRunsAgain) {
  begin();
  came_true(drafted({4, 5, 6}), 2);
  Batch batch = drafted({1, 2});
  EXPECT_EQ(batch.items[0].tokens, (std::vector<int32_t>{4, 5, 9, 1, 2}));
  EXPECT_EQ(batch.items[0].sample_rows(), 3);
  EXPECT_NE(batch.items[0].spare, batch.items[0].state);
  came_true(batch, 0);
  batch = next();
  EXPECT_EQ(batch.items[0].again_count, 0);
  EXPECT_EQ(batch.items[0].context_count, 9);
}

TEST_F(DraftsWithStates, WithoutAFreeSlotOnlyWhatIsCertainIsDrafted) {
  options_.state_count = 1;
  begin();
  EXPECT_EQ(scheduler_->spare_count(), 0);
  Batch batch = drafted({4, 5, 6}, 2);
  EXPECT_EQ(batch.items[0].draft_count, 2);
  EXPECT_EQ(batch.items[0].spare, kNoState);
  came_true(batch, 2);
  EXPECT_EQ(drafted({4, 5, 6}).items[0].draft_count, 0);
}

TEST_F(DraftsWithStates, WhatIsCertainNeedsNoSlot) {
  begin();
  Batch batch = drafted({4, 5, 6}, 3);
  EXPECT_EQ(batch.items[0].draft_count, 3);
  EXPECT_EQ(batch.items[0].spare, kNoState);
  came_true(batch, 3);
  // Should it not come, nothing but the beginning is left.
  batch = drafted({4, 5, 6}, 3);
  came_true(batch, 1);
  batch = next();
  EXPECT_EQ(batch.items[0].context_count, 0);
  EXPECT_EQ(batch.items[0].tokens.size(), 12u);
  EXPECT_EQ(batch.items[0].again_count, 0);
}

TEST_F(DraftsWithStates, NobodyWaitsForASlotThatIsSpare) {
  options_.state_count = 2;
  begin();
  Batch batch = drafted({4, 5});
  EXPECT_NE(batch.items[0].spare, kNoState);
  arrive(2, 3, 4);
  came_true(batch, 1);
  scheduler_->draft(1, std::vector<int32_t>{4, 5});
  batch = next();
  ASSERT_EQ(batch.items.size(), 2u) << "the newcomer has it";
  EXPECT_EQ(batch.items[0].draft_count, 0);
  EXPECT_EQ(batch.items[0].again_count, 1);
}

TEST_F(DraftsWithStates, OfMoreThanThereAreSlotsTheFirstHaveThem) {
  start();
  arrive(1, 3, 9);
  arrive(2, 3, 9);
  complete(next());
  scheduler_->draft(1, std::vector<int32_t>{4, 5});
  scheduler_->draft(2, std::vector<int32_t>{4, 5});
  const Batch batch = next();
  EXPECT_EQ(batch.items[0].draft_count, 2);
  EXPECT_EQ(batch.items[1].draft_count, 0);
}

TEST_F(DraftsWithStates, SlotsAreFreeAgainWhateverBecomesOfTheBatch) {
  begin();
  lose(drafted({4, 5}));
  EXPECT_EQ(scheduler_->spare_count(), 2);
  Batch batch = next();
  EXPECT_EQ(batch.items[0].context_count, 0);
  EXPECT_EQ(batch.items[0].tokens.size(), 6u);
  complete(batch);
  batch = drafted({4, 5});
  cancel(1);
  came_true(batch, 0, /*finished=*/true);
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_EQ(scheduler_->spare_count(), 3);
}

TEST_F(DraftsWithStates, WhatRunsAgainIsForgottenWithTheCaches) {
  begin();
  came_true(drafted({4, 5, 6}), 2);
  scheduler_->lose_caches();
  scheduler_->check_invariants();
  const Batch batch = next();
  EXPECT_EQ(batch.items[0].context_count, 0);
  EXPECT_EQ(batch.items[0].again_count, 0);
  EXPECT_EQ(batch.items[0].tokens.size(), 9u);
}

TEST_F(DraftsWithStates, NoneWithSeveralBatchesInFlight) {
  options_.batches_in_flight_max = 2;
  begin();
  EXPECT_EQ(scheduler_->spare_count(), 0);
  EXPECT_EQ(drafted({4, 5, 6}, 3).items[0].draft_count, 0);
}

// A batch of many tokens again has as many rows as the one that drafted them.
TEST_F(DraftsWithStates, WhatRunsAgainIsInTheBudget) {
  options_.policy = ServePolicy::kChunked;
  options_.batch_tokens_max = 8;
  begin();
  came_true(drafted({1, 2, 3, 4, 5, 6}), 5);
  arrive(2, 20, 2);
  const Batch batch = next();
  ASSERT_EQ(batch.items.size(), 2u);
  EXPECT_EQ(batch.items[0].tokens.size(), 6u);
  EXPECT_EQ(batch.items[1].tokens.size(), 2u);
}

TEST_F(ServeStates, AfterALostBatchItsRequestsBeginAgain) {
  options_.policy = ServePolicy::kChunked;
  start();
  arrive(1, 5, 9);
  complete(next());
  arrive(2, 20, 1);
  complete(next());
  Batch batch = next();
  EXPECT_EQ(context_of(batch, 1), 6);
  EXPECT_EQ(context_of(batch, 2), 10);
  const int32_t slot = state_of(batch, 1);
  lose(batch);
  batch = next();
  EXPECT_EQ(context_of(batch, 1), 0);
  EXPECT_EQ(batch.items[0].tokens.size(), 7u);
  EXPECT_EQ(state_of(batch, 1), slot);
  EXPECT_EQ(context_of(batch, 2), 0);
}

TEST_F(ServeStates, AForkWhoseCopyIsLostBeginsAgainThoughItWasNotInTheBatch) {
  options_.batch_requests_max = 1;
  start();
  arrive(1, 5, 9, /*forks=*/1);
  complete(next(), 1, {2});
  Batch batch = next();
  EXPECT_EQ(batch.state_copies.size(), 1u);
  EXPECT_EQ(state_of(batch, 2), -2);
  lose(batch);
  cancel(1);
  batch = next();
  EXPECT_TRUE(batch.state_copies.empty());
  EXPECT_EQ(context_of(batch, 2), 0);
  EXPECT_EQ(batch.items[0].tokens.size(), 6u);
}

TEST_F(ServeStates, AForkWaitsForTheBatchThatCopiesItsState) {
  options_.batch_requests_max = 1;
  options_.batches_in_flight_max = 2;
  start();
  arrive(1, 5, 9, /*forks=*/1);
  complete(next(), 1, {2});
  const Batch batch = next();
  EXPECT_EQ(state_of(batch, 2), -2);
  EXPECT_FALSE(scheduler_->next_batch()) << "the fork's state is not there yet";
  complete(batch);
  next();
  EXPECT_EQ(context_of(next(), 2), 5);
}

// Its slot is free while a batch in flight still copies into it.
TEST_F(ServeStates, AForkPreemptedWhileItsStateIsCopiedBeginsAgain) {
  options_ = options_of(ServePolicy::kOrca, Admission::kOptimistic, 4);
  options_.state_count = 3;
  options_.batch_requests_max = 1;
  options_.batches_in_flight_max = 2;
  start();
  RequestSpec urgent = request_of(9, 8, 4);
  urgent.priority = 1;
  ASSERT_TRUE(scheduler_->arrive(urgent));
  arrive(1, 4, 2, /*forks=*/1);
  Batch first = next();
  const Batch second = next();
  complete(first);
  complete(second, 1, {2});
  first = next();
  EXPECT_EQ(state_of(first, 9), 0);
  EXPECT_EQ(first.state_copies.size(), 1u);
  EXPECT_FALSE(scheduler_->next_batch()) << "the parent needs a block";
  EXPECT_EQ(scheduler_->waiting_count(), 1) << "and the fork gave its own";
  complete(first);
  Batch batch = next();
  while (state_of(batch, 2) == -2) {
    complete(batch);
    batch = next();
  }
  EXPECT_EQ(context_of(batch, 2), 0);
}

TEST_F(ServeStates, FinishedMembersOfAStaticBatchHoldNone) {
  options_.policy = ServePolicy::kStatic;
  start();
  arrive(1, 2, 3, /*forks=*/1);
  const Batch batch = next();
  EXPECT_TRUE(complete(batch, 1, {2}, /*ends=*/true).empty()) << "it waits for the fork";
  const Batch second = next();
  EXPECT_EQ(second.state_copies.size(), 1u);
  EXPECT_TRUE(complete(second).empty());
  EXPECT_EQ(complete(next()), (std::vector<RequestId>{1, 2}));
}

}  // namespace
}  // namespace jige::plan
