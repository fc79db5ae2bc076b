// Several batches of a divided model in flight: the same bits as one model gives alone, and clear
// ends where requests are cancelled, fail or lose their layers while their batch is elsewhere.
#include <algorithm>
#include <optional>

#include "grammar/constraint_compiler.h"
#include "serve/divided_model.h"
#include "serve/draft_test_support.h"
#include "serve/event_replay.h"
#include "serve/layer_test_support.h"

namespace jige::serve {
namespace {

using plan::Admission;
using plan::ServePolicy;
using testing::alone;
using testing::cases_of;
using testing::DraftCase;
using testing::expect_clean;
using testing::expect_same;
using testing::fixture;
using testing::HolderThread;
using testing::KeepingSink;
using testing::kHolderModel;
using testing::kHolderRoom;
using testing::Loaded;
using testing::sink_for;
using testing::TempFile;
using testing::value_of;

constexpr int32_t kForwardsOfTests = 4;

// A model of which other threads hold all layers but the first. `before_answer` is called by them.
struct Divided {
  explicit Divided(const std::string& name, const model::InferenceOptions& options = kHolderModel,
                   std::function<void()> before_answer = {}, int holder_count = 1)
      : loaded(name, options) {
    loaded.model.reset();
    LayerGroupOptions group{.connect_s = 20};
    for (int i = 0; i < holder_count; ++i) {
      holders.push_back(std::make_unique<HolderThread>(fixture(name), kHolderRoom, before_answer));
      group.holders.push_back(holders.back()->address());
    }
    auto divided = value_of(load_divided(fixture(name), loaded.device, options,
                                         value_of(LayerGroup::connect(fixture(name), group)),
                                         {.memory_bytes = kHolderRoom,
                                          .layers_here = 2 - holder_count,
                                          .forwards_max = kForwardsOfTests}));
    loaded.model = std::move(divided.model);
  }

  std::vector<std::unique_ptr<HolderThread>> holders;
  Loaded loaded;
};

// Holds answers of holders back until a test lets them go.
class AnswerGate {
 public:
  std::function<void()> hook() {
    return [this] {
      std::unique_lock lock(mutex_);
      EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return left_ > 0; }))
          << "nobody lets it go";
      --left_;
    };
  }
  void allow(int64_t count) {
    const std::lock_guard lock(mutex_);
    left_ = count;
    changed_.notify_all();
  }
  void open() { allow(std::numeric_limits<int64_t>::max()); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t left_ = 0;
};

// Counts the iterations that have begun; holds the first until go().
class BegunCount {
 public:
  std::function<Status(int64_t)> hook() {
    return [this](int64_t iteration) -> Status {
      std::unique_lock lock(mutex_);
      count_ = iteration;
      changed_.notify_all();
      EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return may_go_; }));
      return {};
    };
  }
  void go() {
    const std::lock_guard lock(mutex_);
    may_go_ = true;
    changed_.notify_all();
  }
  bool wait_for(int64_t count, std::chrono::milliseconds longest = std::chrono::seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, longest, [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t count_ = 0;
  bool may_go_ = false;
};

std::function<void()> random_delays() {
  const auto turn = std::make_shared<std::atomic<uint64_t>>(0);
  return [turn] {
    const uint64_t random = derive_key((*turn)++, "delay of a batch");
    if (random % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random % 1000));
  };
}

EngineRequest plain_request(int32_t first, int64_t tokens) {
  EngineRequest request{.tokens_max = tokens, .ignore_eos = true};
  for (int32_t i = 0; i < 6; ++i) request.prompt.push_back(3 + (first * 13 + i * 7) % 90);
  return request;
}

TEST(EngineInFlight, BitsAreThoseOfOneModelWithDelaysAnywhere) {
  int64_t accepted = 0, hits = 0;
  for (const char* name : {"llama3", "gemma2", "granite_hybrid"}) {
    std::vector<DraftCase> cases;
    {
      Loaded whole(name, kHolderModel);
      cases = cases_of(whole, 31, 11);
    }
    for (const int holders : {1, 2}) {
      Divided divided(name, kHolderModel, random_delays(), holders);
      for (const int32_t batches :
           holders == 1 ? std::vector<int32_t>{1, 3} : std::vector<int32_t>{2, 4}) {
        SCOPED_TRACE(::testing::Message() << name << ", " << batches << " batches");
        const EngineStatus status =
            expect_same(divided.loaded, cases,
                        {.batch_requests_max = 5,
                         .batches_in_flight = batches,
                         .in_flight_requests_min = 1,
                         .drafts = {.tokens_max = 4, .adaptive = batches % 2 == 0}});
        accepted += status.counters.accepted_tokens;
        hits += status.counters.prefix_hit_tokens;
      }
    }
  }
  EXPECT_GT(accepted, 42);
  EXPECT_GT(hits, 42);
}

TEST(EngineInFlight, PoliciesAndPreemptionChangeNoBit) {
  std::vector<DraftCase> cases;
  model::InferenceOptions options = kHolderModel;
  {
    Loaded whole("qwen2", options);
    cases = cases_of(whole, 32, 9);
  }
  options.kv_block_count = 18;
  Divided divided("qwen2", options, random_delays());
  int64_t preemptions = 0;
  for (const ServePolicy policy : plan::kServePolicies) {
    for (const Admission admission : {Admission::kReserve, Admission::kOptimistic}) {
      preemptions += expect_same(divided.loaded, cases,
                                 {.policy = policy,
                                  .admission = admission,
                                  .batch_tokens_max = 16,
                                  .round_steps = 4,
                                  .batches_in_flight = 3,
                                  .in_flight_requests_min = 1})
                         .counters.preemptions;
    }
  }
  EXPECT_GT(preemptions, 0) << "the pool is too large for this test";
}

TEST(EngineInFlight, ConstraintsAndScoresOfPromptsAreThoseOfOneModel) {
  Loaded whole("llama3", kHolderModel);
  Divided divided("llama3", kHolderModel, random_delays());
  grammar::ConstraintCompiler compiler(whole.tokenizer);
  const auto constraint =
      value_of(compiler.compile({grammar::ConstraintSource::Kind::kRegex, "[a-f]{3,9}[0-9]+"}));
  class ScoredSink final : public RequestSink {
   public:
    void on_prompt(std::span<const ops::TokenScore> told) override {
      for (const ops::TokenScore& score : told) logprobs.push_back(score.logprob);
    }
    void on_piece(int32_t choice, const AnswerPiece& piece) override {
      kept.on_piece(choice, piece);
    }
    void on_choice(const ChoiceEnd& end) override { kept.on_choice(end); }
    void on_done(const RequestReport& report) override { kept.on_done(report); }
    void on_failed(const Error& error) override { kept.on_failed(error); }
    KeepingSink kept;
    std::vector<float> logprobs;
  };
  std::vector<std::vector<std::shared_ptr<ScoredSink>>> sinks(2);
  for (size_t i = 0; i < 2; ++i) {
    const auto engine =
        value_of(i == 0 ? Engine::create(*whole.model, whole.tokenizer, {})
                        : Engine::create(*divided.loaded.model, whole.tokenizer,
                                         {.batches_in_flight = 2, .in_flight_requests_min = 1}));
    for (int32_t r = 0; r < 8; ++r) {
      EngineRequest request = plain_request(r, 20);
      request.sampling.temperature = 1;
      request.seed = static_cast<uint64_t>(r);
      if (r % 2 == 0) request.constraint = constraint;
      if (r % 3 == 0) {
        for (int32_t token = 0; token < 40; ++token) request.prompt.push_back(3 + token * 5 % 90);
        request.prompt_top_count = 0;
      }
      sinks[i].push_back(std::make_shared<ScoredSink>());
      value_of(engine->submit(std::move(request), sinks[i].back()));
    }
    for (const auto& sink : sinks[i]) ASSERT_TRUE(sink->kept.wait());
    EXPECT_TRUE(engine->drain(20));
    expect_clean(*engine);
  }
  for (size_t r = 0; r < sinks[0].size(); ++r) {
    EXPECT_EQ(sinks[1][r]->kept.outcome, sinks[0][r]->kept.outcome) << r;
    EXPECT_EQ(sinks[1][r]->logprobs, sinks[0][r]->logprobs) << r;
    EXPECT_EQ(sinks[0][r]->logprobs.size(), r % 3 == 0 ? 45u : 0u);
  }
}

TEST(EngineInFlight, ABatchBeginsWhileTheRowsOfAnotherAreElsewhere) {
  for (const int32_t batches : {1, 2}) {
    AnswerGate answers;
    BegunCount begun;
    Divided divided("llama3", kHolderModel, answers.hook());
    const auto engine = value_of(Engine::create(*divided.loaded.model, divided.loaded.tokenizer,
                                                {.batches_in_flight = batches,
                                                 .in_flight_requests_min = 1,
                                                 .faults = {.before_forward = begun.hook()}}));
    const auto first = std::make_shared<KeepingSink>(), second = std::make_shared<KeepingSink>();
    value_of(engine->submit(plain_request(1, 3), first));
    EXPECT_TRUE(begun.wait_for(1));
    value_of(engine->submit(plain_request(2, 3), second));
    begun.go();
    // Nothing has come back yet.
    const auto longest = std::chrono::milliseconds(batches > 1 ? 20'000 : 200);
    EXPECT_EQ(begun.wait_for(2, longest), batches > 1);
    EXPECT_FALSE(begun.wait_for(3, std::chrono::milliseconds(50))) << "more than may be";
    answers.open();
    EXPECT_TRUE(first->wait());
    EXPECT_TRUE(second->wait());
    EXPECT_TRUE(engine->drain(20));
    expect_clean(*engine);
  }
}

TEST(EngineInFlight, WhoIsCancelledElsewhereHearsOfItAtOnceAndTheOthersGoOn) {
  AnswerGate answers;
  BegunCount begun;
  TempFile log;
  Divided divided("llama3", kHolderModel, answers.hook());
  testing::Outcome expected;
  {
    Loaded whole("llama3", kHolderModel);
    expected = alone(whole, plain_request(2, 9));
  }
  {
    const auto engine = value_of(Engine::create(*divided.loaded.model, divided.loaded.tokenizer,
                                                {.batches_in_flight = 2,
                                                 .in_flight_requests_min = 1,
                                                 .event_log_path = log.path(),
                                                 .faults = {.before_forward = begun.hook()}}));
    EngineRequest leaving = plain_request(1, 50);
    leaving.choice_count = 3;
    const auto cancelled = sink_for(leaving), other = std::make_shared<KeepingSink>();
    const RequestId id = value_of(engine->submit(leaving, cancelled));
    EXPECT_TRUE(begun.wait_for(1));
    value_of(engine->submit(plain_request(2, 9), other));
    begun.go();
    EXPECT_TRUE(begun.wait_for(2));
    answers.allow(2);  // the choices are in two batches from now on
    EXPECT_TRUE(begun.wait_for(4));
    EXPECT_FALSE(cancelled->report) << "nothing has come back yet";
    engine->cancel(id);
    answers.allow(1);  // for the turn that looks at events
    EXPECT_TRUE(cancelled->wait());
    EXPECT_EQ(cancelled->outcome[0].finish, FinishReason::kCancelled);
    answers.open();
    EXPECT_TRUE(other->wait());
    EXPECT_EQ(other->outcome, expected);
    EXPECT_TRUE(engine->drain(20));
    expect_clean(*engine);
  }
  EXPECT_GT(value_of(replay_event_log(log.path())).batches, 3);
}

TEST(EngineInFlight, ARequestThatFailsTakesItsChoicesOutOfEveryBatchAndNobodyElse) {
  Loaded whole("llama3", kHolderModel);
  Divided divided("llama3", kHolderModel, random_delays());
  for (const int32_t choice : {0, 2, 3}) {
    int rows = 0;
    EngineOptions options{.batches_in_flight = 2, .in_flight_requests_min = 1};
    options.faults.on_logits = [&](RequestId request, int32_t at, std::span<float> logits) {
      if (request == 1 && at == choice && ++rows == 3) {
        std::ranges::fill(logits, std::numeric_limits<float>::quiet_NaN());
      }
    };
    TempFile log;
    options.event_log_path = log.path();
    {
      const auto engine =
          value_of(Engine::create(*divided.loaded.model, whole.tokenizer, std::move(options)));
      EngineRequest bad = plain_request(1, 30);
      bad.choice_count = 4;
      const auto failing = sink_for(bad);
      ASSERT_EQ(value_of(engine->submit(bad, failing)), 1);
      std::vector<std::shared_ptr<KeepingSink>> others;
      for (int32_t i = 2; i < 6; ++i) {
        others.push_back(std::make_shared<KeepingSink>());
        value_of(engine->submit(plain_request(i, 12), others.back()));
      }
      EXPECT_TRUE(failing->wait());
      EXPECT_TRUE(failing->error);
      for (size_t i = 0; i < others.size(); ++i) {
        EXPECT_TRUE(others[i]->wait());
        EXPECT_EQ(others[i]->outcome, alone(whole, plain_request(static_cast<int32_t>(i) + 2, 12)));
      }
      EXPECT_TRUE(engine->drain(20));
      expect_clean(*engine);
      EXPECT_EQ(engine->status().counters.requests_failed, 1);
    }
    EXPECT_TRUE(replay_event_log(log.path()));
  }
}

TEST(EngineInFlight, AForwardThatFailsEndsTheRequestsOfItsBatchAlone) {
  Divided divided("llama3", kHolderModel, random_delays());
  const auto fail_fifth = [](int64_t iteration) -> Status {
    if (iteration != 5) return {};
    return fail(Code::kInternal, "the fifth fails");
  };
  const auto engine = value_of(Engine::create(*divided.loaded.model, divided.loaded.tokenizer,
                                              {.batches_in_flight = 2,
                                               .in_flight_requests_min = 1,
                                               .faults = {.before_forward = fail_fifth}}));
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int32_t i = 0; i < 6; ++i) {
    sinks.push_back(std::make_shared<KeepingSink>());
    value_of(engine->submit(plain_request(i, 30), sinks.back()));
  }
  int failed = 0;
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->wait());
    failed += sink->error.has_value();
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 6);
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
  EXPECT_EQ(engine->status().counters.iterations_lost, 1);
}

TEST(EngineInFlight, WhereAHolderIsLostAllUnderWayFailAndNameIt) {
  AnswerGate answers;
  BegunCount begun;
  Divided divided("llama3", kHolderModel, answers.hook());
  const std::string holder = divided.holders[0]->address().text();
  const auto engine = value_of(Engine::create(*divided.loaded.model, divided.loaded.tokenizer,
                                              {.batches_in_flight = 2,
                                               .in_flight_requests_min = 1,
                                               .faults = {.before_forward = begun.hook()}}));
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int32_t i = 0; i < 3; ++i) {
    sinks.push_back(std::make_shared<KeepingSink>());
    value_of(engine->submit(plain_request(i, 30), sinks.back()));
    if (i == 0) {
      EXPECT_TRUE(begun.wait_for(1));
    }
  }
  begun.go();
  EXPECT_TRUE(begun.wait_for(2));
  std::thread stop([&] { divided.holders[0]->stop(); });
  answers.open();
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->wait());
    // One may have come to its end before the holder has.
    if (sink->error) {
      EXPECT_NE(sink->error->message.find(holder), std::string::npos) << sink->error->message;
    }
  }
  stop.join();
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

TEST(EngineInFlight, AnEngineThatIsStoppedLeavesNothingUnderWay) {
  Loaded whole("llama3", kHolderModel);
  Divided divided("llama3", kHolderModel, random_delays());
  for (int round = 0; round < 8; ++round) {
    BegunCount begun;
    begun.go();
    const auto engine = value_of(Engine::create(*divided.loaded.model, whole.tokenizer,
                                                {.batches_in_flight = kForwardsOfTests,
                                                 .in_flight_requests_min = 1,
                                                 .faults = {.before_forward = begun.hook()}}));
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (int32_t i = 0; i < 9; ++i) {
      sinks.push_back(std::make_shared<KeepingSink>());
      value_of(engine->submit(plain_request(i, 60), sinks.back()));
    }
    EXPECT_TRUE(begun.wait_for(4 + round));
    engine->stop();
    for (const auto& sink : sinks) EXPECT_TRUE(sink->wait());
    expect_clean(*engine);
  }
  EXPECT_EQ(alone(divided.loaded, plain_request(7, 20)), alone(whole, plain_request(7, 20)));
}

TEST(EngineInFlight, IsRefusedBeyondWhatTheModelWasLoadedFor) {
  Divided divided("llama3");
  EXPECT_EQ(divided.loaded.model->sizes().forwards_max, kForwardsOfTests);
  const auto engine = Engine::create(*divided.loaded.model, divided.loaded.tokenizer,
                                     {.batches_in_flight = kForwardsOfTests + 1});
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kUnsupported);
}

// Of three layers two are here unless the head counts, however large the cache is.
TEST(EngineInFlight, TheHeadCountsWhereLayersAreDividedForSeveralBatches) {
  HolderThread holder(fixture("smollm3"), kHolderRoom);
  CpuDevice device({.thread_count = 1});
  const auto layers_here = [&](int64_t forwards_max, int64_t blocks) {
    model::InferenceOptions options = kHolderModel;
    options.kv_block_count = blocks;
    auto group = value_of(LayerGroup::connect(fixture("smollm3"), {.holders = {holder.address()}}));
    return value_of(load_divided(fixture("smollm3"), device, options, std::move(group),
                                 {.memory_bytes = kHolderRoom, .forwards_max = forwards_max}))
        .shares[0]
        .end;
  };
  for (const int64_t blocks : {8, 800}) {
    EXPECT_EQ(layers_here(1, blocks), 2);
    EXPECT_EQ(layers_here(2, blocks), 1);
  }
}

TEST(EngineInFlight, AsManyForwardsAsMachinesUnlessStatesAreKept) {
  HolderThread holder(fixture("llama3"), kHolderRoom), states(fixture("qwen3_next"), kHolderRoom);
  CpuDevice device({.thread_count = 1});
  const auto forwards = [&](const std::string& name, const comm::Address& address,
                            DividedOptions options) {
    options.memory_bytes = kHolderRoom;
    auto group = value_of(LayerGroup::connect(fixture(name), {.holders = {address}}));
    const auto divided =
        value_of(load_divided(fixture(name), device, kHolderModel, std::move(group), options));
    const model::InferenceMemory planned =
        model::inference_memory(divided.model->architecture(), divided.model->sizes());
    EXPECT_EQ(divided.model->peak_bytes(), planned.total_bytes());
    return divided.model->sizes().forwards_max;
  };
  EXPECT_EQ(forwards("llama3", holder.address(), {}), 1);
  EXPECT_EQ(forwards("llama3", holder.address(), {.forwards_max = 0}), 2);
  EXPECT_EQ(forwards("llama3", holder.address(), {.forwards_max = 5}), 5);
  EXPECT_EQ(forwards("qwen3_next", states.address(), {.forwards_max = 0}), 1);
  EXPECT_EQ(forwards("qwen3_next", states.address(), {.forwards_max = 2}), 2);
}

}  // namespace
}  // namespace jige::serve
