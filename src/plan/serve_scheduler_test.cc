#include "plan/serve_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/rng.h"

namespace jige::plan {
namespace {

constexpr int32_t kBlockTokens = 4;
constexpr int32_t kEmpty = -1;

ServeSchedulerOptions options_of(ServePolicy policy, Admission admission, int32_t block_count) {
  ServeSchedulerOptions options;
  options.policy = policy;
  options.admission = admission;
  options.batch_requests_max = 6;
  options.batch_tokens_max = 11;
  options.sample_rows_max = 9;
  options.pool = {.block_count = block_count, .block_tokens = kBlockTokens};
  return options;
}

// A stand-in for the model: the next token is a hash of all tokens before it, read from the cache
// blocks, so every mistake in blocks, copies or bookkeeping changes what is generated.
class ToyEngine {
 public:
  explicit ToyEngine(int32_t block_count)
      : cells_(static_cast<size_t>(block_count * kBlockTokens), kEmpty) {}

  static int32_t next_token(std::span<const int32_t> tokens, uint64_t sample) {
    uint64_t hash = sample + 1;  // each token's place and value count; a multiply is cheap
    for (const int32_t token : tokens) {
      hash = (hash ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 32;
    }
    return static_cast<int32_t>(hash % 1000);
  }

  void run(const Batch& batch) {
    for (const BlockCopy& copy : batch.copies) {
      for (int32_t i = 0; i < kBlockTokens; ++i) cell(copy.dst, i) = cell(copy.src, i);
    }
    for (const WorkItem& item : batch.items) {
      for (size_t i = 0; i < item.tokens.size(); ++i) {
        const int32_t position = item.context_count + static_cast<int32_t>(i);
        cell(item.blocks[static_cast<size_t>(position / kBlockTokens)], position % kBlockTokens) =
            item.tokens[i];
      }
    }
  }

  // Up to the first `count` tokens of the item.
  std::vector<int32_t> context(const WorkItem& item, size_t count) const {
    std::vector<int32_t> tokens;
    const int32_t end = item.context_count + static_cast<int32_t>(count);
    for (int32_t position = 0; position < end; ++position) {
      tokens.push_back(cells_[static_cast<size_t>(
          item.blocks[static_cast<size_t>(position / kBlockTokens)] * kBlockTokens +
          position % kBlockTokens)]);
    }
    return tokens;
  }

 private:
  int32_t& cell(BlockId block, int32_t slot) {
    return cells_[static_cast<size_t>(block * kBlockTokens + slot)];
  }
  std::vector<int32_t> cells_;
};

struct Expected {
  std::vector<int32_t> prompt;
  int32_t max_new_tokens = 0;
  uint64_t sample = 0;
  std::vector<int32_t> generated;
  bool cancelled = false;
};

// Runs a random trace of arrivals, cancels and lost batches to its end and checks every step.
class TraceRun {
 public:
  TraceRun(ServeSchedulerOptions options, uint64_t seed, bool priorities, bool drafts = false)
      : options_(options),
        priorities_(priorities),
        drafts_(drafts),
        scheduler_(options),
        engine_(options.pool.block_count),
        rng_(derive_key(seed, "trace")) {}

  int64_t accepted = 0;  // drafted tokens that came true

  void run(int request_count) {
    int steps = 0;
    while (request_count > 0 || !scheduler_.idle()) {
      ASSERT_LT(++steps, 20000) << "no progress";
      if (request_count > 0 && rng_.below(3) == 0) {
        arrive();
        --request_count;
      }
      if (rng_.below(40) == 0) cancel();
      step();
      scheduler_.check_invariants();
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(scheduler_.pool().live_count(), 0) << "blocks leaked";
    EXPECT_EQ(accepted > 0, drafts_);
    for (const auto& [id, request] : expected_) {
      if (request.cancelled) continue;
      EXPECT_TRUE(over_.contains(id)) << "request " << id << " never ended";
      std::vector<int32_t> tokens = request.prompt;
      for (int32_t i = 0; i < request.max_new_tokens; ++i) {
        tokens.push_back(ToyEngine::next_token(tokens, request.sample));
      }
      EXPECT_EQ(request.generated,
                std::vector<int32_t>(tokens.begin() + static_cast<int64_t>(request.prompt.size()),
                                     tokens.end()))
          << "request " << id;
    }
  }

 private:
  void arrive() {
    RequestSpec spec;
    spec.id = next_id_++;
    const size_t shared = rng_.below(3) * 5;  // common beginnings, so that the cache is used
    for (size_t i = 0; i < shared; ++i) spec.prompt.push_back(static_cast<int32_t>(i));
    for (size_t i = 1 + rng_.below(12); i > 0; --i) {
      spec.prompt.push_back(static_cast<int32_t>(rng_.below(50)));
    }
    spec.max_new_tokens = static_cast<int32_t>(1 + rng_.below(9));
    if (options_.policy != ServePolicy::kStatic && rng_.below(4) == 0) {
      spec.fork_count = static_cast<int32_t>(1 + rng_.below(2));
    }
    spec.tenant = rng_.below(3);
    if (priorities_) spec.priority = static_cast<int32_t>(rng_.below(3));
    expected_[spec.id] = {spec.prompt, spec.max_new_tokens, 0, {}, false};
    forks_[spec.id] = spec.fork_count;
    ASSERT_TRUE(scheduler_.arrive(std::move(spec)));
  }

  void cancel() {
    if (expected_.empty()) return;
    const RequestId id = static_cast<RequestId>(rng_.below(static_cast<uint64_t>(next_id_)));
    const auto found = expected_.find(id);
    if (found == expected_.end() || over_.contains(id)) return;
    found->second.cancelled = true;
    end(scheduler_.cancel(id));
  }

  // Some of it wrong, some of it for requests that are in flight, over, or have no token yet.
  void draft() {
    for (const auto& [id, request] : expected_) {
      if (rng_.below(3) == 0) continue;
      std::vector<int32_t> tokens = request.prompt;
      tokens.insert(tokens.end(), request.generated.begin(), request.generated.end());
      const size_t known = tokens.size();
      for (size_t left = rng_.below(8); left > 0; --left) {
        const bool wrong = rng_.below(5) == 0;
        tokens.push_back(wrong ? 7 : ToyEngine::next_token(tokens, request.sample));
      }
      scheduler_.draft(id, std::span(tokens).subspan(known));
    }
  }

  void step() {
    if (drafts_) draft();
    auto batch = scheduler_.next_batch();
    ASSERT_TRUE(batch || !flying_.empty() || scheduler_.idle()) << "nothing can ever run again";
    if (batch) {
      check(*batch);
      engine_.run(*batch);
      flying_.push_back(std::move(*batch));
    }
    const bool full = static_cast<int32_t>(flying_.size()) >= options_.batches_in_flight_max;
    if (flying_.empty() || (!full && rng_.below(2) == 0)) return;
    const Batch landed = std::move(flying_.front());
    flying_.erase(flying_.begin());
    if (rng_.below(20) == 0) {
      scheduler_.lose(landed.id);
      return;
    }
    finish(landed);
  }

  void check(const Batch& batch) {
    ASSERT_FALSE(batch.items.empty());
    ASSERT_LE(static_cast<int32_t>(batch.items.size()), options_.batch_requests_max);
    if (options_.policy == ServePolicy::kChunked) {
      ASSERT_LE(batch.token_count(), options_.batch_tokens_max);
    }
    int64_t sample_rows = 0;
    int64_t drafts = 0;
    for (const WorkItem& item : batch.items) {
      sample_rows += item.sample_rows();
      drafts += item.draft_count;
    }
    ASSERT_TRUE(drafts == 0 || sample_rows <= options_.sample_rows_max);
    ASSERT_TRUE(drafts == 0 || batch.token_count() <= options_.batch_tokens_max);
    std::set<RequestId> members;
    for (const WorkItem& item : batch.items) ASSERT_TRUE(members.insert(item.request).second);
    for (const Batch& other : flying_) {
      for (const WorkItem& item : other.items) ASSERT_FALSE(members.contains(item.request));
    }
  }

  void finish(const Batch& batch) {
    std::vector<SampledNext> sampled;
    for (const WorkItem& item : batch.items) {
      Expected& request = expected_.at(item.request);
      std::vector<int32_t> tokens = request.prompt;
      tokens.insert(tokens.end(), request.generated.begin(), request.generated.end());
      size_t count = item.tokens.size() - static_cast<size_t>(item.draft_count);
      std::vector<int32_t> context = engine_.context(item, count);
      ASSERT_TRUE(std::equal(context.begin(), context.end(), tokens.begin()))
          << "request " << item.request << " sees other tokens than its own";
      if (!item.samples) continue;
      SampledNext next{.request = item.request};
      next.token = ToyEngine::next_token(context, request.sample);
      if (request.generated.empty()) add_forks(item.request, context, next);
      std::vector<int32_t>& generated = expected_.at(item.request).generated;
      generated.push_back(next.token);
      for (; count < item.tokens.size() && item.tokens[count] == next.token; ++accepted) {
        context = engine_.context(item, ++count);
        next.token = ToyEngine::next_token(context, expected_.at(item.request).sample);
        generated.push_back(next.token);
        ++next.accepted;
      }
      sampled.push_back(std::move(next));
    }
    end(scheduler_.complete(batch.id, sampled));
  }

  void add_forks(RequestId parent, const std::vector<int32_t>& context, SampledNext& next) {
    for (int32_t i = 0; i < forks_[parent]; ++i) {
      Expected child = expected_.at(parent);
      child.cancelled = false;
      child.sample = static_cast<uint64_t>(i + 1);
      const int32_t token = ToyEngine::next_token(context, child.sample);
      child.generated = {token};
      next.forks.push_back({next_id_, token, false});
      expected_[next_id_++] = child;
    }
    forks_[parent] = 0;
  }

  void end(const std::vector<RequestId>& ids) { over_.insert(ids.begin(), ids.end()); }

  ServeSchedulerOptions options_;
  bool priorities_;
  bool drafts_;
  ServeScheduler scheduler_;
  ToyEngine engine_;
  Rng rng_;
  RequestId next_id_ = 0;
  std::map<RequestId, Expected> expected_;
  std::map<RequestId, int32_t> forks_;
  std::set<RequestId> over_;
  std::vector<Batch> flying_;
};

enum class Tenants { kAlike, kFairShare, kShortestFirst };
using TraceCase = std::tuple<ServePolicy, Admission, int32_t, Tenants>;

class ServeSchedulerTraces : public ::testing::TestWithParam<TraceCase> {};

TEST_P(ServeSchedulerTraces, EveryRequestGetsWhatItWouldGetAlone) {
  const auto [policy, admission, in_flight, tenants] = GetParam();
  for (uint64_t seed = 0; seed < 32; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ServeSchedulerOptions options =
        options_of(policy, admission, 24 + static_cast<int32_t>(seed % 8));
    options.batches_in_flight_max = in_flight;
    options.fair_share = tenants == Tenants::kFairShare;
    options.shortest_first = tenants == Tenants::kShortestFirst;
    TraceRun(options, seed, seed % 2 == 1).run(60);
    TraceRun(options, seed, seed % 2 == 1, /*drafts=*/true).run(60);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Policies, ServeSchedulerTraces,
    ::testing::Combine(
        ::testing::Values(ServePolicy::kOrca, ServePolicy::kChunked, ServePolicy::kStatic),
        ::testing::Values(Admission::kReserve, Admission::kOptimistic), ::testing::Values(1, 3),
        ::testing::Values(Tenants::kAlike, Tenants::kFairShare, Tenants::kShortestFirst)));

RequestSpec request_of(RequestId id, int32_t prompt, int32_t new_tokens) {
  RequestSpec spec;
  spec.id = id;
  for (int32_t i = 0; i < prompt; ++i) spec.prompt.push_back(static_cast<int32_t>(id * 100 + i));
  spec.max_new_tokens = new_tokens;
  return spec;
}

std::vector<SampledNext> sample_all(const Batch& batch) {
  std::vector<SampledNext> sampled;
  for (const WorkItem& item : batch.items) {
    if (item.samples) sampled.push_back({.request = item.request, .token = 7});
  }
  return sampled;
}

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

// One that is more urgent but does not fit waits for those inside, so those must go on.
TEST(ServeScheduler, ARequestAtTheDoorDoesNotStopThoseInside) {
  for (const auto policy : {ServePolicy::kOrca, ServePolicy::kChunked}) {
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
