#include "plan/kept_states.h"

#include <gtest/gtest.h>

#include <optional>
#include <tuple>
#include <vector>

#include "plan/serve_scheduler_test_support.h"

namespace jige::plan {
namespace {

PrefixHash name_of(int32_t i) { return prefix_seed(static_cast<uint64_t>(i)); }

TEST(KeptStates, TheOneUsedLeastRecentlyMakesRoom) {
  KeptStates states(5, 3);
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(states.keep(name_of(i)), 5 + i);
  EXPECT_EQ(states.use(name_of(0)), 5);
  EXPECT_EQ(states.find(name_of(1)), 6) << "which is no use of it";
  EXPECT_EQ(states.keep(name_of(3)), 6);
  EXPECT_FALSE(states.find(name_of(1)));
  EXPECT_EQ(states.keep(name_of(4)), 7);
  EXPECT_EQ(states.keep(name_of(5)), 5);
  EXPECT_EQ(states.count(), 3);
  states.check_invariants();
}

TEST(KeptStates, WhatIsForgottenMakesRoomFirst) {
  KeptStates states(0, 2);
  states.keep(name_of(0));
  states.keep(name_of(1));
  states.forget(name_of(1));
  states.forget(name_of(1));
  states.forget(name_of(7));
  EXPECT_EQ(states.count(), 1);
  states.check_invariants();
  EXPECT_EQ(states.keep(name_of(2)), 1);
  EXPECT_EQ(states.find(name_of(0)), 0);
}

using KeptTraceCase = std::tuple<ServePolicy, Admission, bool>;

class KeptStateTraces : public ::testing::TestWithParam<KeptTraceCase> {};

TEST_P(KeptStateTraces, EverySlotHoldsWhatItStandsFor) {
  const auto [policy, admission, fair_share] = GetParam();
  int64_t kept = 0, lost = 0, replaced = 0, begun = 0, copies = 0, restarts = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ServeSchedulerOptions options =
        options_of(policy, admission, 27 + static_cast<int32_t>(seed % 8));
    options.state_count = 3 + static_cast<int32_t>(seed % 5);
    options.kept_state_count = 1 + static_cast<int32_t>(seed % 4);
    options.kept_margin = static_cast<int32_t>(seed % 3);
    options.batch_requests_max = 2 + static_cast<int32_t>(seed % 4);
    options.fair_share = fair_share;
    options.shortest_first = !fair_share && seed % 3 == 0;
    TraceRun run(options, seed, /*priorities=*/seed % 2 == 1, /*drafts=*/seed % 4 == 0);
    run.run(60);
    if (HasFailure()) return;
    kept += run.kept;
    lost += run.kept_lost;
    replaced += run.kept_replaced;
    begun += run.begun_at_kept;
    copies += run.copies;
    restarts += run.restarts;
  }
  // The traces are worth something only if all of this happens in them.
  EXPECT_GT(kept, 333);
  EXPECT_GT(lost, 16);
  // Who begins and who stands at a border are in a static batch at different times, and in rounds
  // but for those who begin again.
  EXPECT_TRUE(policy == ServePolicy::kStatic   ? replaced == 0
              : policy == ServePolicy::kRounds ? replaced < 3
                                               : replaced > 3)
      << replaced;
  EXPECT_GT(begun, 100);
  EXPECT_GT(copies, 166);
  EXPECT_GT(restarts, 6);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, KeptStateTraces,
    ::testing::Combine(::testing::Values(ServePolicy::kOrca, ServePolicy::kChunked,
                                         ServePolicy::kStatic),
                       ::testing::Values(Admission::kReserve, Admission::kOptimistic),
                       ::testing::Bool()));

INSTANTIATE_TEST_SUITE_P(Rounds, KeptStateTraces,
                         ::testing::Combine(::testing::Values(ServePolicy::kRounds),
                                            ::testing::Values(Admission::kReserve,
                                                              Admission::kOptimistic),
                                            ::testing::Values(true)));

std::vector<int32_t> numbers(int32_t first, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

std::vector<int32_t> joined(std::vector<int32_t> first, const std::vector<int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Blocks of 4, and states kept at least 2 tokens before the end of a prompt.
class KeptInScheduler : public ::testing::Test {
 protected:
  KeptInScheduler() {
    options_.state_count = 3;
    options_.kept_state_count = 2;
    options_.kept_margin = 2;
    options_.batch_tokens_max = 100;
  }

  void start() { scheduler_.emplace(options_); }
  void arrive(RequestId id, std::vector<int32_t> prompt, int32_t new_tokens = 1) {
    arrive(RequestSpec{.id = id, .prompt = std::move(prompt), .max_new_tokens = new_tokens});
  }
  void arrive(RequestSpec spec) { ASSERT_TRUE(scheduler_->arrive(std::move(spec))); }
  Batch next() {
    std::optional<Batch> batch = scheduler_->next_batch();
    EXPECT_TRUE(batch);
    scheduler_->check_invariants();
    return batch.value_or(Batch{});
  }
  void complete(const Batch& batch) {
    scheduler_->complete(batch.id, sample_all(batch));
    scheduler_->check_invariants();
  }
  void lose(const Batch& batch) {
    scheduler_->lose(batch.id);
    scheduler_->check_invariants();
  }
  // Runs until nobody is left.
  void drain() {
    while (!scheduler_->idle()) complete(next());
  }
  // Where a request that is alone with this prompt begins.
  int32_t begins(const std::vector<int32_t>& prompt) {
    arrive(1000, prompt);
    const Batch batch = next();
    EXPECT_EQ(batch.items.size(), 1u);
    const int32_t begin = batch.items.empty() ? -1 : batch.items[0].context_count;
    EXPECT_EQ(scheduler_->counters(1000).cached_tokens, begin);
    scheduler_->cancel(1000);
    complete(batch);
    return begin;
  }
  int32_t kept_count() const { return scheduler_->kept_states().count(); }

  ServeSchedulerOptions options_ = options_of(ServePolicy::kChunked, Admission::kReserve, 60);
  std::optional<ServeScheduler> scheduler_;
};

TEST_F(KeptInScheduler, APromptIsCutAtItsLastBorderAndItsStateKeptBeforeItGoesOn) {
  for (const ServePolicy policy : kServePolicies) {
    options_.policy = policy;
    start();
    arrive(1, numbers(0, 14), 2);
    Batch batch = next();
    EXPECT_EQ(batch.items[0].tokens.size(), 12u);
    EXPECT_TRUE(batch.state_copies.empty());
    complete(batch);
    EXPECT_EQ(kept_count(), 0) << "before the copy is on its way";
    batch = next();
    EXPECT_EQ(batch.items[0].context_count, 12);
    EXPECT_EQ(batch.items[0].tokens.size(), 2u);
    ASSERT_EQ(batch.state_copies.size(), 1u);
    EXPECT_EQ(batch.state_copies[0].src, batch.items[0].state);
    EXPECT_EQ(batch.state_copies[0].dst, 3);
    complete(batch);
    EXPECT_TRUE(next().state_copies.empty()) << "once";
  }
}

TEST_F(KeptInScheduler, TheMarginIsBeforeTheEnd) {
  const std::pair<int32_t, size_t> kFirstChunks[] = {{4, 4}, {5, 5}, {6, 4}, {9, 4}, {10, 8}};
  for (const auto& [prompt, chunk] : kFirstChunks) {
    start();
    arrive(1, numbers(0, prompt), 2);
    EXPECT_EQ(next().items[0].tokens.size(), chunk) << prompt;
  }
}

TEST_F(KeptInScheduler, TheNextTurnBeginsWithACopyOfWhatIsKept) {
  start();
  arrive(1, numbers(0, 14), 6);
  drain();
  EXPECT_EQ(kept_count(), 1);
  arrive(2, joined(numbers(0, 13), numbers(50, 9)), 2);
  const Batch batch = next();
  EXPECT_EQ(batch.items[0].context_count, 12);
  EXPECT_EQ(scheduler_->counters(2).cached_tokens, 12);
  ASSERT_EQ(batch.state_copies.size(), 1u);
  EXPECT_EQ(batch.state_copies[0].src, 3);
  EXPECT_EQ(batch.state_copies[0].dst, batch.items[0].state);
  EXPECT_EQ(batch.items[0].tokens.size(), 8u) << "up to its own border";
}

TEST_F(KeptInScheduler, BlocksWithoutAStateCountAsNotFound) {
  start();
  arrive(1, numbers(0, 14));
  drain();
  EXPECT_GT(scheduler_->pool().cached_count(), 0);
  EXPECT_EQ(begins(numbers(0, 11)), 0) << "two blocks are there, and a state behind three";
  // Each takes the place of the one used least recently.
  arrive(2, numbers(100, 14));
  arrive(3, numbers(200, 14));
  drain();
  EXPECT_EQ(begins(numbers(0, 14)), 0);
  EXPECT_EQ(begins(numbers(100, 14)), 12);
}

TEST_F(KeptInScheduler, AStateWithoutAllItsBlocksCountsAsNotFound) {
  options_ = options_of(ServePolicy::kOrca, Admission::kReserve, 6);
  options_.state_count = 1;
  options_.kept_state_count = 2;
  options_.kept_margin = 2;
  start();
  arrive(1, numbers(0, 14));
  drain();
  EXPECT_EQ(begins(numbers(0, 14)), 12);
  arrive(2, numbers(100, 6), 17);  // needs most of the blocks
  drain();
  EXPECT_EQ(kept_count(), 2);
  EXPECT_EQ(begins(numbers(0, 14)), 0);
}

TEST_F(KeptInScheduler, ABeginningThatOthersHaveIsKeptForTheThird) {
  start();
  const std::vector<int32_t> shared = numbers(0, 9);
  arrive(1, joined(shared, numbers(100, 9)));
  drain();
  arrive(2, joined(shared, numbers(200, 9)));
  Batch batch = next();
  EXPECT_EQ(batch.items[0].context_count, 0);
  EXPECT_EQ(batch.items[0].tokens.size(), 8u) << "cut where the blocks found end";
  complete(batch);
  batch = next();
  EXPECT_EQ(batch.state_copies.size(), 1u);
  EXPECT_EQ(batch.items[0].tokens.size(), 8u) << "and at its last border";
  complete(batch);
  EXPECT_EQ(next().state_copies.size(), 1u);
  scheduler_->cancel(2);
  start();
  arrive(1, joined(shared, numbers(100, 9)));
  drain();
  arrive(2, joined(shared, numbers(200, 9)));
  drain();
  EXPECT_EQ(begins(joined(shared, numbers(300, 9))), 8);
}

TEST_F(KeptInScheduler, StatesAreOfTheirSaltAndAdapter) {
  start();
  RequestSpec spec{.id = 1, .prompt = numbers(0, 14), .cache_salt = 5, .adapter = 2};
  arrive(spec);
  drain();
  for (const auto& [salt, adapter, begin] :
       {std::tuple{5, 2, 12}, {5, 1, 0}, {4, 2, 0}, {5, kBaseAdapter, 0}}) {
    spec.id = 100 + salt * 10 + adapter;
    spec.cache_salt = static_cast<uint64_t>(salt);
    spec.adapter = adapter;
    arrive(spec);
    const Batch batch = next();
    EXPECT_EQ(batch.items[0].context_count, begin) << salt << " " << adapter;
    scheduler_->cancel(spec.id);
    complete(batch);
  }
  spec.adapter = 2;
  spec.cached_max = 11;
  arrive(spec);
  EXPECT_EQ(next().items[0].context_count, 0) << "only as much as may come from the cache";
}

TEST_F(KeptInScheduler, WhatALostBatchKeptIsForgotten) {
  start();
  arrive(1, numbers(0, 14), 3);
  complete(next());
  Batch batch = next();
  ASSERT_EQ(batch.state_copies.size(), 1u);
  EXPECT_EQ(kept_count(), 1);
  lose(batch);
  EXPECT_EQ(kept_count(), 0);
  batch = next();
  EXPECT_EQ(batch.items[0].context_count, 0);
  complete(batch);
  EXPECT_EQ(next().state_copies.size(), 1u) << "it is kept when it comes there again";
}

TEST_F(KeptInScheduler, AfterALostBatchARequestBeginsWhereAStateIsKept) {
  start();
  arrive(1, numbers(0, 14), 5);
  for (int i = 0; i < 3; ++i) complete(next());
  lose(next());
  Batch batch = next();
  EXPECT_EQ(batch.items[0].context_count, 12);
  EXPECT_EQ(batch.items[0].tokens.size(), 4u) << "with what was generated";
  ASSERT_EQ(batch.state_copies.size(), 1u);
  EXPECT_EQ(batch.state_copies[0].src, 3);
  lose(batch);  // the copy too
  batch = next();
  EXPECT_EQ(batch.items[0].context_count, 12);
  EXPECT_EQ(batch.state_copies.size(), 1u);
  EXPECT_EQ(scheduler_->counters(1).cached_tokens, 0) << "at its first admission";
}

TEST_F(KeptInScheduler, APreemptedRequestBeginsAgainWhereItsStateIsKept) {
  options_.policy = ServePolicy::kOrca;
  options_.admission = Admission::kOptimistic;
  options_.pool.block_count = 10;
  start();
  arrive(1, numbers(0, 14), 10);
  arrive(2, numbers(100, 14), 10);
  Batch batch = next();
  while (batch.preempted.empty()) {
    complete(batch);
    batch = next();
  }
  EXPECT_EQ(batch.preempted, std::vector<RequestId>{2});
  while (std::ranges::find(batch.items, 2, &WorkItem::request) == batch.items.end()) {
    complete(batch);
    batch = next();
  }
  EXPECT_EQ(batch.items[0].context_count, 12);
  EXPECT_GT(batch.items[0].tokens.size(), 3u) << "with what was generated";
}

// What is copied from is read before it is overwritten, in the order of the copies.
TEST_F(KeptInScheduler, AStateIsReadBeforeAnotherTakesItsSlot) {
  options_.kept_state_count = 1;
  options_.state_count = 2;
  start();
  arrive(1, numbers(0, 14));
  drain();
  arrive(2, numbers(100, 14));
  complete(next());  // to its border
  arrive(3, numbers(0, 15));
  const Batch batch = next();
  ASSERT_EQ(batch.state_copies.size(), 2u);
  EXPECT_EQ(batch.state_copies[0].src, 2);
  EXPECT_EQ(batch.state_copies[1].dst, 2);
  complete(batch);
  EXPECT_EQ(kept_count(), 1);
}

TEST_F(KeptInScheduler, OfMoreStatesThanSlotsAtOnceSomeAreNotKept) {
  start();
  for (RequestId id = 1; id <= 3; ++id) arrive(id, numbers(static_cast<int32_t>(id) * 100, 14));
  complete(next());
  const Batch batch = next();
  ASSERT_EQ(batch.state_copies.size(), 2u);
  EXPECT_NE(batch.state_copies[0].dst, batch.state_copies[1].dst);
  complete(batch);
}

// The slot that a fork is still to be copied from is given to one that begins with a kept state.
TEST_F(KeptInScheduler, AForkIsCopiedBeforeAKeptStateComesIntoItsParentsSlot) {
  options_.state_count = 2;
  start();
  arrive(1, numbers(0, 14));
  drain();
  arrive({.id = 2, .prompt = numbers(100, 3), .max_new_tokens = 3, .fork_count = 1});
  arrive(5, numbers(0, 15));
  Batch batch = next();
  const int32_t parent = batch.items[0].state;
  std::vector<SampledNext> sampled = sample_all(batch);
  sampled[0].forks = {{9, 8, false}};
  sampled[0].finished = true;
  scheduler_->complete(batch.id, sampled);
  batch = next();
  ASSERT_EQ(batch.state_copies.size(), 2u);
  EXPECT_EQ(batch.state_copies[0].src, parent);
  EXPECT_EQ(batch.state_copies[1].src, 2);
  EXPECT_EQ(batch.state_copies[1].dst, parent);
}

TEST_F(KeptInScheduler, NothingOfADiscardedRequestIsFound) {
  start();
  arrive(1, numbers(0, 14), 3);
  complete(next());
  scheduler_->discard(1);  // before its state is kept
  EXPECT_TRUE(next().state_copies.empty());

  start();
  arrive(1, numbers(0, 14), 3);
  complete(next());
  complete(next());
  EXPECT_EQ(kept_count(), 1);
  scheduler_->discard(1);
  EXPECT_EQ(kept_count(), 0);
  scheduler_->cancel(1);
  EXPECT_EQ(begins(numbers(0, 14)), 0);
}

TEST_F(KeptInScheduler, NothingIsKeptOrCachedWithSeveralBatchesInFlightOrWithoutSlotsOrCache) {
  for (int which = 0; which < 3; ++which) {
    ServeSchedulerOptions options = options_;
    if (which == 0) options.batches_in_flight_max = 2;
    if (which == 1) options.kept_state_count = 0;
    if (which == 2) options.pool.prefix_cache = false;
    scheduler_.emplace(options);
    arrive(1, numbers(0, 14));
    const Batch batch = next();
    EXPECT_EQ(batch.items[0].tokens.size(), 14u);
    complete(batch);
    EXPECT_EQ(scheduler_->pool().cached_count(), 0);
    EXPECT_EQ(begins(numbers(0, 14)), 0);
  }
}

}  // namespace
}  // namespace jige::plan
