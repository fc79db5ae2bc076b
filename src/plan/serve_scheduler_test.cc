#include "plan/serve_scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "base/test_fuzz_rounds.h"
#include "plan/serve_scheduler_test_support.h"

namespace jige::plan {
namespace {

enum class Tenants { kAlike, kFairShare, kShortestFirst };
using TraceCase = std::tuple<ServePolicy, Admission, int32_t, Tenants>;

class ServeSchedulerTraces : public ::testing::TestWithParam<TraceCase> {};

TEST_P(ServeSchedulerTraces, EveryRequestGetsWhatItWouldGetAlone) {
  const auto [policy, admission, in_flight, tenants] = GetParam();
  for (uint64_t seed = 0; seed < fuzz_rounds(8); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ServeSchedulerOptions options =
        options_of(policy, admission, 24 + static_cast<int32_t>(seed % 8));
    options.batches_in_flight_max = in_flight;
    options.fair_share = tenants == Tenants::kFairShare;
    options.shortest_first = tenants == Tenants::kShortestFirst;
    TraceRun(options, seed, /*priorities=*/seed % 2 == 1, /*drafts=*/seed % 4 > 1).run(60);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Policies, ServeSchedulerTraces,
    ::testing::Combine(
        ::testing::Values(ServePolicy::kOrca, ServePolicy::kChunked, ServePolicy::kStatic),
        ::testing::Values(Admission::kReserve, Admission::kOptimistic), ::testing::Values(1, 3),
        ::testing::Values(Tenants::kAlike, Tenants::kFairShare, Tenants::kShortestFirst)));

INSTANTIATE_TEST_SUITE_P(
    Rounds, ServeSchedulerTraces,
    ::testing::Combine(::testing::Values(ServePolicy::kRounds),
                       ::testing::Values(Admission::kReserve, Admission::kOptimistic),
                       ::testing::Values(1, 3), ::testing::Values(Tenants::kAlike)));

TEST(ServeScheduler, RefusesWhatCouldNeverRun) {
  ServeScheduler scheduler(options_of(ServePolicy::kOrca, Admission::kReserve, 4));
  EXPECT_EQ(scheduler.arrive(request_of(1, 16, 1)).error().code, Code::kExhausted);
  EXPECT_EQ(scheduler.arrive(request_of(2, 0, 1)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(scheduler.arrive(request_of(3, 1, -1)).error().code, Code::kInvalidArgument);
  EXPECT_TRUE(scheduler.arrive(request_of(4, 15, 1)));
  EXPECT_EQ(scheduler.arrive(request_of(4, 1, 1)).error().code, Code::kInvalidArgument);
}

TEST(ServeScheduler, OrcaRunsEarlierArrivalsAtLeastAsOften) {
  ServeSchedulerOptions options = options_of(ServePolicy::kOrca, Admission::kReserve, 20);
  options.batches_in_flight_max = 2;
  ServeScheduler scheduler(options);
  for (RequestId id = 0; id < 12; ++id) {
    ASSERT_TRUE(scheduler.arrive(request_of(id, 3 + static_cast<int32_t>(id) % 5, 6)));
  }
  std::map<RequestId, int> ran;
  std::set<RequestId> over;
  std::vector<Batch> flying;
  while (!scheduler.idle()) {
    while (auto batch = scheduler.next_batch()) {
      for (const WorkItem& item : batch->items) ++ran[item.request];
      flying.push_back(*batch);
    }
    ASSERT_FALSE(flying.empty());
    for (RequestId early = 0; early < 12; ++early) {
      for (RequestId late = early + 1; late < 12; ++late) {
        if (over.contains(early)) continue;
        EXPECT_GE(ran[early], ran[late]) << early << " " << late;
      }
    }
    const auto done = scheduler.complete(flying.front().id, sample_all(flying.front()));
    over.insert(done.begin(), done.end());
    flying.erase(flying.begin());
  }
  EXPECT_EQ(over.size(), 12u);
}

TEST(ServeScheduler, IterationLevelBatchingLetsShortRequestsLeaveEarly) {
  for (const auto policy : {ServePolicy::kOrca, ServePolicy::kStatic}) {
    ServeScheduler scheduler(options_of(policy, Admission::kReserve, 20));
    ASSERT_TRUE(scheduler.arrive(request_of(1, 2, 1)));
    ASSERT_TRUE(scheduler.arrive(request_of(2, 2, 5)));
    auto batch = scheduler.next_batch();
    ASSERT_TRUE(batch);
    const auto over = scheduler.complete(batch->id, sample_all(*batch));
    EXPECT_EQ(over.size(), policy == ServePolicy::kOrca ? 1u : 0u);
  }
}

// Of a model that cannot run pieces: whoever came first runs whole in the next batch, and the
// others as there is room.
TEST(ServeScheduler, WholePromptsAreNotCut) {
  for (const bool shortest_first : {false, true}) {
    ServeSchedulerOptions options = options_of(ServePolicy::kChunked, Admission::kReserve, 60);
    options.whole_prompt_tokens = 20;
    options.shortest_first = shortest_first;
    options.pool.prefix_cache = false;
    ServeScheduler scheduler(options);
    const std::vector<int32_t> lengths = {12, 20, 7, 3, 1, 20, 5, 18, 2};
    for (size_t i = 0; i < lengths.size(); ++i) {
      RequestSpec spec = request_of(static_cast<RequestId>(i), lengths[i], 0);
      spec.tenant = i;
      ASSERT_TRUE(scheduler.arrive(spec));
    }
    std::set<RequestId> left;
    for (size_t i = 0; i < lengths.size(); ++i) left.insert(static_cast<RequestId>(i));
    for (int batches = 0; !scheduler.idle(); ++batches) {
      ASSERT_LT(batches, 9);
      const auto batch = scheduler.next_batch();
      ASSERT_TRUE(batch);
      EXPECT_LE(batch->token_count(), 20);
      bool has_first = false;
      for (const WorkItem& item : batch->items) {
        EXPECT_EQ(item.context_count, 0);
        EXPECT_EQ(std::ssize(item.tokens), lengths[static_cast<size_t>(item.request)]);
        has_first |= item.request == *left.begin();
      }
      EXPECT_TRUE(has_first) << "of those that wait";
      for (const WorkItem& item : batch->items) left.erase(item.request);
      scheduler.complete(batch->id, sample_all(*batch));
      scheduler.check_invariants();
    }
    EXPECT_TRUE(left.empty());
  }
}

// One that is more urgent but does not fit waits for those inside, so those must go on.
TEST(ServeScheduler, ARequestAtTheDoorDoesNotStopThoseInside) {
  for (const auto policy : {ServePolicy::kOrca, ServePolicy::kChunked, ServePolicy::kRounds}) {
    for (const auto admission : {Admission::kReserve, Admission::kOptimistic}) {
      ServeScheduler scheduler(options_of(policy, admission, 8));
      ASSERT_TRUE(scheduler.arrive(request_of(1, 20, 3)));
      auto batch = scheduler.next_batch();
      ASSERT_TRUE(batch);
      scheduler.complete(batch->id, sample_all(*batch));
      RequestSpec urgent = request_of(2, 24, 3);
      urgent.priority = 5;
      ASSERT_TRUE(scheduler.arrive(urgent));
      ASSERT_TRUE(scheduler.arrive(request_of(3, 2, 1)));
      std::vector<RequestId> order;
      for (int steps = 0; !scheduler.idle(); ++steps) {
        ASSERT_LT(steps, 30);
        batch = scheduler.next_batch();
        ASSERT_TRUE(batch) << "nothing can ever run again";
        for (const RequestId id : scheduler.complete(batch->id, sample_all(*batch))) {
          order.push_back(id);
        }
      }
      ASSERT_EQ(order.size(), 3u);
      EXPECT_EQ(order[0], 1);
    }
  }
}

TEST(ServeScheduler, DraftsTakeWhatABatchHasLeft) {
  ServeScheduler scheduler(options_of(ServePolicy::kChunked, Admission::kReserve, 40));
  ASSERT_TRUE(scheduler.arrive(request_of(1, 4, 9)));
  const std::vector<int32_t> guesses(20, 7);
  scheduler.draft(1, guesses);
  auto batch = scheduler.next_batch();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->items[0].draft_count, 0) << "nothing is drafted behind a prompt";
  scheduler.complete(batch->id, sample_all(*batch));
  // Nine rows are sampled from at most, eight tokens are still to come and one follows the draft.
  scheduler.draft(1, guesses);
  batch = scheduler.next_batch();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->items[0].draft_count, 7);
  EXPECT_EQ(batch->items[0].tokens.size(), 8u);
  EXPECT_EQ(batch->items[0].blocks.size(), 3u);
  // Two came true: what was run for the others is given back.
  scheduler.complete(batch->id,
                     std::vector<SampledNext>{{.request = 1, .token = 5, .accepted = 2}});
  scheduler.check_invariants();
  EXPECT_EQ(scheduler.pool().live_count(), 2) << "for seven tokens";
  // A prompt goes first: it leaves no room to a draft.
  ASSERT_TRUE(scheduler.arrive(request_of(2, 30, 1)));
  scheduler.draft(1, guesses);
  batch = scheduler.next_batch();
  ASSERT_TRUE(batch);
  ASSERT_EQ(batch->items.size(), 2u);
  EXPECT_EQ(batch->items[0].draft_count, 0);
  EXPECT_EQ(batch->items[1].tokens.size(), 10u);
}

// A static batch keeps its finished members, but not their blocks.
TEST(ServeScheduler, FinishedMembersOfAStaticBatchGiveTheirBlocksToTheOthers) {
  ServeScheduler scheduler(options_of(ServePolicy::kStatic, Admission::kOptimistic, 8));
  ASSERT_TRUE(scheduler.arrive(request_of(1, 4, 24)));
  ASSERT_TRUE(scheduler.arrive(request_of(2, 15, 1)));
  std::vector<RequestId> over;
  for (int steps = 0; !scheduler.idle(); ++steps) {
    ASSERT_LT(steps, 30);
    const auto batch = scheduler.next_batch();
    ASSERT_TRUE(batch) << "nothing can ever run again";
    over = scheduler.complete(batch->id, sample_all(*batch));
    scheduler.check_invariants();
    EXPECT_TRUE(over.empty() || scheduler.idle());
  }
  EXPECT_EQ(over, (std::vector<RequestId>{1, 2}));
}

TEST(ServeScheduler, ChunkedNeverLetsAPromptStallADecode) {
  ServeScheduler scheduler(options_of(ServePolicy::kChunked, Admission::kReserve, 40));
  ASSERT_TRUE(scheduler.arrive(request_of(1, 4, 20)));
  auto first = scheduler.next_batch();
  scheduler.complete(first->id, sample_all(*first));
  ASSERT_TRUE(scheduler.arrive(request_of(2, 60, 2)));
  for (int i = 0; i < 5; ++i) {
    auto batch = scheduler.next_batch();
    ASSERT_TRUE(batch);
    ASSERT_EQ(batch->items.size(), 2u);
    EXPECT_EQ(batch->items[0].request, 1);
    EXPECT_EQ(batch->items[1].tokens.size(), 10u);
    scheduler.complete(batch->id, sample_all(*batch));
  }
}

TEST(ServeScheduler, ReusesThePrefixOfAnEarlierPrompt) {
  ServeScheduler scheduler(options_of(ServePolicy::kChunked, Admission::kReserve, 20));
  RequestSpec spec = request_of(1, 10, 1);
  const std::vector<int32_t> prompt = spec.prompt;
  ASSERT_TRUE(scheduler.arrive(spec));
  auto batch = scheduler.next_batch();
  scheduler.complete(batch->id, sample_all(*batch));
  spec.id = 2;
  ASSERT_TRUE(scheduler.arrive(spec));
  batch = scheduler.next_batch();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->items[0].context_count, 8);
  EXPECT_EQ(scheduler.counters(2).cached_tokens, 8);
  scheduler.complete(batch->id, sample_all(*batch));
  spec.id = 3;
  spec.cache_salt = 99;  // another tenant sees nothing of it
  ASSERT_TRUE(scheduler.arrive(spec));
  batch = scheduler.next_batch();
  EXPECT_EQ(batch->items[0].context_count, 0);
  scheduler.complete(batch->id, sample_all(*batch));
  spec.id = 4;
  spec.cached_max = 7;  // one block
  ASSERT_TRUE(scheduler.arrive(spec));
  batch = scheduler.next_batch();
  EXPECT_EQ(batch->items[0].context_count, 4);
}

// Keys and values of one adapter are not those of another, or of the base.
TEST(ServeScheduler, AnAdapterFindsItsOwnPrefixesOnly) {
  ServeScheduler scheduler(options_of(ServePolicy::kChunked, Admission::kReserve, 40));
  RequestSpec spec = request_of(0, 10, 1);
  const auto cached_with = [&](int32_t adapter) {
    ++spec.id;
    spec.adapter = adapter;
    EXPECT_TRUE(scheduler.arrive(spec));
    const auto batch = scheduler.next_batch();
    EXPECT_EQ(batch->items[0].adapter, adapter);
    scheduler.complete(batch->id, sample_all(*batch));
    return batch->items[0].context_count;
  };
  for (const int32_t adapter : {kBaseAdapter, 0, 1}) EXPECT_EQ(cached_with(adapter), 0);
  for (const int32_t adapter : {1, kBaseAdapter, 0}) EXPECT_EQ(cached_with(adapter), 8);
}

TEST(ServeScheduler, DiscardedWorkIsFoundByNobody) {
  ServeScheduler scheduler(options_of(ServePolicy::kChunked, Admission::kReserve, 20));
  RequestSpec spec = request_of(1, 19, 9);
  ASSERT_TRUE(scheduler.arrive(spec));
  auto batch = scheduler.next_batch();  // 11 tokens: two blocks are published
  ASSERT_TRUE(batch);
  scheduler.complete(batch->id, {});
  batch = scheduler.next_batch();
  scheduler.discard(1);
  scheduler.discard(77);  // unknown
  scheduler.complete(batch->id, sample_all(*batch));
  scheduler.cancel(1);
  EXPECT_EQ(scheduler.pool().cached_count(), 0);
  scheduler.check_invariants();
  // The same prompt again is computed afresh, and then found.
  for (const int32_t cached : {0, 16}) {
    ++spec.id;
    spec.max_new_tokens = 1;
    ASSERT_TRUE(scheduler.arrive(spec));
    bool first = true;
    while (!scheduler.idle()) {
      batch = scheduler.next_batch();
      EXPECT_TRUE(!first || batch->items[0].context_count == cached);
      first = false;
      scheduler.complete(batch->id, sample_all(*batch));
    }
  }
  EXPECT_GT(scheduler.pool().cached_count(), 0);
  scheduler.check_invariants();
}

TEST(ServeScheduler, ServesTenantsEvenlyWhenAsked) {
  ServeSchedulerOptions options = options_of(ServePolicy::kOrca, Admission::kReserve, 40);
  options.batch_requests_max = 1;
  options.fair_share = true;
  ServeScheduler scheduler(options);
  for (RequestId id = 0; id < 6; ++id) {
    RequestSpec spec = request_of(id, 4, 4);
    spec.tenant = id < 5 ? 1 : 2;
    ASSERT_TRUE(scheduler.arrive(spec));
  }
  auto batch = scheduler.next_batch();
  scheduler.complete(batch->id, sample_all(*batch));
  batch = scheduler.next_batch();
  EXPECT_EQ(batch->items[0].request, 5) << "the other tenant's turn";
}

TEST(ServeScheduler, ShortestFirstLeavesHalfToWhoCameFirst) {
  ServeSchedulerOptions options = options_of(ServePolicy::kChunked, Admission::kReserve, 40);
  options.batch_tokens_max = 8;
  options.shortest_first = true;
  ServeScheduler scheduler(options);
  const std::vector<int32_t> lengths = {30, 20, 3, 2};
  for (size_t i = 0; i < lengths.size(); ++i) {
    RequestSpec spec = request_of(static_cast<RequestId>(i), lengths[i], 0);
    spec.tenant = i;
    ASSERT_TRUE(scheduler.arrive(spec));
  }
  const auto run = [&] {
    std::map<RequestId, size_t> tokens;
    const auto batch = scheduler.next_batch();
    EXPECT_LE(batch->token_count(), 8);
    for (const WorkItem& item : batch->items) tokens[item.request] = item.tokens.size();
    scheduler.complete(batch->id, sample_all(*batch));
    scheduler.check_invariants();
    return tokens;
  };
  using Tokens = std::map<RequestId, size_t>;
  EXPECT_EQ(run(), (Tokens{{0, 4}, {3, 2}, {2, 2}})) << "the shortest beside the first";
  EXPECT_EQ(run(), (Tokens{{0, 4}, {2, 1}, {1, 3}}));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(run(), (Tokens{{0, 4}, {1, 4}}));
  EXPECT_EQ(run(), (Tokens{{0, 6}, {1, 1}})) << "what nobody else wants";
}

TEST(ServeScheduler, ShortestFirstRunsAllWhereBatchesHaveNoBound) {
  ServeSchedulerOptions options = options_of(ServePolicy::kChunked, Admission::kReserve, 40);
  options.batch_tokens_max = INT32_MAX;
  options.shortest_first = true;
  ServeScheduler scheduler(options);
  for (const RequestId id : {0, 1}) ASSERT_TRUE(scheduler.arrive(request_of(id, 30, 0)));
  const auto batch = scheduler.next_batch();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->token_count(), 60);
  scheduler.complete(batch->id, sample_all(*batch));
  EXPECT_TRUE(scheduler.idle());
}

TEST(ServeScheduler, APromptAloneMayFillAllBlocks) {
  ServeScheduler scheduler(options_of(ServePolicy::kChunked, Admission::kReserve, 4));
  ASSERT_TRUE(scheduler.arrive(request_of(1, 16, 0)));
  while (!scheduler.idle()) {
    const auto batch = scheduler.next_batch();
    ASSERT_TRUE(batch);
    scheduler.complete(batch->id, sample_all(*batch));
  }
  EXPECT_EQ(scheduler.pool().live_count(), 0);
}

}  // namespace
}  // namespace jige::plan
