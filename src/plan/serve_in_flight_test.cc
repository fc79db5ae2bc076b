// Several batches in flight: how next tokens are shared among them, and every order of few events.
#include <deque>
#include <map>
#include <set>

#include "plan/serve_scheduler_test_support.h"

namespace jige::plan {
namespace {

// Requests come and go at random under limits that hold nobody up; each batch is looked at.
class ShareRun {
 public:
  ShareRun(ServePolicy policy, int32_t batches, uint64_t seed)
      : batches_(batches), scheduler_(limits(policy, batches)), rng_(derive_key(seed, "share")) {}

  void run() {
    for (int left = 40; left > 0 || !scheduler_.idle();) {
      for (uint64_t count = rng_.below(4); left > 0 && count > 0; --count, --left) arrive();
      begin_all();
      if (::testing::Test::HasFatalFailure()) return;
      if (!flying_.empty()) land();
      scheduler_.check_invariants();
    }
    EXPECT_GT(full, 0);
  }

  int64_t full = 0;  // times when all batches were in flight

 private:
  static ServeSchedulerOptions limits(ServePolicy policy, int32_t batches) {
    return {.policy = policy,
            .batch_requests_max = 64,
            .batch_tokens_max = 512,
            .round_prompts = 64,
            .round_steps = 2,
            .batches_in_flight_max = batches,
            .pool = {.block_count = 400, .block_tokens = kBlockTokens}};
  }

  void arrive() {
    const auto tokens = static_cast<int32_t>(1 + rng_.below(12));
    ASSERT_TRUE(scheduler_.arrive(request_of(next_id_, 1 + tokens, tokens)));
    waiting_.insert(next_id_++);
  }

  void begin_all() {
    while (auto batch = scheduler_.next_batch()) {
      check(*batch);
      if (::testing::Test::HasFatalFailure()) return;
      flying_.push_back(std::move(*batch));
    }
    if (std::ssize(flying_) == batches_) {
      ++full;
      return;
    }
    EXPECT_TRUE(waiting_.empty()) << "there is room for a batch, and somebody waits";
    for (const auto& [id, passed] : passed_) EXPECT_TRUE(is_flying(id)) << id;
  }

  void check(const Batch& batch) {
    const auto due = std::ssize(passed_);
    int64_t next_tokens = 0;
    for (auto& [id, passed] : passed_) passed += !is_flying(id);
    for (const WorkItem& item : batch.items) {
      ASSERT_FALSE(is_flying(item.request)) << item.request << " is in two batches";
      waiting_.erase(item.request);
      if (!passed_.contains(item.request)) continue;
      ++next_tokens;
      passed_[item.request] = 0;
    }
    ASSERT_LE(next_tokens, (due + batches_ - 1) / batches_) << "more than its share of " << due;
    for (const auto& [id, passed] : passed_) ASSERT_LT(passed, batches_) << id << " is passed over";
  }

  void land() {
    const Batch batch = std::move(flying_.front());
    flying_.pop_front();
    for (const WorkItem& item : batch.items) {
      if (item.samples) passed_.emplace(item.request, 0);
    }
    for (const RequestId id : scheduler_.complete(batch.id, sample_all(batch))) passed_.erase(id);
  }

  bool is_flying(RequestId id) const {
    return std::ranges::any_of(flying_, [&](const Batch& batch) {
      return std::ranges::find(batch.items, id, &WorkItem::request) != batch.items.end();
    });
  }

  const int32_t batches_;
  ServeScheduler scheduler_;
  Rng rng_;
  RequestId next_id_ = 0;
  std::set<RequestId> waiting_;
  std::map<RequestId, int64_t> passed_;  // of those whose next token is due: batches without them
  std::deque<Batch> flying_;
};

TEST(ServeInFlight, BatchesShareNextTokensAndNobodyIsPassedOverForLong) {
  for (const ServePolicy policy : {ServePolicy::kChunked, ServePolicy::kOrca}) {
    for (int32_t batches = 1; batches <= 4; ++batches) {
      for (uint64_t seed = 0; seed < 25; ++seed) {
        SCOPED_TRACE(testing::Message() << policy_name(policy) << ", " << batches << " batches, "
                                        << "seed " << seed);
        ShareRun(policy, batches, seed).run();
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ServeInFlight, OfEightAnswersTwoBatchesHaveFourEach) {
  for (const ServePolicy policy : kServePolicies) {
    ServeScheduler scheduler({.policy = policy,
                              .batches_in_flight_max = 2,
                              .pool = {.block_count = 100, .block_tokens = kBlockTokens}});
    for (RequestId id = 0; id < 8; ++id) ASSERT_TRUE(scheduler.arrive(request_of(id, 3, 9)));
    const auto prompts = scheduler.next_batch();
    ASSERT_TRUE(prompts);
    EXPECT_EQ(prompts->items.size(), 8u);
    EXPECT_FALSE(scheduler.next_batch());
    scheduler.complete(prompts->id, sample_all(*prompts));
    std::set<RequestId> members;
    for (int i = 0; i < 2; ++i) {
      const auto batch = scheduler.next_batch();
      ASSERT_TRUE(batch) << policy_name(policy);
      EXPECT_EQ(batch->items.size(), 4u) << policy_name(policy);
      for (const WorkItem& item : batch->items) members.insert(item.request);
    }
    EXPECT_EQ(members.size(), 8u);
    EXPECT_FALSE(scheduler.next_batch());
  }
}

TEST(ServeInFlight, FewAnswersAreInOneBatch) {
  for (const auto& [answers, batches] : {std::pair{7, 1}, {8, 2}, {11, 2}, {12, 3}, {30, 3}}) {
    ServeScheduler scheduler({.batches_in_flight_max = 3,
                              .in_flight_requests_min = 4,
                              .pool = {.block_count = 200, .block_tokens = kBlockTokens}});
    for (RequestId id = 0; id < answers; ++id) {
      ASSERT_TRUE(scheduler.arrive(request_of(id, 3, 9)));
    }
    auto batch = scheduler.next_batch();
    scheduler.complete(batch->id, sample_all(*batch));
    int count = 0;
    size_t items = 0;
    for (; (batch = scheduler.next_batch()); ++count) items += batch->items.size();
    EXPECT_EQ(count, batches) << answers;
    EXPECT_EQ(items, static_cast<size_t>(answers));
  }
}

// One order of events; each of three requests must have the tokens that it has alone.
class OrderRun {
 public:
  enum Event { kArrive, kBegin, kLand, kLose, kCancel, kEventCount };

  explicit OrderRun(const ServeSchedulerOptions& options)
      : scheduler_(options), engine_(options.pool.block_count, options.state_count) {}

  // Whether there was anything to do.
  bool take(int event) {
    bool done = true;
    if (event == kArrive && (done = std::ssize(requests_) < 3)) arrive();
    if (event == kBegin) done = begin();
    if (event == kLand && (done = !flying_.empty())) land(/*lost=*/false);
    if (event == kLose && (done = !flying_.empty())) land(/*lost=*/true);
    if (event == kCancel) {
      const RequestId id = std::ssize(requests_) - 1;
      requests_.back().cancelled = !over_.contains(id);
      scheduler_.cancel(id);
    }
    scheduler_.check_invariants();
    return done;
  }

  void end() {
    for (int turns = 0; !scheduler_.idle(); ++turns) {
      ASSERT_LT(turns, 100) << "it never ends";
      begin();
      begin();
      if (!flying_.empty()) land(/*lost=*/false);
    }
    EXPECT_EQ(scheduler_.pool().live_count(), 0);
    for (size_t id = 0; id < requests_.size(); ++id) {
      const Expected& request = requests_[id];
      if (request.cancelled) continue;
      std::vector<int32_t> tokens = request.prompt;
      for (int32_t i = 0; i < request.max_new_tokens; ++i) {
        tokens.push_back(ToyEngine::next_token(tokens, 0));
      }
      tokens.erase(tokens.begin(), tokens.begin() + std::ssize(request.prompt));
      ASSERT_EQ(request.generated, tokens) << "request " << id;
    }
  }

 private:
  void arrive() {
    const auto id = static_cast<RequestId>(requests_.size());
    RequestSpec spec = request_of(0, 5, 2);  // all begin alike
    spec.id = id;
    requests_.push_back({.prompt = spec.prompt, .max_new_tokens = spec.max_new_tokens});
    ASSERT_TRUE(scheduler_.arrive(std::move(spec)));
  }

  bool begin() {
    auto batch = scheduler_.next_batch();
    if (!batch) return false;
    for (const WorkItem& item : batch->items) {
      for (const Batch& other : flying_) {
        EXPECT_EQ(std::ranges::find(other.items, item.request, &WorkItem::request),
                  other.items.end());
      }
    }
    engine_.copy(*batch);
    engine_.run(*batch);
    flying_.push_back(std::move(*batch));
    return true;
  }

  void land(bool lost) {
    const Batch batch = std::move(flying_.front());
    flying_.pop_front();
    if (lost) {
      engine_.spoil_states(batch);
      scheduler_.lose(batch.id);
      return;
    }
    std::vector<SampledNext> sampled;
    for (const WorkItem& item : batch.items) {
      if (!item.samples) continue;
      const int32_t token =
          ToyEngine::next_token(engine_.context(item, item.tokens.size()), /*sample=*/0);
      requests_[static_cast<size_t>(item.request)].generated.push_back(token);
      sampled.push_back({.request = item.request, .token = token});
    }
    for (const RequestId id : scheduler_.complete(batch.id, sampled)) over_.insert(id);
  }

  ServeScheduler scheduler_;
  ToyEngine engine_;
  std::vector<Expected> requests_;
  std::set<RequestId> over_;
  std::deque<Batch> flying_;
};

TEST(ServeInFlight, EveryOrderOfSixEventsGivesEverybodyItsTokens) {
  constexpr int kLength = 6;
  for (const Admission admission : {Admission::kReserve, Admission::kOptimistic}) {
    for (const int32_t states : {0, 2}) {
      int64_t orders = 1;
      for (int i = 0; i < kLength; ++i) orders *= OrderRun::kEventCount;
      for (int64_t order = 0; order < orders; ++order) {
        OrderRun run({.admission = admission,
                      .batch_tokens_max = 6,
                      .batches_in_flight_max = 2,
                      .state_count = states,
                      .pool = {.block_count = 5, .block_tokens = kBlockTokens}});
        run.take(OrderRun::kArrive);
        // Where there is nothing to do, the order is that of the other events: it is run with them
        // alone.
        int64_t rest = order;
        bool all_done = true;
        for (int i = 0; i < kLength && all_done; ++i, rest /= OrderRun::kEventCount) {
          all_done = run.take(static_cast<int>(rest % OrderRun::kEventCount));
        }
        if (!all_done && rest > 0) continue;
        run.end();
        ASSERT_FALSE(::testing::Test::HasFailure()) << "order " << order;
      }
    }
  }
}

}  // namespace
}  // namespace jige::plan
