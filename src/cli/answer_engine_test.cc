// Answers that the serving engine draws with weights that are being trained: that their
// log-probabilities are those that the trainer computes, and that nothing else decides them.

#include "cli/answer_engine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "formats/tensor_folder.h"
#include "model/init.h"
#include "model/memory_plan.h"
#include "train/executor.h"
#include "train/test_support.h"

namespace jige::cli {
namespace {

constexpr int64_t kContext = 48;

struct LearnerOptions {
  DType compute = DType::kF32;
  std::optional<formats::LoraConfig> lora = {};
  std::string base = {};  // of the fixtures; empty: a new one
  uint64_t seed = 7;
};

// A model with random weights as a trainer holds them.
struct Learner {
  explicit Learner(const LearnerOptions& options)
      : arena(device, "weights", kUnlimitedBytes), stream(*device.make_stream()) {
    const bool has_base = !options.base.empty();
    const std::string base = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/" + options.base;
    const auto config = has_base ? *formats::load_model_config(base) : train::tiny_config();
    architecture = *model::Architecture::create(config, options.lora);
    weights = *model::ModelWeights::create(
        arena, *architecture,
        {.compute = options.compute, .use = model::PackFor::kTraining, .position_count = kContext});
    if (has_base) {
      EXPECT_TRUE(model::load_weights(*weights, *stream, *formats::TensorFolder::open(base)));
    }
    if (!has_base || options.lora) {
      model::initialise_weights(*weights, *stream, options.seed);
    }
    // Sharper than at the beginning, and adapters that do something.
    for (const model::NamedParam& param : weights->trainable()) {
      float* values = param.value.as<float>();
      for (int64_t i = 0; i < param.value.count(); ++i) {
        values[i] = (has_base && !param.spec->adapter ? 1 : 3) * values[i] +
                    (param.spec->adapter ? 0.01F : 0.0F);
      }
    }
    weights->pack(*stream);
    stream->synchronize();
    executor = *train::Executor::create(arena, *weights, kContext);
  }

  // Of the tokens of an answer, by the passes that learn.
  std::vector<float> logprobs(const std::vector<int32_t>& prompt,
                              const std::vector<int32_t>& answer) {
    std::vector<int32_t> text = prompt;
    text.insert(text.end(), answer.begin(), answer.end());
    train::HostBatch batch;
    batch.tokens.assign(text.begin(), text.end() - 1);
    batch.targets.assign(text.begin() + 1, text.end());
    for (size_t i = 0; i + 1 < text.size(); ++i) {
      batch.positions.push_back(static_cast<int32_t>(i));
    }
    batch.counts = {static_cast<int32_t>(batch.tokens.size())};
    executor->load(*stream, batch, {});
    executor->evaluate(*stream);
    std::vector<float> found;
    for (const float loss : executor->token_losses(*stream).last(answer.size())) {
      found.push_back(-loss);
    }
    return found;
  }

  CpuDevice device;
  Arena arena;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<const model::Architecture> architecture;
  std::optional<model::ModelWeights> weights;
  std::optional<train::Executor> executor;
};

class AnswerEngineTest : public testing::Test {
 protected:
  void SetUp() override { train::write_test_tokenizer(folder_.file("tokenizer")); }

  std::shared_ptr<train::AnswerSource> attach(Learner& learner, int64_t answers_max = 12) {
    const train::DrawSizes sizes{.context = kContext, .answers_max = answers_max, .group = 5};
    auto source = make_answer_engine();
    const Status attached =
        source->attach(*learner.weights, learner.device, folder_.file("tokenizer"), sizes);
    EXPECT_TRUE(attached) << attached.error().message;
    const auto bytes =
        source->memory_bytes(*learner.architecture, learner.weights->options(), sizes);
    EXPECT_EQ(*bytes, source->peak_bytes());
    return source;
  }
  std::vector<train::DrawRequest> requests(int64_t tokens_max = 20) const {
    std::vector<train::DrawRequest> made;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      made.push_back(
          {.prompt = prompts_[i], .seed = i, .count = 5, .options = {.tokens_max = tokens_max}});
    }
    return made;
  }

  const train::TestFolder folder_;
  const std::vector<std::vector<int32_t>> prompts_ = {
      {72, 91, 18}, {65}, {90, 89, 88, 87, 86, 85, 84, 83, 82, 81, 80, 79, 78, 77, 76, 75, 74}};
};

TEST_F(AnswerEngineTest, DrawsWithTheProbabilitiesThatTheTrainerComputes) {
  std::vector<LearnerOptions> kinds = {
      {},
      {.lora = formats::LoraConfig{.rank = 2, .alpha = 4}, .base = "llama2"},
      {.compute = DType::kBF16}};
  // Windows, biases, experts, recurrent layers and keys that layers share.
  for (const char* name :
       {"gpt2", "mixtral", "qwen3_5", "falcon_h1", "gemma3n", "granite_hybrid"}) {
    kinds.push_back({.base = name});
  }
  for (const LearnerOptions& kind : kinds) {
    SCOPED_TRACE(std::string(dtype_info(kind.compute).name) + (kind.lora ? " lora " : " ") +
                 kind.base);
    Learner learner(kind);
    const auto source = attach(learner);
    const auto groups = source->draw(requests(), {});
    ASSERT_TRUE(groups) << groups.error().message;
    double gap = 0, tokens = 0;
    for (size_t i = 0; i < groups->size(); ++i) {
      for (const train::DrawnAnswer& answer : (*groups)[i]) {
        ASSERT_EQ(answer.tokens.size(), answer.logprobs.size());
        const std::vector<float> learned = learner.logprobs(prompts_[i], answer.tokens);
        EXPECT_TRUE(kind.compute != DType::kF32 || answer.logprobs == learned);
        for (size_t k = 0; k < learned.size(); ++k) {
          gap += std::abs(learned[k] - answer.logprobs[k]);
        }
        tokens += static_cast<double>(learned.size());
      }
    }
    EXPECT_GT(tokens, 100);
    EXPECT_LT(gap / tokens, 1e-2) << gap / tokens;
  }
}

TEST_F(AnswerEngineTest, DrawsTheSameWhateverIsDrawnBeside) {
  Learner learner({});
  const auto source = attach(learner);
  const std::vector<train::DrawRequest> all = requests();
  const auto together = source->draw(all, {});
  ASSERT_TRUE(together);
  EXPECT_EQ(*source->draw(all, {}), *together);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ((*source->draw(std::span(all).subspan(i, 1), {}))[0], (*together)[i]);
  }
  const auto few = attach(learner, 5);
  EXPECT_EQ(*few->draw(all, {}), *together);
  // Answers of a group are not all the same, nor are those of another seed.
  EXPECT_NE((*together)[0][0], (*together)[0][1]);
  std::vector<train::DrawRequest> other = requests();
  other[0].seed = 99;
  EXPECT_NE((*source->draw(other, {}))[0], (*together)[0]);
}

TEST_F(AnswerEngineTest, DrawsWithTheWeightsAsTheyAreNow) {
  Learner learner({});
  const auto source = attach(learner);
  const auto before = source->draw(requests(), {});
  ASSERT_TRUE(before);
  for (const model::NamedParam& param : learner.weights->trainable()) {
    float* values = param.value.as<float>();
    for (int64_t i = 0; i < param.value.count(); ++i) values[i] *= 1.5F;
  }
  learner.weights->pack(*learner.stream);
  learner.stream->synchronize();
  const auto after = source->draw(requests(), {});
  ASSERT_TRUE(after);
  EXPECT_NE(*after, *before);
  EXPECT_EQ((*after)[1][2].logprobs, learner.logprobs(prompts_[1], (*after)[1][2].tokens));
}

TEST_F(AnswerEngineTest, EndsAnswersAtTheirEndOrLengthAndTellsWhich) {
  Learner learner({});
  const auto source = attach(learner);
  bool ended = false, cut = false;
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    train::DrawRequest request{
        .prompt = prompts_[0], .seed = seed, .count = 5, .options = {.tokens_max = 40}};
    request.options.temperature = 3;
    const auto groups = source->draw(std::span(&request, 1), {});
    ASSERT_TRUE(groups);
    for (const train::DrawnAnswer& answer : (*groups)[0]) {
      EXPECT_EQ(answer.cut, answer.tokens.back() != train::kTestEos);
      EXPECT_EQ(std::ranges::count(answer.tokens, train::kTestEos), answer.cut ? 0 : 1);
      EXPECT_EQ(answer.text.find("<|eos|>"), std::string::npos);
      EXPECT_TRUE(!answer.cut || answer.tokens.size() == 40);
      (answer.cut ? cut : ended) = true;
    }
  }
  EXPECT_TRUE(ended);
  EXPECT_TRUE(cut);
}

TEST_F(AnswerEngineTest, LeavesAnswersInTheMidstAndDrawsThemAgain) {
  Learner learner({});
  const auto source = attach(learner);
  const auto whole = source->draw(requests(), {});
  ASSERT_TRUE(whole);
  // Many more than it has drawn when it asks.
  std::vector<train::DrawRequest> many;
  for (int i = 0; i < 3000; ++i) many.push_back(requests()[0]);
  int asked = 0;
  const auto left = source->draw(many, [&]() -> Status {
    if (++asked < 2) return {};
    return fail(Code::kCancelled, "left");
  });
  ASSERT_FALSE(left);
  EXPECT_EQ(left.error().message, "left");
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(*source->draw(requests(), {}), *whole);
}

TEST_F(AnswerEngineTest, FailsWhereWeightsAreNoNumbers) {
  Learner learner({});
  const auto source = attach(learner);
  std::fill_n(learner.weights->trainable()[0].value.as<float>(), 260 * 32, NAN);
  learner.weights->pack(*learner.stream);
  learner.stream->synchronize();
  EXPECT_FALSE(source->draw(requests(), {}));
}

}  // namespace
}  // namespace jige::cli
