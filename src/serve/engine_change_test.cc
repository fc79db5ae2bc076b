// Plans that change while an engine answers: every answer keeps its bits.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "serve/engine_test_support.h"
#include "serve/event_replay.h"

namespace jige::serve {
namespace {

using plan::ServePolicy;
using plan::ServeSettings;
using testing::alone;
using testing::expect_clean;
using testing::Gate;
using testing::KeepingSink;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::TempFile;
using testing::value_of;

const model::InferenceOptions kChangeModel = {.kv_block_count = 80, .batch_tokens_max = 64};
constexpr int32_t kAtOnceMax = 8;

plan::PlannedLoad some_load() {
  return {.prompt_tokens = std::vector<double>(plan::kLengthQuantiles, 20),
          .answer_tokens = std::vector<double>(plan::kLengthQuantiles, 10)};
}

EngineOptions change_options() {
  EngineOptions options;
  options.batch_requests_max = 3;
  options.replan_requests_max = kAtOnceMax;
  options.planned_load = some_load();
  options.drift = {.window = 8, .step = 1};
  return options;
}

ServeSettings random_settings(Rng& rng) {
  return {.policy = plan::kServePolicies[rng.below(4)],
          .batch_requests_max = static_cast<int32_t>(1 + rng.below(kAtOnceMax)),
          .batch_tokens_max = static_cast<int32_t>(16 + rng.below(49)),
          .round_prompts = static_cast<int32_t>(1 + rng.below(4)),
          .round_steps = static_cast<int32_t>(1 + rng.below(6))};
}

struct Requests {
  std::vector<EngineRequest> requests;
  std::vector<Outcome> expected;
};

Requests drawn_requests(Loaded& loaded, uint64_t seed, int count) {
  Rng rng(derive_key(seed, "changes"));
  Requests all;
  for (int i = 0; i < count; ++i) {
    all.requests.push_back(random_request(rng));
    all.expected.push_back(alone(loaded, all.requests.back()));
  }
  return all;
}

// Another plan before every second iteration, from the engine's own thread: it counts in the next
// turn, so that the iterations are always the same.
void run_with_changes(Loaded& loaded, const Requests& all, uint64_t seed, EngineOptions options) {
  Gate gate;
  Rng rng(seed);
  Engine* changed = nullptr;
  const auto held = gate.hook();
  options.faults.before_forward = [&](int64_t iteration) {
    const Status passed = held(iteration);
    if (iteration % 2 == 0) {
      EXPECT_TRUE(changed->change_plan(random_settings(rng), some_load()));
    }
    return passed;
  };
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  changed = engine.get();
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const EngineRequest& request : all.requests) {
    sinks.push_back(sink_for(request));
    value_of(engine->submit(request, sinks.back()));
    if (sinks.size() == 1) gate.wait_until_held();
  }
  gate.open();
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_TRUE(sinks[i]->wait()) << "request " << i << " never ended";
    EXPECT_FALSE(sinks[i]->error);
    EXPECT_EQ(sinks[i]->outcome, all.expected[i]) << "request " << i << ", seed " << seed;
  }
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
  EXPECT_GT(engine->status().drift->plans, 5);
}

TEST(EngineChange, AnswersKeepTheirBitsWhateverPlanComesInTheMiddle) {
  Loaded loaded("llama3", kChangeModel);
  const Requests all = drawn_requests(loaded, 1, 16);
  for (uint64_t seed = 1; seed <= 4; ++seed) run_with_changes(loaded, all, seed, change_options());
}

TEST(EngineChange, AnswersKeepTheirBitsWhereMemoryIsShortAndWordsAreGuessed) {
  Loaded loaded("mistral", {.kv_block_count = 14, .batch_tokens_max = 64, .logit_rows_max = 24});
  const Requests all = drawn_requests(loaded, 2, 16);
  EngineOptions options = change_options();
  options.admission = plan::Admission::kOptimistic;
  options.drafts.tokens_max = 4;
  for (uint64_t seed = 1; seed <= 4; ++seed) run_with_changes(loaded, all, seed, options);
}

// The log has the changes: a replay decides the same.
TEST(EngineChange, AnEventLogReplays) {
  Loaded loaded("llama3", kChangeModel);
  const Requests all = drawn_requests(loaded, 3, 12);
  TempFile file;
  EngineOptions options = change_options();
  options.event_log_path = file.path();
  run_with_changes(loaded, all, 5, options);
  EXPECT_EQ(value_of(replay_event_log(file.path())).live_blocks, 0);
  std::string text = file.text();
  const size_t at = text.find("\"event\":\"change\"");
  ASSERT_NE(at, std::string::npos);
  const size_t end = text.find('\n', at);
  const size_t begin = text.rfind('\n', at) + 1;
  for (const char* bad : {R"({"event":"change"})", R"({"event":"change","settings":{}})",
                          R"({"event":"change","settings":{"policy":"orca","max_batch":0}})"}) {
    file.write(text.substr(0, begin) + bad + text.substr(end));
    EXPECT_FALSE(replay_event_log(file.path())) << bad;
  }
  // Without its changes the scheduler decides otherwise.
  for (size_t line = 0; (line = text.find("{\"event\":\"change\"")) != std::string::npos;) {
    text.erase(line, text.find('\n', line) + 1 - line);
  }
  file.write(text);
  const auto without = replay_event_log(file.path());
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, Code::kInternal);
}

// Threads that submit, read and change at once.
TEST(EngineChange, FromAnyThread) {
  Loaded loaded("llama2", kChangeModel);
  const Requests all = drawn_requests(loaded, 4, 24);
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, change_options()));
  std::atomic<bool> done{false};
  std::thread changes([&] {
    Rng rng(9);
    while (!done) {
      EXPECT_TRUE(engine->change_plan(random_settings(rng), some_load()));
      const EngineStatus status = engine->status();
      EXPECT_LE(status.settings.batch_requests_max, kAtOnceMax);
      EXPECT_TRUE(!status.recent_load || status.recent_load->ended.size() <= 8);
      std::this_thread::yield();
    }
  });
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const EngineRequest& request : all.requests) {
    sinks.push_back(sink_for(request));
    value_of(engine->submit(request, sinks.back()));
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_TRUE(sinks[i]->wait());
    EXPECT_EQ(sinks[i]->outcome, all.expected[i]) << i;
  }
  done = true;
  changes.join();
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

TEST(EngineChange, IsInForceWhereNobodyIsThereAndDriftIsOfTheNewPlan) {
  Loaded loaded("llama2", kChangeModel);
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, change_options()));
  EXPECT_EQ(engine->settings().batch_requests_max, 3);
  const ServeSettings rounds{.policy = ServePolicy::kRounds,
                             .batch_requests_max = 8,
                             .round_prompts = 2,
                             .round_steps = 5};
  ASSERT_TRUE(engine->change_plan(rounds, some_load()));
  const StopWatch watch;
  while (engine->settings().policy != ServePolicy::kRounds && watch.seconds() < 20) {
    std::this_thread::yield();
  }
  EXPECT_EQ(plan::settings_json(engine->settings()), plan::settings_json(rounds));
  EXPECT_EQ(engine->settings().batch_tokens_max, 64) << "of guesses: what a forward takes";
  EXPECT_EQ(engine->status().drift->plans, 2);
}

TEST(EngineChange, RefusesWhatThereIsNoRoomFor) {
  Loaded loaded("llama2", kChangeModel);
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, change_options()));
  const auto code_of = [](Engine& of, const ServeSettings& settings) {
    const Status status = of.change_plan(settings, some_load());
    return status ? Code::kInternal : status.error().code;
  };
  EXPECT_EQ(code_of(*engine, {.batch_requests_max = 9, .batch_tokens_max = 64}),
            Code::kInvalidArgument);
  EXPECT_EQ(code_of(*engine, {.batch_requests_max = 8, .batch_tokens_max = 65}),
            Code::kInvalidArgument);
  EXPECT_EQ(code_of(*engine, {.batch_requests_max = 8, .batch_tokens_max = 15}),
            Code::kInvalidArgument);
  EXPECT_EQ(code_of(*engine, {.policy = ServePolicy::kRounds, .round_steps = 0}),
            Code::kInvalidArgument);
  const auto without = value_of(Engine::create(*loaded.model, loaded.tokenizer, {}));
  EXPECT_EQ(code_of(*without, {.batch_requests_max = 2, .batch_tokens_max = 64}),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace jige::serve
