// A model in several places behaves as one: the same bits through the engine, and clear ends where
// a place is lost.
#include "serve/divided_model.h"

#include <numeric>

#include "serve/engine_test_support.h"
#include "serve/layer_test_support.h"

namespace jige::serve {
namespace {

using testing::alone;
using testing::expect_clean;
using testing::fixture;
using testing::HolderThread;
using testing::KeepingSink;
using testing::kHolderRoom;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

const model::InferenceOptions kDividedOptions = {
    .context_max = 128, .kv_block_count = 80, .state_count = 20, .batch_tokens_max = 512};

Result<DividedModel> divide(const std::string& name, CpuDevice& device,
                            const std::vector<comm::Address>& holders,
                            model::InferenceOptions options = kDividedOptions,
                            DividedOptions divided = {.memory_bytes = kHolderRoom}) {
  JIGE_TRY(auto group, LayerGroup::connect(fixture(name), {.holders = holders, .connect_s = 20}));
  return load_divided(fixture(name), device, std::move(options), std::move(group), divided);
}

// The logits of four prompts of 100 tokens, which are cut into pieces, and of a step behind them,
// the first of which goes on from copies of its last block and its state.
std::vector<float> logits_of(model::InferenceModel& model) {
  const auto vocab = static_cast<int32_t>(model.config().vocab_size);
  std::vector<int32_t> tokens(400), blocks(32);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 13 + 5) % vocab;
  std::iota(blocks.begin(), blocks.end(), 3);
  std::vector<ops::SequenceSpan> prompts, steps;
  for (int32_t i = 0; i < 4; ++i) {
    const int32_t* const own = blocks.data() + 8 * i;
    prompts.push_back({.row_begin = 100 * i, .row_count = 100, .blocks = own, .state = i});
    steps.push_back(
        {.row_begin = i, .row_count = 1, .context_count = 100, .blocks = own, .state = i});
  }
  const std::vector<int32_t> rows = {99, 199, 200, 399}, all = {0, 1, 2, 3};
  const auto first =
      value_of(model.forward({.tokens = tokens, .sequences = prompts, .logit_rows = rows}));
  std::vector<float> logits(first.begin(), first.end());
  EXPECT_TRUE(model.copy_block(blocks[6], 2));
  std::vector<int32_t> copied(blocks.begin(), blocks.begin() + 8);
  copied[6] = 2;
  steps[0].blocks = copied.data();
  if (model.sizes().state_count > 0) {
    EXPECT_TRUE(model.copy_state(0, 9));
    steps[0].state = 9;
  }
  const auto second = value_of(
      model.forward({.tokens = std::span(tokens).first(4), .sequences = steps, .logit_rows = all}));
  logits.insert(logits.end(), second.begin(), second.end());
  return logits;
}

TEST(DividedModel, HasTheBitsOfTheWholeInPiecesOnAnyNumberOfMachines) {
  for (const char* name : {"llama3", "gemma2", "qwen3_moe", "qwen3_next"}) {
    const std::vector<float> expected = logits_of(*Loaded(name, kDividedOptions).model);
    HolderThread first(fixture(name), kHolderRoom), second(fixture(name), kHolderRoom);
    CpuDevice device({.thread_count = 1});
    for (const auto& holders :
         {std::vector{first.address()}, std::vector{second.address(), first.address()}}) {
      const auto divided = value_of(divide(name, device, holders));
      EXPECT_EQ(logits_of(*divided.model), expected) << name;
      ASSERT_NE(divided.beyond, nullptr);
      EXPECT_EQ(divided.shares.back().end, divided.model->config().layer_count);
    }
  }
}

TEST(DividedModel, HasTheBitsOfTheWholeOnDevicesOfThisProcessAndOthers) {
  for (const char* name : {"gemma2", "qwen3_next"}) {
    const std::vector<float> expected = logits_of(*Loaded(name, kDividedOptions).model);
    const auto second = value_of(LocalHolder::create(
        "the second", std::make_unique<CpuDevice>(CpuDeviceOptions{.thread_count = 1}),
        {.folder = fixture(name), .memory_bytes = kHolderRoom}));
    HolderThread third(fixture(name), kHolderRoom);
    CpuDevice device({.thread_count = 1});
    for (const auto& others : {std::vector<comm::Address>(), std::vector{third.address()}}) {
      second->rows().lend({});  // by somebody who went before they were taken
      auto group = value_of(LayerGroup::connect(
          fixture(name), {.local = {second}, .holders = others, .connect_s = 20}));
      const auto divided =
          value_of(load_divided(fixture(name), device, kDividedOptions, std::move(group),
                                {.memory_bytes = kHolderRoom, .layers_here = 0}));
      ASSERT_EQ(divided.shares.size(), 2 + others.size());
      EXPECT_EQ(divided.shares[1].name, "the second");
      EXPECT_EQ(logits_of(*divided.model), expected) << name;
    }
  }
}

TEST(DividedModel, DelaysAnywhereChangeNoBit) {
  const std::vector<float> expected = logits_of(*Loaded("llama3", kDividedOptions).model);
  std::atomic<uint64_t> turn = 0;
  const auto delay = [&] {
    const uint64_t random = derive_key(turn++, "delay");
    if (random % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random % 2000));
  };
  HolderThread first(fixture("llama3"), kHolderRoom, delay);
  HolderThread second(fixture("llama3"), kHolderRoom, delay);
  CpuDevice device({.thread_count = 1});
  const auto divided =
      value_of(divide("llama3", device, {first.address(), second.address()}, kDividedOptions,
                      {.memory_bytes = kHolderRoom, .layers_here = 0}));
  ASSERT_EQ(divided.shares.size(), 3u);
  for (int round = 0; round < 10; ++round) EXPECT_EQ(logits_of(*divided.model), expected);
}

TEST(DividedModel, ServesAsTheWholeDoes) {
  for (const char* name : {"llama3", "granite_hybrid", "falcon_mamba"}) {
    Loaded whole(name, kDividedOptions);
    Rng rng(derive_key(5, "divided"));
    std::vector<EngineRequest> requests;
    std::vector<Outcome> expected;
    for (int i = 0; i < 10; ++i) requests.push_back(random_request(rng));
    for (const EngineRequest& request : requests) expected.push_back(alone(whole, request));
    HolderThread holder(fixture(name), kHolderRoom);
    CpuDevice device({.thread_count = 1});
    const auto divided = value_of(divide(name, device, {holder.address()}));
    const auto engine = value_of(Engine::create(*divided.model, whole.tokenizer, {}));
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (const EngineRequest& request : requests) {
      sinks.push_back(sink_for(request));
      value_of(engine->submit(request, sinks.back()));
    }
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_TRUE(sinks[i]->wait()) << name << " " << i;
      EXPECT_EQ(sinks[i]->outcome, expected[i]) << name << " " << i;
    }
    EXPECT_TRUE(engine->drain(20));
    expect_clean(*engine);
  }
}

TEST(DividedModel, AHolderServesOneProgramAfterTheOther) {
  HolderThread holder(fixture("llama3"), kHolderRoom);
  CpuDevice device({.thread_count = 1});
  for (int i = 0; i < 3; ++i) {
    logits_of(*value_of(divide("llama3", device, {holder.address()})).model);
  }
  for (int i = 0; i < 2000 && holder.events().size() < 6; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // until it has seen the last one go
  }
  holder.stop();
  const auto events = holder.events();
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].kind, LayerHolder::Event::Kind::kHolding);
  EXPECT_GT(events[0].bytes, 0);
  EXPECT_EQ(events[5].kind, LayerHolder::Event::Kind::kReleased);
  EXPECT_EQ(events[5].rows, 404);
  EXPECT_EQ(events[5].reason, "");
}

TEST(DividedModel, AHolderThatIsStoppedIsNamedByEveryLaterCall) {
  auto holder = std::make_unique<HolderThread>(fixture("llama3"), kHolderRoom);
  const std::string name = holder->address().text();
  CpuDevice device({.thread_count = 1});
  const auto divided = value_of(divide("llama3", device, {holder->address()}));
  logits_of(*divided.model);
  EXPECT_FALSE(divided.beyond->gone());
  holder.reset();
  const std::vector<int32_t> tokens = {1}, blocks = {0};
  const ops::SequenceSpan sequence{.row_count = 1, .blocks = blocks.data()};
  for (int i = 0; i < 2; ++i) {
    const auto result = divided.model->forward(
        {.tokens = tokens, .sequences = std::span(&sequence, 1), .logit_rows = {}});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::kUnavailable);
    EXPECT_NE(result.error().message.find(name), std::string::npos) << result.error().message;
  }
  ASSERT_TRUE(divided.beyond->gone());
}

TEST(DividedModel, IsRefusedWhereItDoesNotFitOrIsAnotherModel) {
  HolderThread small(fixture("llama3"), 1000), other(fixture("qwen3"), kHolderRoom);
  CpuDevice device({.thread_count = 1});
  // Room for all here: the small holder gets nothing.
  const auto here = value_of(divide("llama3", device, {small.address()}));
  EXPECT_EQ(here.beyond, nullptr);
  EXPECT_EQ(here.shares.size(), 1u);
  const auto refused =
      divide("llama3", device, {small.address()}, kDividedOptions, {.memory_bytes = 1 << 19});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  const auto wrong = divide("llama3", device, {other.address()});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::kInvalidArgument);
  EXPECT_NE(wrong.error().message.find(other.address().text()), std::string::npos);
  HolderThread sharing(fixture("gemma3n"), kHolderRoom);
  const auto shared = divide("gemma3n", device, {sharing.address()});
  ASSERT_FALSE(shared);
  EXPECT_EQ(shared.error().code, Code::kUnsupported);
  const auto nobody =
      LayerGroup::connect(fixture("llama3"), {.holders = {{"127.0.0.1", 1}}, .connect_s = 0.1});
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, Code::kUnavailable);
}

TEST(DividedModel, IsBackWithThoseAloneWhoHadLayers) {
  HolderThread small(fixture("llama3"), 1000);
  auto large = std::make_unique<HolderThread>(fixture("llama3"), kHolderRoom);
  const comm::Address address = large->address();
  CpuDevice device({.thread_count = 1});
  const auto divided =
      value_of(divide("llama3", device, {small.address(), address}, kDividedOptions,
                      {.memory_bytes = kHolderRoom, .layers_here = 1, .restore_s = 20}));
  ASSERT_EQ(divided.shares.size(), 2u);
  const std::vector<float> expected = logits_of(*divided.model);
  large.reset();
  large = std::make_unique<HolderThread>(fixture("llama3"), kHolderRoom, nullptr, address);
  const std::vector<int32_t> tokens = {5}, blocks = {0};
  const ops::SequenceSpan one{.row_count = 1, .blocks = blocks.data()};
  EXPECT_FALSE(divided.model->forward(
      {.tokens = tokens, .sequences = std::span(&one, 1), .logit_rows = {}}));
  while (divided.beyond->lost()) {
    const auto back = divided.beyond->restore();
    ASSERT_TRUE(back) << back.error().message;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(logits_of(*divided.model), expected);
}

TEST(DividedModel, TakesFewerContextsWhereTheWantedDoNotFit) {
  HolderThread holder(fixture("llama3"), kHolderRoom);
  CpuDevice device({.thread_count = 1});
  model::InferenceOptions options = kDividedOptions;
  options.kv_block_count = 0;
  const auto blocks = [&](int64_t contexts, int64_t room) {
    const auto divided = value_of(divide("llama3", device, {holder.address()}, options,
                                         {.memory_bytes = room, .contexts_wanted = contexts}));
    return divided.model->sizes().kv_block_count;
  };
  EXPECT_EQ(blocks(16, kHolderRoom), 16 * 8);
  EXPECT_EQ(blocks(1, kHolderRoom), 8);
  const int64_t many = int64_t{1} << 20;
  const int64_t fitting = blocks(many, kHolderRoom);
  EXPECT_LT(fitting, many * 8);
  EXPECT_GT(fitting, 16 * 8);
}

}  // namespace
}  // namespace jige::serve
