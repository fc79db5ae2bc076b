// Models whose layers are on several GPUs, and on GPUs and processors, beside the same on one GPU:
// the same bits, with streams that run late. Where there is one GPU alone, it holds all parts.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cuda/test_device.h"
#include "cuda/two_sequences.h"
#include "model/inference.h"
#include "serve/divided_model.h"
#include "serve/engine.h"
#include "serve/engine_test_support.h"
#include "serve/layer_test_support.h"

namespace jige {
namespace {

using model::InferenceModel;
using model::InferenceOptions;
using serve::testing::HolderThread;
using serve::testing::kHolderRoom;
using serve::testing::value_of;

const serve::LayerComputer kGpu = {
    .kernels = "a GPU", .bytes_per_s = 1'000'000'000'000, .is_gpu = true};

// A GPU that counts the pinned memory it gives.
class CountedPinned final : public Device {
 public:
  explicit CountedPinned(std::unique_ptr<Device> gpu) : gpu_(std::move(gpu)) {}
  DeviceKind kind() const override { return gpu_->kind(); }
  const std::string& name() const override { return gpu_->name(); }
  Result<void*> allocate(int64_t bytes) override { return gpu_->allocate(bytes); }
  void release(void* data, int64_t bytes) override { gpu_->release(data, bytes); }
  Result<void*> allocate_host(int64_t bytes) override {
    pinned_bytes += bytes;
    return gpu_->allocate_host(bytes);
  }
  void release_host(void* data, int64_t bytes) override { gpu_->release_host(data, bytes); }
  Result<std::unique_ptr<Stream>> make_stream() override { return gpu_->make_stream(); }

  int64_t pinned_bytes = 0;

 private:
  std::unique_ptr<Device> gpu_;
};

class CudaModelDivided : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    before_ = set_streams_late(true);
    setenv("JIGE_EMULATED_GPUS", "3", 1);
  }
  void TearDown() override {
    unsetenv("JIGE_EMULATED_GPUS");
    set_streams_late(before_);
  }

  static std::string tiny_model(const std::string& name) { return serve::testing::fixture(name); }
  // GPU `index`, or one that stands for it.
  static std::unique_ptr<Device> gpu_at(size_t index) {
    const auto gpus = value_of(list_cuda_devices());
    return value_of(make_cuda_device(static_cast<int>(index % gpus.size())));
  }
  static std::shared_ptr<serve::LocalHolder> holder_of(const std::string& folder, size_t index,
                                                       int64_t memory_bytes = kHolderRoom,
                                                       int64_t bytes_per_s = kGpu.bytes_per_s) {
    serve::LayerComputer computer = kGpu;
    computer.bytes_per_s = bytes_per_s;
    return value_of(serve::LocalHolder::create(
        "cuda:" + std::to_string(index), gpu_at(index),
        {.folder = folder, .gpu = computer, .memory_bytes = memory_bytes}));
  }
  struct Place {
    size_t gpus = 2;  // that hold layers, the first of them here
    std::vector<comm::Address> holders = {};
    int64_t piece_rows = 0;
    int64_t layers_here = 1;
    int64_t forwards_max = 1;
  };
  // On this GPU and others.
  Result<serve::DividedModel> divide(const std::string& folder, const InferenceOptions& options,
                                     const Place& place) {
    serve::LayerGroupOptions group{
        .holders = place.holders, .gpu = kGpu, .piece_rows = place.piece_rows, .connect_s = 20};
    for (size_t i = 1; i < place.gpus; ++i) group.local.push_back(holder_of(folder, i));
    JIGE_TRY(auto connected, serve::LayerGroup::connect(folder, group));
    return serve::load_divided(folder, *gpu_, options, std::move(connected),
                               {.memory_bytes = kHolderRoom,
                                .layers_here = place.layers_here,
                                .forwards_max = place.forwards_max});
  }
  std::unique_ptr<InferenceModel> whole(const std::string& folder,
                                        const InferenceOptions& options) {
    return value_of(InferenceModel::load(folder, *gpu_, options));
  }
  static InferenceOptions options(DType compute) {
    InferenceOptions made{.compute = compute, .context_max = 64, .batch_tokens_max = 32};
    made.kv_block_count = 8;
    return made;
  }
  // Logits of some rows of a prompt that is run in forwards of so many rows, and of a step behind
  // it. They are few, since the order of the head's sums depends on whether there are more than 16.
  static std::vector<float> prompt_logits(InferenceModel& model, int32_t forward_rows) {
    constexpr int32_t kRows = 27;
    const std::vector<int32_t> blocks = {3, 0};
    std::vector<int32_t> tokens(kRows + 1);
    for (int32_t i = 0; i <= kRows; ++i) tokens[static_cast<size_t>(i)] = i * 7 % 31;
    std::vector<float> all;
    const auto run = [&](int32_t begin, int32_t end) {
      const ops::SequenceSpan sequence{
          .row_count = end - begin, .context_count = begin, .blocks = blocks.data()};
      std::vector<int32_t> rows;
      for (const int32_t row : {0, 3, 4, 11, 19, 20, 26, kRows}) {
        if (row >= begin && row < end) rows.push_back(row - begin);
      }
      const auto count = static_cast<size_t>(end - begin);
      const auto logits = value_of(
          model.forward({.tokens = std::span(tokens).subspan(static_cast<size_t>(begin), count),
                         .sequences = std::span(&sequence, 1),
                         .logit_rows = rows}));
      all.insert(all.end(), logits.begin(), logits.end());
    };
    for (int32_t begin = 0; begin < kRows; begin += forward_rows) {
      run(begin, std::min(kRows, begin + forward_rows));
    }
    run(kRows, kRows + 1);
    return all;
  }

  bool before_ = false;
};

TEST_F(CudaModelDivided, HasTheBitsOfOneGpu) {
  for (const char* name : {"llama3", "gemma2", "qwen3_moe", "qwen3_next", "deepseek_v2"}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(name);
      const std::vector<float> expected =
          TwoSequences(*whole(tiny_model(name), options(compute))).run();
      for (const size_t gpus : {2, 3}) {
        const Place place{.gpus = gpus, .layers_here = gpus == 2 ? 1 : 0};
        const auto parts = value_of(divide(tiny_model(name), options(compute), place));
        ASSERT_EQ(parts.shares.size(), gpus);
        EXPECT_EQ(TwoSequences(*parts.model).run(), expected) << gpus << " GPUs";
      }
    }
  }
  InferenceOptions few_bits = options(DType::kBF16);
  few_bits.format = ops::WeightFormat::kQ4;
  few_bits.kv_dtype = DType::kI8;
  const auto parts = value_of(divide(tiny_model("exaone4"), few_bits, {}));
  EXPECT_EQ(TwoSequences(*parts.model).run(),
            TwoSequences(*whole(tiny_model("exaone4"), few_bits)).run());
}

// Attention over a cache, and products of many rows, may add in an order that depends on how many
// rows come together: a forward has the bits of its pieces as forwards.
TEST_F(CudaModelDivided, PiecesOfAPromptHaveTheBitsOfForwardsOfSuchRows) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const auto one = whole(tiny_model("llama3"), options(compute));
    for (const int32_t piece_rows : {1, 5, 9, 20}) {
      const auto parts = value_of(divide(tiny_model("llama3"), options(compute),
                                         {.gpus = 3, .piece_rows = piece_rows, .layers_here = 0}));
      EXPECT_EQ(prompt_logits(*parts.model, 27), prompt_logits(*one, piece_rows)) << piece_rows;
    }
    const auto parts = value_of(divide(tiny_model("llama3"), options(compute), {}));
    EXPECT_EQ(parts.beyond->piece_rows(4096), 512);
    EXPECT_EQ(prompt_logits(*parts.model, 27), prompt_logits(*one, 27));
  }
}

TEST_F(CudaModelDivided, CopiesOfBlocksAndStatesAndLossesAreThoseOfOneGpu) {
  const auto answers = [](InferenceModel& model) {
    const std::vector<int32_t> blocks = {5}, copies = {6};
    const std::vector<int32_t> tokens = {3, 9, 27, 19, 4};
    const ops::SequenceSpan prompt{.row_count = 4, .blocks = blocks.data()};
    const std::vector<model::TargetRow> targets = {
        {.row = 2, .token = 1}, {.row = 0, .token = 5}, {.row = 2, .token = 2}};
    std::vector<float> all;
    const auto add = [&](std::span<const float> values) {
      all.insert(all.end(), values.begin(), values.end());
    };
    add(value_of(model.losses({.tokens = std::span(tokens).first(4),
                               .sequences = std::span(&prompt, 1),
                               .logit_rows = {}},
                              targets)));
    EXPECT_TRUE(model.copy_block(5, 6));
    ops::SequenceSpan step{.row_count = 1, .context_count = 4, .blocks = copies.data()};
    if (model.sizes().state_count > 0) {
      EXPECT_TRUE(model.copy_state(0, 1));
      step.state = 1;
    }
    const std::vector<int32_t> row = {0};
    add(value_of(model.forward({.tokens = std::span(tokens).subspan(4),
                                .sequences = std::span(&step, 1),
                                .logit_rows = row})));
    return all;
  };
  for (const char* name : {"llama3", "qwen3_next"}) {
    InferenceOptions some = options(DType::kF32);
    some.scores = true;
    const auto parts = value_of(divide(tiny_model(name), some, {.piece_rows = 3}));
    EXPECT_EQ(answers(*parts.model), answers(*whole(tiny_model(name), some))) << name;
  }
}

TEST_F(CudaModelDivided, AnEngineGivesTheSameAnswersWithBatchesInFlight) {
  InferenceOptions some = options(DType::kF32);
  some.kv_block_count = 40;
  const text::Tokenizer tokenizer = serve::testing::character_tokenizer();
  const auto answers = [&](InferenceModel& model, int32_t batches) {
    const auto engine = value_of(serve::Engine::create(
        model, tokenizer,
        {.batches_in_flight = batches, .in_flight_requests_min = 1, .drafts = {.tokens_max = 0}}));
    std::vector<std::shared_ptr<serve::testing::KeepingSink>> sinks;
    for (int32_t i = 0; i < 8; ++i) {
      serve::EngineRequest request{.tokens_max = 12, .ignore_eos = true};
      for (int32_t t = 0; t < 5 + i % 3; ++t) request.prompt.push_back(3 + (i * 13 + t * 7) % 90);
      request.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
      request.seed = static_cast<uint64_t>(i);
      sinks.push_back(std::make_shared<serve::testing::KeepingSink>());
      value_of(engine->submit(request, sinks.back()));
    }
    std::vector<serve::testing::Outcome> outcomes;
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->wait(60));
      outcomes.push_back(sink->outcome);
    }
    return outcomes;
  };
  const auto expected = answers(*whole(tiny_model("llama3"), some), 1);
  const auto parts = value_of(
      divide(tiny_model("llama3"), some, {.gpus = 3, .layers_here = 0, .forwards_max = 3}));
  for (const int32_t batches : {1, 2, 3}) {
    EXPECT_EQ(answers(*parts.model, batches), expected) << batches << " batches";
  }
}

TEST_F(CudaModelDivided, AGpuWithFasterMemoryHasMoreLayers) {
  const InferenceOptions some = options(DType::kF32);
  const std::string folder = tiny_model("exaone4");  // four layers
  for (const int64_t times : {1, 3}) {
    serve::LayerGroupOptions group{
        .local = {holder_of(folder, 1, kHolderRoom, times * kGpu.bytes_per_s)},
        .gpu = kGpu,
        .connect_s = 20};
    const auto parts = value_of(serve::load_divided(
        folder, *gpu_, some, value_of(serve::LayerGroup::connect(folder, group)),
        {.memory_bytes = kHolderRoom}));
    ASSERT_EQ(parts.shares.size(), 2u);
    EXPECT_EQ(parts.shares[0].end, times == 1 ? 2 : 1);
  }
}

// Only last bits differ where another kind of device computes.
TEST_F(CudaModelDivided, ProcessorsAndGpusShareAModel) {
  const InferenceOptions some = options(DType::kF32);
  for (const char* name : {"llama3", "qwen3_moe", "qwen3_next"}) {
    SCOPED_TRACE(name);
    const std::vector<float> expected = TwoSequences(*whole(tiny_model(name), some)).run();
    const auto expect_near = [&](InferenceModel& model) {
      const std::vector<float> got = TwoSequences(model).run();
      ASSERT_EQ(got.size(), expected.size());
      float most = 0, size = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        most = std::max(most, std::abs(got[i] - expected[i]));
        size = std::max(size, std::abs(expected[i]));
      }
      EXPECT_LT(most, 3e-5f * size);
    };
    HolderThread processor(tiny_model(name), kHolderRoom);
    const auto head_on_gpu =
        value_of(divide(tiny_model(name), some, {.gpus = 1, .holders = {processor.address()}}));
    ASSERT_EQ(head_on_gpu.shares.size(), 2u);
    expect_near(*head_on_gpu.model);

    CpuDevice device({.thread_count = 1});
    auto group = value_of(serve::LayerGroup::connect(
        tiny_model(name), {.local = {holder_of(tiny_model(name), 0)}, .connect_s = 20}));
    const auto head_on_cpu =
        value_of(serve::load_divided(tiny_model(name), device, some, std::move(group),
                                     {.memory_bytes = kHolderRoom, .layers_here = 1}));
    expect_near(*head_on_cpu.model);
  }
}

TEST_F(CudaModelDivided, TakesExactlyThePlannedMemory) {
  const auto config = value_of(formats::load_model_config(tiny_model("llama3")));
  for (const bool ends : {true, false}) {
    InferenceOptions some = options(DType::kBF16);
    some.forwards_max = ends ? 3 : 1;
    const auto pinned_of = [&](const model::LayerRange& layers, int64_t* planned) {
      CountedPinned gpu(gpu_at(0));
      some.layers = layers;
      const auto loaded = value_of(InferenceModel::load(tiny_model("llama3"), gpu, some));
      const model::InferenceMemory memory =
          model::inference_memory(loaded->architecture(), loaded->sizes());
      EXPECT_EQ(loaded->peak_bytes(), memory.total_bytes());
      *planned = memory.host_rows_bytes;
      return gpu.pinned_bytes;
    };
    int64_t planned = 0, planned_of_whole = 0;
    const int64_t parts = pinned_of(ends ? model::LayerRange{.begin = 0, .end = 1}
                                         : model::LayerRange{.begin = 1, .ends = false},
                                    &planned);
    const int64_t all = pinned_of({}, &planned_of_whole);
    EXPECT_EQ(planned_of_whole, 0);
    EXPECT_EQ(planned, (ends ? 3 : 1) * 32 * config.hidden_size * 4);
    EXPECT_EQ(parts - all, planned);
  }
}

TEST_F(CudaModelDivided, LayersOfAMachineThatComesBackAreAskedForWithThoseOfGpus) {
  const InferenceOptions some = options(DType::kF32);
  auto processor = std::make_unique<HolderThread>(tiny_model("llama3"), kHolderRoom);
  const comm::Address address = processor->address();
  // Of a GPU as slow as the processor, or that would have no layer.
  serve::LayerGroupOptions group{
      .local = {holder_of(tiny_model("llama3"), 1, kHolderRoom, serve::kThreadBytesPerS)},
      .holders = {address},
      .gpu = kGpu,
      .connect_s = 20};
  const auto parts = value_of(
      serve::load_divided(tiny_model("llama3"), *gpu_, some,
                          value_of(serve::LayerGroup::connect(tiny_model("llama3"), group)),
                          {.memory_bytes = kHolderRoom, .layers_here = 0, .restore_s = 60}));
  ASSERT_EQ(parts.shares.size(), 3u);
  const std::vector<float> expected = TwoSequences(*parts.model).run();
  processor.reset();
  const std::vector<int32_t> tokens = {1}, blocks = {0};
  const ops::SequenceSpan sequence{.row_count = 1, .blocks = blocks.data()};
  const model::InferenceBatch batch{
      .tokens = tokens, .sequences = std::span(&sequence, 1), .logit_rows = {}};
  EXPECT_FALSE(parts.model->forward(batch));
  EXPECT_FALSE(value_of(parts.beyond->restore()));
  processor = std::make_unique<HolderThread>(tiny_model("llama3"), kHolderRoom, nullptr, address);
  bool back = false;
  for (int i = 0; i < 4000 && !back; ++i) {
    back = value_of(parts.beyond->restore());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(back);
  EXPECT_EQ(TwoSequences(*parts.model).run(), expected);
}

TEST_F(CudaModelDivided, WhatDoesNotFitIsRefusedWithTheNumbers) {
  const InferenceOptions some = options(DType::kF32);
  serve::LayerGroupOptions group{
      .local = {holder_of(tiny_model("llama3"), 1, 1 << 16)}, .gpu = kGpu, .connect_s = 20};
  const auto refused = serve::load_divided(
      tiny_model("llama3"), *gpu_, some,
      value_of(serve::LayerGroup::connect(tiny_model("llama3"), group)), {.memory_bytes = 1 << 17});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_NE(refused.error().message.find("cuda:1"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace jige
