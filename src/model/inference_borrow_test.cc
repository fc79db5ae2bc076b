// An inference model on the weights of one that is being trained.
#include <numeric>

#include "formats/tensor_folder.h"
#include "model/inference.h"
#include "model/inference_sizes.h"
#include "model/init.h"
#include "model/model_test_support.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::succeed;

constexpr int64_t kPositions = 48;

InferenceOptions lent_options(DType compute) {
  return {.compute = compute,
          .kv_dtype = compute,
          .context_max = kPositions,
          .state_count = 1,
          .batch_tokens_max = 32,
          .logit_rows_max = 4};
}

// Logits behind a prompt that runs in two pieces.
std::vector<float> lent_logits(InferenceModel& model) {
  std::vector<int32_t> tokens(21);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] =
        static_cast<int32_t>((5 * i * i + 2) % static_cast<size_t>(model.config().vocab_size));
  }
  std::vector<int32_t> blocks(static_cast<size_t>(model.sizes().kv_block_count));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<float> logits;
  int32_t done = 0;
  for (const int32_t count : {20, 1}) {
    const ops::SequenceSpan span{
        .row_count = count, .context_count = done, .blocks = blocks.data()};
    const int32_t last = count - 1;
    const auto rows = model.forward(
        {.tokens = std::span(tokens).subspan(static_cast<size_t>(done), static_cast<size_t>(count)),
         .sequences = std::span(&span, 1),
         .logit_rows = std::span(&last, 1)});
    EXPECT_TRUE(rows) << rows.error().message;
    if (rows) logits.insert(logits.end(), rows->begin(), rows->end());
    done += count;
  }
  return logits;
}

struct Lender {
  explicit Lender(const std::string& name, DType compute,
                  std::optional<formats::LoraConfig> lora = {})
      : arena(device, "weights", kUnlimitedBytes), stream(*device.make_stream()) {
    const std::string folder = fixture(name);
    architecture = *Architecture::create(*formats::load_model_config(folder), std::move(lora));
    weights = *ModelWeights::create(
        arena, *architecture,
        {.compute = compute, .use = PackFor::kTraining, .position_count = kPositions});
    succeed(load_weights(*weights, *stream, *formats::TensorFolder::open(folder)));
    stream->synchronize();
  }

  CpuDevice device;
  Arena arena;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<const Architecture> architecture;
  std::optional<ModelWeights> weights;
};

TEST(BorrowedWeights, GiveTheBitsOfTheSameModelFromItsFolder) {
  for (const char* name : {"llama2", "gpt2", "gemma3n", "qwen3_5", "granite_hybrid", "falcon_h1",
                           "falcon_mamba", "mixtral", "phi"}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(std::string(name) + " " + std::string(dtype_info(compute).name));
      Lender lender(name, compute);
      const InferenceOptions options = lent_options(compute);
      const auto lent = InferenceModel::borrow(*lender.weights, lender.device, options);
      ASSERT_TRUE(lent) << lent.error().message;
      const auto own = InferenceModel::load(fixture(name), lender.device, options);
      ASSERT_TRUE(own) << own.error().message;
      EXPECT_EQ(lent_logits(**lent), lent_logits(**own));
      const InferenceMemory memory = inference_memory(
          *lender.architecture,
          *borrowed_sizes(options, *lender.architecture, lender.weights->options()));
      EXPECT_EQ((*lent)->peak_bytes(), memory.total_bytes() - memory.weights.total_bytes());
    }
  }
}

TEST(BorrowedWeights, AreFollowedWhereTheyChangeAndBringTheirAdapters) {
  Lender lender("llama2", DType::kF32, formats::LoraConfig{.rank = 2, .alpha = 4});
  const InferenceOptions options = lent_options(DType::kF32);
  const auto lent = InferenceModel::borrow(*lender.weights, lender.device, options);
  ASSERT_TRUE(lent) << lent.error().message;
  const auto own = InferenceModel::load(fixture("llama2"), lender.device, options);
  ASSERT_TRUE(own) << own.error().message;
  // The second matrices of adapters are zero.
  initialise_weights(*lender.weights, *lender.stream, 3);
  lender.stream->synchronize();
  EXPECT_EQ(lent_logits(**lent), lent_logits(**own));
  for (const NamedParam& param : lender.weights->trainable()) {
    std::fill_n(param.value.as<float>(), param.value.count(), 0.05F);
  }
  lender.weights->pack(*lender.stream);
  lender.stream->synchronize();
  EXPECT_NE(lent_logits(**lent), lent_logits(**own));
}

TEST(BorrowedWeights, AreRefusedOfModelsWithLatents) {
  Lender lender("deepseek_v3", DType::kF32);
  const auto lent =
      InferenceModel::borrow(*lender.weights, lender.device, lent_options(DType::kF32));
  ASSERT_FALSE(lent);
  EXPECT_EQ(lent.error().code, Code::kUnsupported);
}

TEST(BorrowedWeights, HaveNoMorePositionsThanTheirTable) {
  Lender lender("llama2", DType::kF32);
  InferenceOptions options = lent_options(DType::kF32);
  options.context_max = kPositions + 1;
  const auto lent = InferenceModel::borrow(*lender.weights, lender.device, options);
  ASSERT_FALSE(lent);
  EXPECT_EQ(lent.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace jige::model
