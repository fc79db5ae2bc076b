// Runs of tokens that see one another: no batch and no forward cuts them.
#include "plan/token_runs.h"

#include <gtest/gtest.h>

#include "base/test_fuzz_rounds.h"
#include "plan/forward_cut.h"
#include "plan/serve_scheduler_test_support.h"

namespace jige::plan {
namespace {

TEST(TokenRuns, AreNotCut) {
  const TokenRun runs[] = {{4, 10}, {10, 12}, {20, 21}};
  EXPECT_EQ(uncut_count(runs, 0, 4), 4);
  EXPECT_EQ(uncut_count(runs, 0, 9), 4) << "up to the run";
  EXPECT_EQ(uncut_count(runs, 0, 10), 10);
  EXPECT_EQ(uncut_count(runs, 0, 11), 10) << "between two runs";
  EXPECT_EQ(uncut_count(runs, 4, 5), 0);
  EXPECT_EQ(uncut_count(runs, 4, 6), 6);
  EXPECT_EQ(uncut_count(runs, 7, 2), 0) << "the rest of one";
  EXPECT_EQ(uncut_count(runs, 7, 3), 3);
  EXPECT_EQ(uncut_count(runs, 15, 5), 5);
  EXPECT_EQ(uncut_count(runs, 15, 100), 100);
  EXPECT_EQ(uncut_count({}, 3, 7), 7);
  EXPECT_EQ(uncut_count_at_least(runs, 0, 9), 4);
  EXPECT_EQ(uncut_count_at_least(runs, 4, 5), 6);
  EXPECT_EQ(uncut_count_at_least(runs, 7, 2), 3);
  EXPECT_EQ(uncut_count_at_least(runs, 10, 1), 2);
}

// Whole runs, larger than the budget and smaller, under every policy, with requests that are
// preempted, forked, lost and found in the prefix cache, also up to the middle of a run.
TEST(TokenRuns, NoBatchHasAPartOfOne) {
  int64_t whole = 0, rests = 0, passed = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(12); ++seed) {
    for (const ServePolicy policy : kServePolicies) {
      for (const Admission admission : {Admission::kReserve, Admission::kOptimistic}) {
        SCOPED_TRACE(fmt::format("seed {}, {}", seed, policy_name(policy)));
        ServeSchedulerOptions options = options_of(policy, admission, 60);
        if (seed % 3 == 2) options.batches_in_flight_max = 2;
        TraceRun run(options, seed, /*priorities=*/seed % 2 == 1, /*drafts=*/true);
        run.run_tokens_max = 18;
        run.run(40);
        if (::testing::Test::HasFatalFailure()) return;
        whole += run.whole_runs;
        rests += run.rests_of_runs;
        if (policy == ServePolicy::kChunked) passed += run.budgets_passed;
      }
    }
  }
  EXPECT_GT(whole, 500);
  EXPECT_GT(rests, 50);
  EXPECT_GT(passed, 50);
}

ServeSchedulerOptions chunked(int32_t budget) {
  ServeSchedulerOptions options = options_of(ServePolicy::kChunked, Admission::kReserve, 100);
  options.batch_tokens_max = budget;
  return options;
}

RequestSpec with_run(RequestId id, size_t prompt, TokenRun run) {
  RequestSpec spec{.id = id, .prompt = std::vector<int32_t>(prompt, static_cast<int32_t>(id))};
  spec.max_new_tokens = 4;
  if (run.end > 0) spec.whole_runs = {run};
  return spec;
}

// Items of the next batch as request and tokens; all sample 5.
std::vector<std::pair<RequestId, size_t>> step_of(ServeScheduler& scheduler) {
  const auto batch = scheduler.next_batch();
  std::vector<std::pair<RequestId, size_t>> items;
  std::vector<SampledNext> sampled;
  for (const WorkItem& item : batch.value_or(Batch()).items) {
    items.emplace_back(item.request, item.tokens.size());
    if (item.samples) sampled.push_back({.request = item.request, .token = 5});
  }
  if (batch) scheduler.complete(batch->id, sampled);
  return items;
}

using Items = std::vector<std::pair<RequestId, size_t>>;

TEST(TokenRuns, TheFirstPieceOfABatchPassesTheBudgetAndOthersWait) {
  ServeScheduler scheduler(chunked(8));
  ASSERT_TRUE(scheduler.arrive(with_run(1, 30, {5, 25})));
  ASSERT_TRUE(scheduler.arrive(with_run(2, 12, {2, 9})));
  EXPECT_EQ(step_of(scheduler), (Items{{1, 5}, {2, 2}})) << "up to the runs";
  EXPECT_EQ(step_of(scheduler), (Items{{1, 20}}));
  // The second's run would pass what is left; then it comes first.
  EXPECT_EQ(step_of(scheduler), (Items{{1, 5}}));
  EXPECT_EQ(step_of(scheduler), (Items{{1, 1}, {2, 7}}));
  EXPECT_EQ(step_of(scheduler), (Items{{1, 1}, {2, 3}}));
}

// A run is in a forward of its own rather than cut.
TEST(TokenRuns, NoForwardHasAPartOfOne) {
  WorkItem item;
  item.context_count = 100;
  item.tokens.resize(30);
  item.whole_runs = {{90, 103}, {110, 118}, {118, 121}};  // the first was begun before
  const auto cut = [&](int64_t rows_max, int32_t before) {
    Batch batch;
    batch.items.push_back({.tokens = std::vector<int32_t>(static_cast<size_t>(before))});
    batch.items.push_back(item);
    std::vector<std::vector<int32_t>> forwards(1);
    std::vector<size_t> order;
    EXPECT_TRUE(cut_into_forwards(
        batch, {.rows_max = rows_max}, order,
        [&](const ForwardPart& part) -> Status {
          forwards.back().push_back(part.count);
          return {};
        },
        [&]() -> Status {
          forwards.emplace_back();
          return {};
        }));
    forwards.pop_back();
    return forwards;
  };
  using Cuts = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(cut(64, 1), (Cuts{{1, 30}}));
  EXPECT_EQ(cut(12, 1), (Cuts{{1, 10}, {12}, {8}}));
  EXPECT_EQ(cut(12, 10), (Cuts{{10}, {10}, {12}, {8}})) << "two rows are not three";
  EXPECT_EQ(cut(5, 0), (Cuts{{5}, {5}, {8}, {5}, {5}, {2}})) << "more than the limit";
}

}  // namespace
}  // namespace jige::plan
