#include "serve/recorded_scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "serve/event_replay.h"
#include "serve/request_check.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::damaged_log;
using testing::TempFile;
using testing::value_of;

constexpr plan::RequestId kIdsApart = 3;  // between requests that arrive; their forks come between

struct RecordedRun {
  int64_t batches = 0;
  int64_t preemptions = 0;
  int64_t state_copies = 0;
  int64_t spares = 0;  // states that were kept before drafts
};

// Random requests with forks, some of them cancelled, and lost batches, to the end.
RecordedRun record(const plan::ServeSchedulerOptions& options, const TempFile& file,
                   int request_count = 30) {
  RecordedScheduler scheduler(options, value_of(EventLog::create(file.path())));
  RecordedRun run;
  Rng rng(derive_key(1, "recorded"));
  Rng drafts(derive_key(1, "recorded drafts"));
  std::map<plan::RequestId, int32_t> forks;  // still to be made
  plan::RequestId next_id = 0;
  const auto sample = [&forks](const plan::WorkItem& item) {
    plan::SampledNext next{.request = item.request, .token = 7};
    for (int32_t i = std::exchange(forks[item.request], 0); i > 0; --i) {
      next.forks.push_back({item.request + i, 8, false});
    }
    return next;
  };
  const plan::RequestId ids_end = request_count * kIdsApart;
  while (next_id < ids_end || !scheduler.state().idle()) {
    if (next_id < ids_end && rng.below(2) == 0) {
      plan::RequestSpec spec;
      spec.id = next_id;
      spec.prompt.resize(1 + rng.below(6), 5);
      const auto prompt_count = static_cast<int32_t>(spec.prompt.size());
      if (options.state_count == 0 && next_id % 2 == 0 && prompt_count > 4) {
        spec.whole_runs = {{1, 2}, {2, prompt_count}};
      }
      spec.max_new_tokens = static_cast<int32_t>(1 + rng.below(14));
      spec.fork_count = forks[next_id] = static_cast<int32_t>(rng.below(kIdsApart));
      EXPECT_TRUE(scheduler.arrive(std::move(spec)));
      next_id += kIdsApart;
    }
    const auto any = static_cast<uint64_t>(ids_end);
    if (rng.below(10) == 0) scheduler.cancel(static_cast<plan::RequestId>(rng.below(any)));
    if (rng.below(40) == 0) scheduler.lose_caches();
    for (plan::RequestId id = 0; id < next_id; id += kIdsApart) {
      if (drafts.below(8) > 0) continue;
      scheduler.draft(id, std::vector<int32_t>{1, 2, 3}, drafts.below(6) == 0 ? 2 : 0);
    }
    const std::optional<plan::Batch> batch = scheduler.next_batch();
    if (!batch) continue;
    ++run.batches;
    run.preemptions += std::ssize(batch->preempted);
    run.state_copies += std::ssize(batch->state_copies);
    for (const plan::WorkItem& item : batch->items) run.spares += item.spare != plan::kNoState;
    if (rng.below(10) == 0) {
      scheduler.lose(batch->id);
      continue;
    }
    std::vector<plan::SampledNext> sampled;
    for (const plan::WorkItem& item : batch->items) {
      if (item.samples) sampled.push_back(sample(item));
    }
    scheduler.complete(batch->id, sampled);
  }
  return run;
}

plan::ServeSchedulerOptions recorded_options(int32_t state_count, int32_t kept_state_count = 0) {
  return {.admission = plan::Admission::kOptimistic,
          .batch_requests_max = 6,
          .batch_tokens_max = 16,
          .state_count = state_count,
          .kept_state_count = kept_state_count,
          .kept_margin = 1,
          .pool = {.block_count = 15, .block_tokens = 4}};
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

TEST(RecordedScheduler, ALogWithStatesReplaysToTheSameDecisions) {
  TempFile file;
  const RecordedRun run = record(recorded_options(6), file);
  EXPECT_GT(run.state_copies, 10);
  EXPECT_GT(run.preemptions, 0);
  const ReplayCounts counts = value_of(replay_event_log(file.path()));
  EXPECT_EQ(counts.requests, 30);
  EXPECT_EQ(counts.batches, run.batches);
  EXPECT_EQ(counts.preemptions, run.preemptions);
  EXPECT_EQ(counts.live_blocks, 0);
  EXPECT_GT(run.spares, 5);
  const std::string text = file.text();
  const std::string certain = "\"certain\":2";
  for (const std::string bad : {"4", "-1"}) {
    file.write(replaced(text, certain, "\"certain\":" + bad));
    EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kCorrupt) << bad;
  }
  const std::string none_came_true = ",[],0]";  // of a request's drafts
  for (const std::string bad : {"9", "-1"}) {
    file.write(replaced(text, none_came_true, ",[]," + bad + "]"));
    EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kCorrupt) << bad;
  }
}

TEST(RecordedScheduler, ALogWithKeptStatesReplaysToTheSameDecisions) {
  TempFile file;
  const RecordedRun run = record(recorded_options(6, 2), file);
  EXPECT_EQ(value_of(replay_event_log(file.path())).batches, run.batches);
  const std::string text = file.text();
  const std::string kept = "\"kept_state_count\":2";
  const std::string margin = "\"kept_margin\":1";
  file.write(replaced(text, margin, "\"kept_margin\":3"));
  EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kInternal);
  file.write(replaced(text, kept + ",", ""));
  EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kInternal);
  for (const std::string bad : {"0", "-1", "5000000000"}) {
    file.write(replaced(text, kept, "\"kept_state_count\":" + bad));
    EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kCorrupt) << bad;
  }
  file.write(replaced(text, margin, "\"kept_margin\":-1"));
  EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kCorrupt);
}

TEST(RecordedScheduler, ALogOfWholePromptsReplaysToTheSameDecisions) {
  TempFile file;
  plan::ServeSchedulerOptions options = recorded_options(0);
  options.whole_prompt_tokens = 60;
  const RecordedRun run = record(options, file);
  EXPECT_EQ(value_of(replay_event_log(file.path())).batches, run.batches);
  const std::string text = file.text();
  const std::string field = "\"whole_prompt_tokens\":60";
  file.write(replaced(text, "," + field, ""));
  EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kInternal);
  file.write(replaced(text, field, "\"whole_prompt_tokens\":0"));
  EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kCorrupt);
}

TEST(RecordedScheduler, ALogWithRunsThatAreNotCutReplaysToTheSameDecisions) {
  TempFile file;
  plan::ServeSchedulerOptions options = recorded_options(0);
  options.batch_tokens_max = 3;
  const RecordedRun run = record(options, file);
  EXPECT_EQ(value_of(replay_event_log(file.path())).batches, run.batches);
  const std::string text = file.text();
  file.write(replaced(text, "\"whole_runs\":[[1,2],[2,", "\"whole_runs\":[[1,2],[3,"));
  EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kInternal);
  for (const char* bad : {"[[1,1],[2,", "[[-1,2],[2,", "[[1,2,3],[2,", "[7,[2,", "[[1,2],[1,",
                          "[[1,90],[2,", "[[1,2],[99,"}) {
    file.write(replaced(text, "\"whole_runs\":[[1,2],[2,", std::string("\"whole_runs\":") + bad));
    EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kCorrupt) << bad;
  }
}

TEST(RecordedScheduler, ALogOfRoundsReplaysToTheSameDecisions) {
  TempFile file;
  plan::ServeSchedulerOptions options = recorded_options(0);
  options.policy = plan::ServePolicy::kRounds;
  options.round_prompts = 2;
  options.round_steps = 3;
  const RecordedRun run = record(options, file);
  EXPECT_EQ(value_of(replay_event_log(file.path())).batches, run.batches);
  const std::string text = file.text();
  for (const std::string field : {"\"round_prompts\":2", "\"round_steps\":3"}) {
    const std::string name = field.substr(0, field.size() - 1);
    file.write(replaced(text, field, name + "1"));
    EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kInternal) << field;
    for (const char* bad : {"0", "-1", "5000000000"}) {
      file.write(replaced(text, field, name + bad));
      EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kCorrupt) << field << bad;
    }
    file.write(replaced(text, "," + field, ""));
    EXPECT_FALSE(replay_event_log(file.path())) << field;
  }
}

TEST(RecordedScheduler, AReplayNoticesOtherStates) {
  TempFile file;
  record(recorded_options(6), file);
  const std::string text = file.text();
  file.write(replaced(text, "\"state_count\":6", "\"state_count\":5"));
  EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kInternal);
  file.write(replaced(text, ",\"state_count\":6", ""));
  EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kInternal);
  for (const std::string bad : {"0", "-1", "5000000000"}) {
    file.write(replaced(text, "\"state_count\":6", "\"state_count\":" + bad));
    EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kCorrupt) << bad;
  }
}

// Whatever a log holds, replaying it ends with a result or an error.
TEST(RecordedScheduler, AReplaySurvivesDamagedLogsWithStates) {
  TempFile file;
  for (const int32_t kept : {0, 2}) {
    record(recorded_options(6, kept), file, 12);
    const std::string text = file.text();
    Rng rng(derive_key(1, "damaged states"));
    int refused = 0;
    for (uint64_t i = 0; i < fuzz_rounds(60); ++i) {
      file.write(damaged_log(text, rng));
      refused += !replay_event_log(file.path());
    }
    EXPECT_GT(refused, 24);
  }
}

// What was recorded before there were states.
constexpr char kOldLog[] =
    R"({"event":"start","policy":"chunked","optimistic":true,"batch_requests_max":6)"
    R"(,"batch_tokens_max":16,"sample_rows_max":64,"batches_in_flight_max":1)"
    R"(,"preemptions_max":3,"fair_share":false,"shortest_first":false,"block_count":15)"
    R"(,"block_tokens":4,"prefix_cache":true})"
    "\n"
    R"({"event":"arrive","id":1,"prompt":[1,2,3,4,5],"new_tokens":3,"forks":1)"
    R"(,"priority":0,"tenant":0,"salt":0,"cached_max":2147483647,"adapter":-1})"
    "\n"
    R"({"event":"batch","id":1,"items":[[1,0,5]],"copies":0,"preempted":[])"
    R"(,"digest":"24bdc6e21fbf8cd07663a3ce03131e1f"})"
    "\n"
    R"({"event":"complete","batch":1,"sampled":[[1,7,false,[[2,8,false]],0]],"over":[]})"
    "\n"
    R"({"event":"draft","id":2,"tokens":[9]})"
    "\n"
    R"({"event":"batch","id":2,"items":[[1,5,1],[2,5,2]],"copies":1,"preempted":[])"
    R"(,"digest":"3550f6ea016c3a31633c3ae0bb8dc305"})"
    "\n"
    R"({"event":"lose","batch":2})"
    "\n"
    R"({"event":"cancel","id":1,"over":[]})"
    "\n"
    R"({"event":"batch","id":3,"items":[[2,5,2]],"copies":0,"preempted":[])"
    R"(,"digest":"8e5e4fea74edec1e2ecb339a79cef829"})"
    "\n";

TEST(RecordedScheduler, WithoutStatesALogIsWhatItWasBeforeThereWereAny) {
  TempFile file;
  {
    RecordedScheduler scheduler(recorded_options(0), value_of(EventLog::create(file.path())));
    plan::RequestSpec spec{.id = 1, .prompt = {1, 2, 3, 4, 5}, .max_new_tokens = 3};
    spec.fork_count = 1;
    EXPECT_TRUE(scheduler.arrive(spec));
    auto batch = scheduler.next_batch();
    std::vector<plan::SampledNext> sampled = {{.request = 1, .token = 7}};
    sampled[0].forks = {{2, 8, false}};
    scheduler.complete(batch->id, sampled);
    scheduler.draft(2, std::vector<int32_t>{9});
    batch = scheduler.next_batch();
    scheduler.lose(batch->id);
    scheduler.cancel(1);
    scheduler.next_batch();
  }
  EXPECT_EQ(file.text(), kOldLog);
  EXPECT_EQ(value_of(replay_event_log(file.path())).batches, 3);
}

TEST(RequestCheck, ChoicesAreAsManyAsStatesAtMost) {
  RequestBounds bounds{.context_max = 64,
                       .model_context_max = 64,
                       .vocab_size = 10,
                       .kv_block_count = 64,
                       .state_count = 2,
                       .choices_max = 8};
  EngineRequest request;
  request.prompt = {1, 2};
  request.tokens_max = 4;
  request.choice_count = 2;
  EXPECT_FALSE(check_request(request, bounds));
  request.choice_count = 3;
  const auto refusal = check_request(request, bounds);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->field, RequestField::kChoiceCount);
  EXPECT_EQ(refusal->message,
            "3 choices need a recurrent state each and the server has 2; ask for fewer choices");
  bounds.state_count = 0;
  EXPECT_FALSE(check_request(request, bounds));
}

}  // namespace
}  // namespace jige::serve
