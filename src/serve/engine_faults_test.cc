// Faults injected into the engine, and its event log.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

#include "base/test_fuzz_rounds.h"
#include "serve/engine_test_support.h"
#include "serve/event_replay.h"

namespace jige::serve {
namespace {

using plan::Admission;
using plan::ServePolicy;
using testing::alone;
using testing::damaged_log;
using testing::expect_clean;
using testing::Gate;
using testing::KeepingSink;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::TempFile;
using testing::value_of;

const model::InferenceOptions kFaultsModel = {.kv_block_count = 60, .batch_tokens_max = 64};

struct Scene {
  std::vector<EngineRequest> requests;
  std::vector<Outcome> expected;
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  std::vector<RequestId> ids;
};

Scene random_scene(Loaded& loaded, uint64_t seed, int count) {
  Rng rng(derive_key(seed, "faults"));
  Scene run;
  for (int i = 0; i < count; ++i) {
    run.requests.push_back(random_request(rng));
    run.expected.push_back(alone(loaded, run.requests.back()));
    run.sinks.push_back(sink_for(run.requests.back()));
  }
  return run;
}

// The first begins alone, the others come while it is held: so the batches are always the same.
void submit_all(Engine& engine, Scene& run, Gate& gate) {
  for (size_t i = 0; i < run.requests.size(); ++i) {
    run.ids.push_back(value_of(engine.submit(run.requests[i], run.sinks[i])));
    if (i == 0) gate.wait_until_held();
  }
}

TEST(EngineFaults, SpoiledLogitsFailTheirRequestAlone) {
  Loaded loaded("llama3", kFaultsModel);
  for (const ServePolicy policy : {ServePolicy::kChunked, ServePolicy::kStatic}) {
    Scene run = random_scene(loaded, 1, 10);
    run.requests[3].choice_count = run.requests[6].choice_count = 3;
    run.requests[3].tokens_max = run.requests[6].tokens_max = 20;
    run.requests[3].stop_strings = run.requests[6].stop_strings = {};
    run.requests[3].ignore_eos = run.requests[6].ignore_eos = true;
    run.sinks[3] = sink_for(run.requests[3]);
    run.sinks[6] = sink_for(run.requests[6]);
    Gate gate;
    EngineOptions options{.policy = policy};
    options.faults.before_forward = gate.hook();
    int drawn = 0;
    // Request 4 (index 3) with its second choice's first token, request index 6 in the middle of
    // its third choice. Ids count choices.
    const auto engine_ids = std::make_shared<std::vector<RequestId>>();
    options.faults.on_logits = [&, engine_ids](RequestId id, int32_t choice,
                                               std::span<float> logits) {
      if (id == engine_ids->at(3) && choice == 1) logits[5] = std::nanf("");
      if (id == engine_ids->at(6) && choice == 2 && ++drawn == 7) {
        logits[0] = std::numeric_limits<float>::infinity();
      }
    };
    const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
    submit_all(*engine, run, gate);
    *engine_ids = run.ids;
    gate.open();
    for (size_t i = 0; i < run.sinks.size(); ++i) {
      ASSERT_TRUE(run.sinks[i]->wait()) << i;
      if (i == 3 || i == 6) {
        ASSERT_TRUE(run.sinks[i]->error) << i;
        EXPECT_EQ(run.sinks[i]->error->code, Code::kInternal);
        EXPECT_FALSE(run.sinks[i]->report);
      } else {
        EXPECT_EQ(run.sinks[i]->outcome, run.expected[i]) << i;
      }
    }
    EXPECT_EQ(run.sinks[3]->outcome[0].tokens.size(), 1u);
    EXPECT_EQ(run.sinks[3]->outcome[1].tokens.size(), 0u);
    EXPECT_EQ(run.sinks[6]->outcome[2].tokens.size(), 6u);
    EXPECT_TRUE(engine->drain(20));
    EXPECT_EQ(engine->status().counters.requests_failed, 2);
    expect_clean(*engine);
  }
}

TEST(EngineFaults, ForbiddingEveryTokenIsTheRequestsOwnError) {
  Loaded loaded("llama2", kFaultsModel);
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer));
  EngineRequest request{.prompt = {5, 6, 7}};
  for (int32_t id = 0; id < 96; ++id) request.sampling.logit_bias.push_back({id, -INFINITY});
  const auto sink = sink_for(request);
  value_of(engine->submit(request, sink));
  ASSERT_TRUE(sink->wait());
  ASSERT_TRUE(sink->error);
  EXPECT_EQ(sink->error->code, Code::kInvalidArgument);
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

// A forward that fails takes its batch with it; who was not in it, and who comes later, goes on.
TEST(EngineFaults, AFailedForwardFailsItsBatchAlone) {
  Loaded loaded("llama3", kFaultsModel);
  Scene run = random_scene(loaded, 2, 9);
  Gate gate;
  EngineOptions options{.batch_requests_max = 3};
  options.faults.before_forward = [hook = gate.hook()](int64_t iteration) -> Status {
    JIGE_DO(hook(iteration));
    if (iteration == 4) return fail(Code::kUnavailable, "the device is gone for a moment");
    return {};
  };
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  submit_all(*engine, run, gate);
  gate.open();
  int failed = 0;
  for (size_t i = 0; i < run.sinks.size(); ++i) {
    ASSERT_TRUE(run.sinks[i]->wait());
    if (run.sinks[i]->error) {
      EXPECT_EQ(run.sinks[i]->error->code, Code::kUnavailable);
      ++failed;
    } else {
      EXPECT_EQ(run.sinks[i]->outcome, run.expected[i]);
    }
  }
  EXPECT_GT(failed, 0);
  EXPECT_LE(failed, 3);
  EXPECT_TRUE(engine->drain(20));
  EXPECT_EQ(engine->status().counters.iterations_lost, 1);
  EXPECT_EQ(engine->status().counters.requests_failed, failed);
  expect_clean(*engine);
}

TEST(EngineFaults, AnEngineWhoseIterationsAllFailIsUnhealthyUntilOneSucceeds) {
  Loaded loaded("llama2", kFaultsModel);
  EngineOptions options;
  options.faults.before_forward = [](int64_t iteration) -> Status {
    if (iteration <= 3) return fail(Code::kIo, "no device");
    return {};
  };
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  for (int i = 1; i <= 4; ++i) {
    const EngineRequest request{.prompt = {5, 6, 7}, .tokens_max = 1};
    const auto sink = sink_for(request);
    value_of(engine->submit(request, sink));
    ASSERT_TRUE(sink->wait());
    while (!engine->status(true).requests.empty()) std::this_thread::yield();
    EXPECT_EQ(sink->error.has_value(), i <= 3);
    EXPECT_EQ(engine->status().stalled, i == 3);
  }
}

// What a request with bad logits left in the cache is not used again: it may be the cause.
TEST(EngineFaults, NobodyFindsTheBlocksOfAFailedRequest) {
  Loaded loaded("llama2", kFaultsModel);
  EngineOptions options{.batch_tokens_max = 20};
  options.faults.on_logits = [](RequestId id, int32_t choice, std::span<float> logits) {
    if (id == 1 && choice == 1) logits[9] = std::nanf("");
  };
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  EngineRequest request{.tokens_max = 3, .ignore_eos = true, .choice_count = 2};
  for (int32_t i = 0; i < 40; ++i) request.prompt.push_back(5 + i);
  for (const int64_t cached : {-1, 0, 32}) {
    const auto sink = sink_for(request);
    value_of(engine->submit(request, sink));
    ASSERT_TRUE(sink->wait());
    EXPECT_EQ(sink->report ? sink->report->cached_tokens : -1, cached);
    while (!engine->status(true).requests.empty()) std::this_thread::yield();
    EXPECT_EQ(engine->status().kv_blocks_cached > 0, cached >= 0);
  }
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

// Runs with everything that can happen, recorded.
void recorded_run(Loaded& loaded, const EngineOptions& base, uint64_t seed, const TempFile& file,
                  EngineStatus& status) {
  Scene run = random_scene(loaded, seed, 24);
  Gate gate;
  EngineOptions options = base;
  options.event_log_path = file.path();
  // Ids count up from 1, in the order of submission and choices; one of every eleven draws badly.
  options.faults.on_logits = [](RequestId id, int32_t, std::span<float> logits) {
    if (id % 11 == 3) logits[3] = std::nanf("");
  };
  options.faults.before_forward = [hook = gate.hook()](int64_t iteration) -> Status {
    JIGE_DO(hook(iteration));
    if (iteration == 30) return fail(Code::kUnavailable, "injected");
    return {};
  };
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  for (size_t i = 0; i < run.sinks.size(); i += 4) {
    run.sinks[i]->when_piece = [&run, &engine, i](int count) {
      if (count == 5) engine->cancel(run.ids.at(i));
    };
  }
  submit_all(*engine, run, gate);
  gate.open();
  EXPECT_TRUE(engine->drain(20));
  status = engine->status();
  expect_clean(*engine);
}

TEST(EventReplay, ARunReplaysToTheSameDecisions) {
  Loaded loaded("llama2", {.kv_block_count = 15, .batch_tokens_max = 64});
  int64_t preemptions = 0;
  int64_t drafted = 0;
  for (const ServePolicy policy : plan::kServePolicies) {
    for (const Admission admission : {Admission::kReserve, Admission::kOptimistic}) {
      TempFile file;
      EngineStatus status;
      recorded_run(loaded,
                   {.policy = policy,
                    .admission = admission,
                    .batch_tokens_max = 20,
                    .fair_share = true,
                    .drafts = {.tokens_max = 4, .adaptive = false}},
                   3, file, status);
      drafted += status.counters.drafted_tokens;
      const ReplayCounts counts = value_of(replay_event_log(file.path()));
      EXPECT_EQ(counts.batches, status.counters.iterations);
      EXPECT_EQ(counts.requests, 24);
      EXPECT_EQ(counts.preemptions, status.counters.preemptions);
      EXPECT_EQ(counts.live_blocks, 0);
      EXPECT_TRUE(admission == Admission::kOptimistic || counts.preemptions == 0);
      preemptions += counts.preemptions;
    }
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(drafted, 0);
}

TEST(EventReplay, NoticesOtherDecisionsAndPassesOverACutLine) {
  Loaded loaded("llama2", kFaultsModel);
  TempFile file;
  EngineStatus status;
  recorded_run(loaded, {.batch_tokens_max = 20}, 4, file, status);
  const std::string text = file.text();
  file.write(text.substr(0, text.size() - 3));
  EXPECT_EQ(value_of(replay_event_log(file.path())).batches, status.counters.iterations);

  std::string other = text;
  const size_t at = other.find("\"batch_tokens_max\":20");
  ASSERT_NE(at, std::string::npos);
  other.replace(at, 21, "\"batch_tokens_max\":19");
  file.write(other);
  const auto replayed = replay_event_log(file.path());
  ASSERT_FALSE(replayed);
  EXPECT_EQ(replayed.error().code, Code::kInternal);
  EXPECT_NE(replayed.error().message.find("line "), std::string::npos);

  file.write("{\"event\":\"batch\"}\n");
  EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kCorrupt);
  file.write("");
  EXPECT_EQ(replay_event_log(file.path()).error().code, Code::kCorrupt);
}

// Whatever a log holds, replaying it ends with a result or an error.
TEST(EventReplay, SurvivesDamagedLogs) {
  Loaded loaded("llama2", kFaultsModel);
  TempFile file;
  EngineStatus status;
  recorded_run(loaded, {.admission = Admission::kOptimistic}, 5, file, status);
  const std::string text = file.text();
  Rng rng(derive_key(1, "damage"));
  int refused = 0;
  for (uint64_t i = 0; i < fuzz_rounds(75); ++i) {
    file.write(damaged_log(text, rng));
    refused += !replay_event_log(file.path());
  }
  EXPECT_GT(refused, 30);
}

}  // namespace
}  // namespace jige::serve
