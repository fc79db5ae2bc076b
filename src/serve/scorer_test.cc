#include "serve/scorer.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "formats/safetensors.h"
#include "serve/generator.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::fixture;
using testing::ids_of;
using testing::Loaded;
using testing::value_of;

TEST(Scorer, AgreesWithTheRecordedLogits) {
  for (const char* name : {"llama2", "qwen2_5", "gpt2", "gpt_neox", "phi", "qwen3_5"}) {
    const auto file =
        value_of(formats::SafetensorsFile::open(fixture(name) + "/expected.safetensors"));
    const auto tokens = value_of(file.view("tokens"));
    const auto logits = value_of(file.view("logits"));
    const std::span<const int32_t> ids(tokens.as<int32_t>(), static_cast<size_t>(tokens.count()));
    Loaded loaded(name, {.compute = DType::kF32, .scores = true});
    Scorer scorer(*loaded.model);
    const auto scores = value_of(scorer.score(ids));
    ASSERT_EQ(scores.logprobs.size(), ids.size() - 1);
    double total = 0;
    for (size_t row = 0; row + 1 < ids.size(); ++row) {
      const float* values = logits.as<float>() + static_cast<int64_t>(row) * logits.shape[1];
      double sum = 0;
      for (int64_t i = 0; i < logits.shape[1]; ++i) sum += std::exp(double{values[i]});
      const double expected = values[ids[row + 1]] - std::log(sum);
      EXPECT_NEAR(scores.logprobs[row], expected, 1e-4) << name << " token " << row + 1;
      total += expected;
    }
    EXPECT_NEAR(scores.sum(), total, 1e-3);
  }
}

TEST(Scorer, RefusesAModelThatIsNotFinite) {
  const std::string folder = ::testing::TempDir() + "jige_nan." + std::to_string(getpid());
  std::filesystem::copy(fixture("llama2"), folder, std::filesystem::copy_options::recursive);
  const std::string path = folder + "/model.safetensors";
  std::string bytes = value_of(read_file(path));
  std::fill(bytes.end() - 1024, bytes.end(), '\xff');
  ASSERT_TRUE(write_file_atomic(path, bytes));
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(model::InferenceModel::load(folder, device, {.scores = true}));
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  const auto ids = ids_of(tokenizer, "pack my box");
  Scorer scorer(*model);
  EXPECT_EQ(scorer.score(ids).error().code, Code::kCorrupt);
  Generator generator(*model, tokenizer);
  EXPECT_EQ(generator.generate(ids, {.tokens_max = 3}).error().code, Code::kCorrupt);
  std::filesystem::remove_all(folder);
}

TEST(Scorer, DoesNotDependOnChunks) {
  Loaded whole("mistral", {.scores = true});
  Loaded chunks("mistral", {.batch_tokens_max = 7, .logit_rows_max = 1, .scores = true});
  const auto ids = ids_of(whole.tokenizer, "pack my box with five dozen liquor jugs");
  Scorer a(*whole.model);
  Scorer b(*chunks.model);
  EXPECT_EQ(value_of(a.score(ids)).logprobs, value_of(b.score(ids)).logprobs);
}

TEST(Scorer, ChoicesAreScoredAsContinuations) {
  Loaded loaded("llama2", {.scores = true});
  Scorer scorer(*loaded.model);
  const std::string context = "question: is it so? answer:";
  const std::vector<std::string> choices = {" yes", " no", " maybe later", " no"};
  const auto result = value_of(scorer.choose(loaded.tokenizer, context, choices));
  ASSERT_EQ(result.scores.size(), choices.size());
  const size_t context_count = ids_of(loaded.tokenizer, context).size();
  std::vector<double> sums;
  for (size_t i = 0; i < choices.size(); ++i) {
    const auto whole = value_of(scorer.score_text(loaded.tokenizer, context + choices[i]));
    double sum = 0;
    for (size_t t = context_count - 1; t < whole.logprobs.size(); ++t) sum += whole.logprobs[t];
    EXPECT_NEAR(result.scores[i].logprob, sum, 1e-4);
    EXPECT_EQ(result.scores[i].token_count, static_cast<int64_t>(choices[i].size()));
    EXPECT_EQ(result.scores[i].byte_count, static_cast<int64_t>(choices[i].size()));
    EXPECT_DOUBLE_EQ(result.scores[i].per_byte(),
                     result.scores[i].logprob / static_cast<double>(choices[i].size()));
    sums.push_back(result.scores[i].logprob);
  }
  EXPECT_EQ(result.scores[1].logprob, result.scores[3].logprob);
  EXPECT_EQ(result.best, std::max_element(sums.begin(), sums.end()) - sums.begin());
  EXPECT_EQ(result.best_per_token, result.best_per_byte);
}

TEST(Scorer, ChoicesNeedNoContext) {
  Loaded loaded("llama2", {.scores = true});
  Scorer scorer(*loaded.model);
  const std::vector<std::string> choices = {"abc", "abd"};
  const auto result = value_of(scorer.choose(loaded.tokenizer, "", choices));
  EXPECT_EQ(result.scores[0].token_count, 2);  // nothing predicts the first token
  EXPECT_NEAR(result.scores[1].logprob, value_of(scorer.score_text(loaded.tokenizer, "abd")).sum(),
              1e-5);
}

TEST(Scorer, ReusesWhatIsStillInTheCacheAndNothingElse) {
  Loaded loaded("llama2", {.scores = true});
  Scorer scorer(*loaded.model);
  Generator generator(*loaded.model, loaded.tokenizer);
  const auto ids = ids_of(loaded.tokenizer, "the answer to everything is forty two");
  const auto whole = value_of(scorer.score(ids));
  const std::vector<float> tail(whole.logprobs.begin() + 29, whole.logprobs.end());
  EXPECT_EQ(value_of(scorer.score(ids, 30)).logprobs, tail);

  // Two users of one model take turns, with prompts that begin alike.
  const auto prompt = std::vector<int32_t>(ids.begin(), ids.begin() + 30);
  const auto before = value_of(generator.generate(prompt, {.tokens_max = 8}));
  const auto other = ids_of(loaded.tokenizer, "something else entirely, of some length");
  value_of(scorer.score(other));
  const auto after = value_of(generator.generate(prompt, {.tokens_max = 8}));
  EXPECT_EQ(after.stats.reused_tokens, 0);
  EXPECT_EQ(after.tokens, before.tokens);
  EXPECT_EQ(value_of(scorer.score(ids, 30)).logprobs, tail);
}

TEST(Scorer, RefusesWhatHasNoScore) {
  Loaded loaded("llama2", {.context_max = 20, .scores = true});
  Scorer scorer(*loaded.model);
  const auto code = [](const auto& result) {
    EXPECT_FALSE(result);
    return result ? Code::kInternal : result.error().code;
  };
  EXPECT_EQ(code(scorer.score(std::vector<int32_t>{5})), Code::kInvalidArgument);
  EXPECT_EQ(code(scorer.score(std::vector<int32_t>{5, 96})), Code::kInvalidArgument);
  EXPECT_EQ(code(scorer.score(std::vector<int32_t>{5, -1})), Code::kInvalidArgument);
  EXPECT_EQ(code(scorer.score(std::vector<int32_t>(22, 5))), Code::kInvalidArgument);
  EXPECT_EQ(code(scorer.score(std::vector<int32_t>(5, 5), 0)), Code::kInvalidArgument);
  EXPECT_EQ(code(scorer.score(std::vector<int32_t>(5, 5), 5)), Code::kInvalidArgument);
  EXPECT_TRUE(scorer.score(std::vector<int32_t>(21, 5)));
  EXPECT_EQ(code(scorer.choose(loaded.tokenizer, "abc", {})), Code::kInvalidArgument);
  const std::vector<std::string> empty = {"x", ""};
  EXPECT_EQ(code(scorer.choose(loaded.tokenizer, "abc", empty)), Code::kInvalidArgument);
}

}  // namespace
}  // namespace jige::serve
