// Holders that are lost and come back: answers go on with the same bits, and where nobody comes
// back all requests end with an error that names who.
#include "serve/lasting_layers.h"

#include <cstring>

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
    model::InferenceOptions options = kHolderModel;
    options.logit_rows_max = options.batch_tokens_max;  // batches are one forward: lost as a whole
    auto divided = value_of(load_divided(fixture(name), loaded.device, options,
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
    for (int i = 0; i < 5; ++i) requests.push_back(random_request(rng));
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

// Layers in this process that are lost with one piece of all that are started, and back when they
// are asked for.
class LostOnce final : public model::LayersBeyond {
 public:
  LostOnce(const std::string& name, CpuDevice& device, int64_t lost_with)
      : name_(name), device_(device), lost_with_(lost_with) {
    load();
  }
  int64_t pieces() const { return pieces_; }

  int64_t piece_rows(int64_t rows) const override { return rows; }
  Status start(std::span<const ops::SequenceSpan> sequences, const TensorView& rows) override {
    if (++pieces_ == lost_with_) lost_ = true;
    JIGE_DO(finish(0));
    JIGE_TRY(const TensorView done, layers_->run_layers(sequences, rows));
    std::memmove(rows.data, done.data, static_cast<size_t>(rows.count()) * sizeof(float));
    return {};
  }
  Status finish(int64_t) override {
    return lost_ ? fail(Code::kUnavailable, "layers are lost") : Status();
  }
  Status copy_block(int32_t src, int32_t dst) override { return layers_->copy_block(src, dst); }
  Status copy_state(int32_t src, int32_t dst) override { return layers_->copy_state(src, dst); }
  bool lost() const override { return lost_; }
  Result<bool> restore() override {
    load();
    lost_ = false;
    return true;
  }

 private:
  void load() {
    model::InferenceOptions options = kHolderModel;
    const auto config = value_of(formats::load_model_config(fixture(name_)));
    options.layers = {.begin = 1, .end = config.layer_count, .ends = false};
    layers_ = value_of(model::InferenceModel::load(fixture(name_), device_, options));
  }

  std::string name_;
  CpuDevice& device_;
  int64_t lost_with_;
  int64_t pieces_ = 0;
  bool lost_ = false;
  std::unique_ptr<model::InferenceModel> layers_;
};

// A batch of several forwards, the first of which has given tokens when layers are lost with the
// next: who was told one fails, all others go on.
TEST(LastingLayers, WithWhateverPieceTheyAreLostNoTokenIsDrawnTwice) {
  for (const auto& [name, batches] : {std::pair{"llama3", 1}, {"llama3", 2}, {"qwen3_next", 1}}) {
    Loaded whole(name, kHolderModel);
    std::vector<EngineRequest> requests;
    std::vector<testing::Outcome> expected;
    for (int32_t i = 0; i < 5; ++i) {
      requests.push_back(endless(i));
      requests.back().tokens_max = 3;
      requests.back().choice_count = i == 2 ? 2 : 1;
      expected.push_back(alone(whole, requests.back()));
    }
    model::InferenceOptions options = kHolderModel;
    options.logit_rows_max = 2;  // of a forward
    options.layers = {.begin = 0, .end = 1};
    options.forwards_max = batches;
    int64_t failed = 0, lost_with = 0, pieces = 0;
    while (lost_with++ <= pieces) {
      Loaded divided(name, options);
      auto made = std::make_unique<LostOnce>(name, divided.device, lost_with);
      const LostOnce* const beyond = made.get();
      divided.model->set_beyond(std::move(made));
      testing::Gate gate;
      const auto engine = value_of(Engine::create(*divided.model, whole.tokenizer,
                                                  {.batches_in_flight = batches,
                                                   .in_flight_requests_min = 1,
                                                   .faults = {.before_forward = gate.hook()}}));
      std::vector<std::shared_ptr<KeepingSink>> sinks;
      for (const EngineRequest& request : requests) {
        sinks.push_back(sink_for(request));
        value_of(engine->submit(request, sinks.back()));
      }
      gate.open();
      for (size_t i = 0; i < sinks.size(); ++i) {
        EXPECT_TRUE(sinks[i]->wait());
        failed += sinks[i]->error.has_value();
        if (sinks[i]->error) continue;
        EXPECT_EQ(sinks[i]->outcome, expected[i]) << name << " " << i << " " << lost_with;
      }
      EXPECT_TRUE(engine->drain(20));
      expect_clean(*engine);
      pieces = beyond->pieces();
    }
    EXPECT_GT(lost_with, 8) << name;
    EXPECT_GT(failed, 0) << name;
    EXPECT_LT(failed, lost_with * std::ssize(requests) / 2) << name;
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
