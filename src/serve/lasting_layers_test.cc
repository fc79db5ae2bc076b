// Holders that are lost and come back: answers go on with the same bits, and where nobody comes
// back all requests end with an error that names who.
#include "serve/lasting_layers.h"

#include "serve/divided_model.h"
#include "serve/engine_test_support.h"
#include "serve/layer_test_support.h"

namespace jige::serve {
namespace {

using testing::alone;
using testing::expect_clean;
using testing::fixture;
using testing::HolderThread;
using testing::KeepingSink;
using testing::kHolderModel;
using testing::kHolderRoom;
using testing::Loaded;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

// A model of which threads hold all layers but the first, and which can be lost and come back.
class Lasting {
 public:
  Lasting(const std::string& name, int holder_count, double restore_s,
          const std::function<void()>& before_answer = {})
      : before_answer_(before_answer), loaded(name, kHolderModel) {
    LayerGroupOptions group{.connect_s = 20};
    for (int i = 0; i < holder_count; ++i) {
      holders_.push_back(std::make_unique<HolderThread>(fixture(name), kHolderRoom, before_answer));
      addresses.push_back(holders_.back()->address());
    }
    group.holders = addresses;
    auto divided = value_of(load_divided(fixture(name), loaded.device, kHolderModel,
                                         value_of(LayerGroup::connect(fixture(name), group)),
                                         {.memory_bytes = kHolderRoom,
                                          .layers_here = 2 - holder_count,
                                          .forwards_max = 3,
                                          .restore_s = restore_s}));
    loaded.model = std::move(divided.model);
    beyond = divided.beyond;
  }

  void stop(size_t holder) { holders_[holder].reset(); }
  void come_back(size_t holder, const std::string& name) {
    holders_[holder] = std::make_unique<HolderThread>(fixture(name), kHolderRoom, before_answer_,
                                                      addresses[holder]);
  }

 private:
  std::function<void()> before_answer_;
  std::vector<std::unique_ptr<HolderThread>> holders_;

 public:
  std::vector<comm::Address> addresses;
  Loaded loaded;
  LastingLayers* beyond = nullptr;
};

std::function<void()> slow_answers() {
  return [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
}

bool comes_true(const std::function<bool()>& what) {
  for (int i = 0; i < 4000; ++i) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

EngineRequest endless(int32_t first) {
  EngineRequest request{.prompt = {3 + first, 5, 8}, .tokens_max = 100};
  request.ignore_eos = true;
  return request;
}

struct LostCase {
  const char* name;
  int holders;
  EngineOptions options;
};

std::vector<LostCase> lost_cases() {
  return {{"llama3", 1, {.admission = plan::Admission::kOptimistic, .batches_in_flight = 1}},
          {"llama3", 2, {.batches_in_flight = 3, .in_flight_requests_min = 1}},
          {"llama3", 1, {.policy = plan::ServePolicy::kRounds, .batches_in_flight = 1}},
          {"qwen3_next", 1, {.batches_in_flight = 1, .kept_state_count = 4}}};
}

TEST(LastingLayers, AnswersGoOnWithTheirBitsWhenAHolderIsBack) {
  uint64_t seed = 0;
  for (const LostCase& one : lost_cases()) {
    Loaded whole(one.name, kHolderModel);
    Rng rng(derive_key(seed++, "lasting"));
    std::vector<EngineRequest> requests;
    for (int i = 0; i < 12; ++i) requests.push_back(random_request(rng));
    requests.push_back(endless(1));
    Lasting lasting(one.name, one.holders, /*restore_s=*/20, slow_answers());
    const auto engine =
        value_of(Engine::create(*lasting.loaded.model, whole.tokenizer, one.options));
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (const EngineRequest& request : requests) {
      sinks.push_back(sink_for(request));
      value_of(engine->submit(request, sinks.back()));
    }
    for (int64_t times = 1; times <= 2; ++times) {
      EXPECT_TRUE(
          comes_true([&] { return engine->status().counters.generated_tokens > 20 * times; }));
      const auto holder = static_cast<size_t>(rng.below(static_cast<uint64_t>(one.holders)));
      lasting.stop(holder);
      std::this_thread::sleep_for(std::chrono::milliseconds(rng.below(60)));
      lasting.come_back(holder, one.name);
      EXPECT_TRUE(comes_true([&] { return engine->status().counters.layers_restored == times; }));
    }
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_TRUE(sinks[i]->wait()) << one.name << " " << i;
      EXPECT_FALSE(sinks[i]->error) << one.name << " " << sinks[i]->error->message;
      EXPECT_EQ(sinks[i]->outcome, alone(whole, requests[i])) << one.name << " " << i;
    }
    EXPECT_FALSE(engine->status().layers_lost);
    const auto later = sink_for(requests[0]);
    value_of(engine->submit(requests[0], later));
    EXPECT_TRUE(later->wait());
    EXPECT_EQ(later->outcome, sinks[0]->outcome);
    EXPECT_TRUE(engine->drain(20));
    expect_clean(*engine);
  }
}

std::vector<float> logprobs_of(const KeepingSink& sink) {
  std::vector<float> logprobs;
  if (!sink.scores) return logprobs;
  for (const ops::TokenScore& score : *sink.scores) logprobs.push_back(score.logprob);
  return logprobs;
}

TEST(LastingLayers, ScoresOfAPromptAreTakenOnceThoughItsCacheIsLost) {
  Loaded whole("llama3", kHolderModel);
  EngineRequest request = endless(4);
  request.prompt.clear();
  for (int32_t i = 0; i < 100; ++i) request.prompt.push_back(3 + i * 11 % 90);
  request.tokens_max = 10;
  request.prompt_top_count = 1;
  const auto expected = sink_for(request);
  {
    const auto engine = value_of(Engine::create(*whole.model, whole.tokenizer, {}));
    value_of(engine->submit(request, expected));
    EXPECT_TRUE(expected->wait());
    EXPECT_EQ(logprobs_of(*expected).size(), 99u);
  }
  Lasting lasting("llama3", 1, /*restore_s=*/20);
  testing::Gate gate(1);  // 64 tokens of the prompt are computed and scored
  const auto engine = value_of(Engine::create(*lasting.loaded.model, whole.tokenizer,
                                              {.faults = {.before_forward = gate.hook()}}));
  const auto sink = sink_for(request);
  value_of(engine->submit(request, sink));
  gate.wait_until_held();
  lasting.stop(0);
  lasting.come_back(0, "llama3");
  gate.open();
  EXPECT_TRUE(sink->wait());
  EXPECT_FALSE(sink->error);
  EXPECT_EQ(logprobs_of(*sink), logprobs_of(*expected));
  EXPECT_EQ(sink->outcome, expected->outcome);
  EXPECT_EQ(engine->status().counters.layers_restored, 1);
}

TEST(LastingLayers, WhileTheyAreLostRequestsEndAsTheyAreToldAndNoneIsTaken) {
  Lasting lasting("llama3", 1, /*restore_s=*/60, slow_answers());
  const auto engine = value_of(Engine::create(*lasting.loaded.model, lasting.loaded.tokenizer, {}));
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 3; ++i) {
    sinks.push_back(sink_for(endless(i)));
    ids.push_back(value_of(engine->submit(endless(i), sinks.back())));
  }
  EXPECT_TRUE(comes_true([&] { return engine->status().counters.generated_tokens > 6; }));
  lasting.stop(0);
  EXPECT_TRUE(comes_true([&] { return engine->status().layers_lost; }));
  const Status refused = engine->admission_check(10);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_NE(refused.error().message.find("layers"), std::string::npos);
  engine->cancel(ids[0]);
  EXPECT_TRUE(sinks[0]->wait());
  EXPECT_EQ(sinks[0]->outcome[0].finish, FinishReason::kCancelled);
  EXPECT_FALSE(lasting.beyond->gone());
  engine->stop();
  for (const auto& sink : sinks) EXPECT_TRUE(sink->wait());
  expect_clean(*engine);
}

TEST(LastingLayers, WhereNobodyComesBackInTimeAllFailAndNameTheHolder) {
  Lasting lasting("llama3", 2, /*restore_s=*/0.3, slow_answers());
  const auto engine = value_of(Engine::create(*lasting.loaded.model, lasting.loaded.tokenizer, {}));
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (int32_t i = 0; i < 3; ++i) {
    sinks.push_back(sink_for(endless(i)));
    value_of(engine->submit(endless(i), sinks.back()));
  }
  lasting.stop(1);
  for (const auto& sink : sinks) {
    EXPECT_TRUE(sink->wait());
    ASSERT_TRUE(sink->error);
    EXPECT_EQ(sink->error->code, Code::kUnavailable);
    EXPECT_NE(sink->error->message.find(lasting.addresses[1].text()), std::string::npos)
        << sink->error->message;
    EXPECT_NE(sink->error->message.find("did not come back"), std::string::npos);
  }
  EXPECT_TRUE(lasting.beyond->gone());
  EXPECT_FALSE(engine->admission_check(10));
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

TEST(LastingLayers, WhoComesBackWithAnotherModelIsNotAskedAgain) {
  Lasting lasting("llama3", 1, /*restore_s=*/60, slow_answers());
  const auto engine = value_of(Engine::create(*lasting.loaded.model, lasting.loaded.tokenizer, {}));
  const auto sink = sink_for(endless(0));
  value_of(engine->submit(endless(0), sink));
  lasting.stop(0);
  lasting.come_back(0, "qwen3");
  EXPECT_TRUE(sink->wait());
  ASSERT_TRUE(sink->error);
  EXPECT_EQ(sink->error->code, Code::kUnavailable);
  EXPECT_NE(sink->error->message.find("another model"), std::string::npos) << sink->error->message;
}

TEST(LastingLayers, GivingUpEndsTheWaitingForThem) {
  for (const bool lost_before : {false, true}) {
    Lasting lasting("llama3", 1, /*restore_s=*/60, slow_answers());
    const auto engine =
        value_of(Engine::create(*lasting.loaded.model, lasting.loaded.tokenizer, {}));
    const auto sink = sink_for(endless(0));
    value_of(engine->submit(endless(0), sink));
    if (lost_before) {
      lasting.stop(0);
      EXPECT_TRUE(comes_true([&] { return engine->status().layers_lost; }));
    }
    lasting.beyond->give_up({Code::kCancelled, "the server was stopped"});
    EXPECT_TRUE(sink->wait());
    ASSERT_TRUE(sink->error);
    EXPECT_EQ(sink->error->message, "the server was stopped");
  }
}

}  // namespace
}  // namespace jige::serve
