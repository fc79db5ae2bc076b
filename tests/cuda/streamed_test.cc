// Models some of whose layers stream from the host, beside the same with all layers on the GPU: the
// same bits, with streams that run late.
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/test_device.h"
#include "cuda/two_sequences.h"
#include "model/inference.h"
#include "plan/streamed_layers.h"
#include "serve/engine.h"
#include "serve/engine_test_support.h"
#include "serve/layer_fit.h"
#include "serve/scorer.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige {
namespace {

using model::InferenceModel;
using model::InferenceOptions;
using serve::testing::KeepingSink;

constexpr int64_t kLayers = 6;

class CudaModelStreamed : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    before_ = set_streams_late(true);
  }
  void TearDown() override { set_streams_late(before_); }

  // A model of six layers, trained for a step, with an adapter beside it where one is wanted.
  std::string six_layers(bool with_adapter = false) {
    const std::string data = folder_.file("corpus.jsonl");
    std::ofstream(data) << train::small_corpus(40);
    train::TrainOptions made = train::tiny_options(folder_, {data});
    made.out_folder = folder_.file("base");
    made.config->layer_count = kLayers;
    made.context = 16;
    made.micro_batch_tokens = made.step_tokens = 64;
    made.steps = 1;
    EXPECT_TRUE(train::train(made));
    const std::string base = made.out_folder + "/model";
    if (with_adapter) {
      train::TrainOptions tuning = train::tuning_options(made, base, folder_.file("tuned"));
      tuning.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
      EXPECT_TRUE(train::train(tuning));
    }
    return base;
  }
  static InferenceOptions options(DType compute) {
    InferenceOptions made{.compute = compute, .context_max = 32, .batch_tokens_max = 16};
    made.kv_block_count = 4;
    return made;
  }
  static void stream(InferenceOptions& options, int64_t layer_count, int64_t resident_count) {
    options.streamed_layers = plan::streamed_layers(layer_count, resident_count);
    options.slot_count = plan::kStreamSlots;
  }
  std::unique_ptr<InferenceModel> load(const std::string& folder, const InferenceOptions& options) {
    auto loaded = InferenceModel::load(folder, *gpu_, options);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded ? std::move(*loaded) : nullptr;
  }
  std::vector<float> logits(const std::string& folder, const InferenceOptions& options,
                            int32_t adapter = model::kNoAdapter) {
    const auto loaded = load(folder, options);
    if (!loaded) return {};
    EXPECT_EQ(loaded->layer_stream() != nullptr, !options.streamed_layers.empty());
    return TwoSequences(*loaded, adapter).run();
  }
  // All layers of a fixture stream, through two slots and one.
  void expect_same_logits(const std::string& name, InferenceOptions options) {
    SCOPED_TRACE(name);
    const std::string folder = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + name;
    const auto config = formats::load_model_config(folder);
    ASSERT_TRUE(config) << config.error().message;
    const std::vector<float> expected = logits(folder, options);
    ASSERT_FALSE(expected.empty());
    stream(options, config->layer_count, 0);
    EXPECT_EQ(logits(folder, options), expected);
    options.slot_count = 1;
    EXPECT_EQ(logits(folder, options), expected);
  }

  bool before_ = false;
  train::TestFolder folder_;
};

TEST_F(CudaModelStreamed, GivesTheLogitsOfLayersThatStay) {
  const std::string folder = six_layers();
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    InferenceOptions some = options(compute);
    const std::vector<float> expected = logits(folder, some);
    ASSERT_FALSE(expected.empty());
    for (int64_t resident = 0; resident < kLayers; ++resident) {
      stream(some, kLayers, resident);
      EXPECT_EQ(logits(folder, some), expected) << resident << " layers stay";
    }
  }
}

TEST_F(CudaModelStreamed, GivesTheLogitsOfLayersOfEveryKind) {
  for (const char* name : {"gemma3n", "deepseek_v2", "qwen2_moe", "granite_hybrid", "gpt2"}) {
    expect_same_logits(name, options(DType::kBF16));
  }
  InferenceOptions few_bits = options(DType::kBF16);
  few_bits.format = ops::WeightFormat::kQ4;
  few_bits.kv_dtype = DType::kI8;
  expect_same_logits("exaone4", few_bits);
  few_bits.kv_dtype = {};
  expect_same_logits("qwen2_moe", few_bits);
  few_bits.format = ops::WeightFormat::kMxfp4;
  expect_same_logits("gpt_oss_mxfp4", few_bits);
  // In f32 they are turned back in the strip.
  few_bits.format = ops::WeightFormat::kQ8;
  few_bits.compute = DType::kF32;
  expect_same_logits("exaone4", few_bits);
}

TEST_F(CudaModelStreamed, GivesTheLogitsOfAnAdapter) {
  const std::string folder = six_layers(true);
  InferenceOptions some = options(DType::kBF16);
  some.adapters.push_back({.name = "a", .folder = folder_.file("tuned") + "/adapter"});
  const std::vector<float> expected = logits(folder, some, 0);
  EXPECT_NE(logits(folder, some), expected);
  for (const int64_t resident : {0, 3}) {
    stream(some, kLayers, resident);
    EXPECT_EQ(logits(folder, some, 0), expected);
  }
}

// Requests of an engine: one in its first iteration and all others in the second, with drafts of
// one length. Last bits depend on what runs together.
TEST_F(CudaModelStreamed, AnEngineGivesTheSameAnswers) {
  const std::string folder = six_layers();
  const text::Tokenizer tokenizer = train::load_test_tokenizer(folder);
  InferenceOptions some = options(DType::kBF16);
  some.context_max = 48;
  some.kv_block_count = 12;
  const auto answers = [&] {
    const auto loaded = load(folder, some);
    serve::testing::Gate gate;
    serve::EngineOptions engine_options{.drafts = {.tokens_max = 3, .adaptive = false}};
    engine_options.faults.before_forward = gate.hook();
    auto engine = serve::Engine::create(*loaded, tokenizer, engine_options);
    EXPECT_TRUE(engine) << engine.error().message;
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (int i = 0; i < 5; ++i) {
      serve::EngineRequest request;
      for (int at = 0; at < 4 + 5 * i; ++at) request.prompt.push_back(65 + at % 3 + i);
      request.sampling.temperature = 0.3 * i;
      request.seed = static_cast<uint64_t>(i);
      request.tokens_max = 6;
      request.ignore_eos = true;
      sinks.push_back(std::make_shared<KeepingSink>());
      EXPECT_TRUE((*engine)->submit(std::move(request), sinks.back()));
      if (i == 0) gate.wait_until_held();
    }
    gate.open();
    serve::testing::Outcome all;
    for (const auto& sink : sinks) {
      EXPECT_TRUE(sink->wait(120));
      EXPECT_FALSE(sink->error);
      all.push_back(sink->outcome.front());
    }
    (*engine)->stop();
    return all;
  };
  const serve::testing::Outcome expected = answers();
  for (const int64_t resident : {0, 2, 4}) {
    stream(some, kLayers, resident);
    EXPECT_EQ(answers(), expected) << resident;
  }
}

TEST_F(CudaModelStreamed, ScoresTheSame) {
  const std::string folder = six_layers();
  InferenceOptions some = options(DType::kF32);
  some.scores = true;
  const auto scores = [&] {
    const auto loaded = load(folder, some);
    serve::Scorer scorer(*loaded);
    const std::vector<int32_t> tokens = {70, 71, 72, 90, 71, 72, 73, 100, 65, 66, 67, 68, 90, 91};
    const auto got = scorer.score(tokens);
    EXPECT_TRUE(got) << got.error().message;
    return got->logprobs;
  };
  const std::vector<float> expected = scores();
  EXPECT_EQ(expected.size(), 13u);
  stream(some, kLayers, 1);
  EXPECT_EQ(scores(), expected);
}

TEST_F(CudaModelStreamed, GivesTheSameVectors) {
  const std::string folder = six_layers();
  InferenceOptions some = options(DType::kBF16);
  some.embeds = true;
  const auto vectors = [&] {
    const auto loaded = load(folder, some);
    const std::vector<int32_t> tokens = {70, 71, 72, 90, 71};
    const std::vector<int32_t> blocks = {1};
    const ops::SequenceSpan span{.row_count = 5, .blocks = blocks.data()};
    EXPECT_TRUE(loaded->forward({.tokens = tokens, .sequences = {&span, 1}}));
    const int32_t wanted[] = {4, 1};
    const auto rows = loaded->hidden_of(wanted);
    EXPECT_TRUE(rows) << rows.error().message;
    return std::vector<float>(rows->begin(), rows->end());
  };
  const std::vector<float> expected = vectors();
  stream(some, kLayers, 2);
  EXPECT_EQ(vectors(), expected);
}

TEST_F(CudaModelStreamed, TakesTheMemoryThatIsPlannedAndNoMore) {
  const std::string folder = six_layers();
  InferenceOptions plain = options(DType::kBF16);
  plain.format = ops::WeightFormat::kQ8;
  int64_t before = 0;
  for (int64_t resident = 0; resident < kLayers - plan::kStreamSlots; ++resident) {
    InferenceOptions some = plain;
    stream(some, kLayers, resident);
    const auto loaded = load(folder, some);
    ASSERT_TRUE(loaded);
    const model::InferenceMemory plan =
        model::inference_memory(loaded->architecture(), loaded->sizes());
    const int64_t bytes = plan.total_bytes();
    EXPECT_EQ(loaded->peak_bytes(), bytes);
    EXPECT_GT(bytes, before);
    before = bytes;
    const auto fitted = serve::fit_layers(folder, plain, {.device_bytes = bytes}, gpu_->kind());
    ASSERT_TRUE(fitted) << fitted.error().message;
    EXPECT_EQ(fitted->streamed_layers, some.streamed_layers);
    some.memory_bytes_max = bytes;
    EXPECT_TRUE(load(folder, some));
    some.memory_bytes_max = bytes - 1;
    EXPECT_FALSE(InferenceModel::load(folder, *gpu_, some));
  }
}

}  // namespace
}  // namespace jige
