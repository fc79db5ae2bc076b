#include "serve/scorer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <span>

#include "base/file.h"
#include "base/rng.h"
#include "base/test_path.h"
#include "formats/safetensors.h"
#include "serve/generator.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::fixture;
using testing::ids_of;
using testing::Loaded;
using testing::value_of;

constexpr const char* kSentence = "pack my box with five dozen liquor jugs, and quickly so";

// Each text in a model of its own, in one piece, with the head on all rows.
std::vector<float> logprobs_alone(Loaded& loaded, const ScoredText& text) {
  const std::span<const int32_t> inputs(text.tokens.data(), text.tokens.size() - 1);
  std::vector<int32_t> blocks(static_cast<size_t>(loaded.model->sizes().kv_block_count));
  std::iota(blocks.begin(), blocks.end(), 0);
  const ops::SequenceSpan span{.row_count = static_cast<int32_t>(inputs.size()),
                               .blocks = blocks.data()};
  std::vector<model::TargetRow> targets;
  for (size_t row = 0; row < inputs.size(); ++row) {
    targets.push_back({static_cast<int32_t>(row), text.tokens[row + 1]});
  }
  const auto losses = value_of(loaded.model->losses(
      {.tokens = inputs, .sequences = std::span(&span, 1), .logit_rows = {}}, targets));
  std::vector<float> logprobs;
  for (size_t i = text.first - 1; i < losses.size(); ++i) logprobs.push_back(-losses[i]);
  return logprobs;
}

// Texts of letters that begin like others, now and then.
std::vector<ScoredText> random_texts(uint64_t seed, size_t count, size_t length_max) {
  Rng rng(derive_key(seed, "texts"));
  std::vector<ScoredText> texts;
  while (texts.size() < count) {
    ScoredText text;
    if (!texts.empty() && rng.below(3) > 0) {
      const std::vector<int32_t>& other = texts[rng.below(texts.size())].tokens;
      text.tokens.assign(other.begin(),
                         other.begin() + static_cast<ptrdiff_t>(rng.below(other.size() + 1)));
    }
    const size_t length = std::max<size_t>(2, rng.below(length_max));
    while (text.tokens.size() < length) text.tokens.push_back(static_cast<int32_t>(rng.below(96)));
    text.first = 1 + rng.below(text.tokens.size() - 1);
    texts.push_back(std::move(text));
  }
  return texts;
}

// In a model of a small cache and few rows, so that texts wait and are run in pieces.
void expect_the_bits_of_each_alone(const std::string& name, model::InferenceOptions options,
                                   uint64_t seed) {
  const std::vector<ScoredText> texts = random_texts(seed, 40, 60);
  options.scores = true;
  options.context_max = 64;
  options.kv_block_count = 4;
  options.batch_tokens_max = 64;
  Loaded alone(name, options);
  options.kv_block_count = 11;
  options.batch_tokens_max = 24;
  options.logit_rows_max = 1;
  Loaded together(name, options, 2);
  Scorer scorer(*together.model);
  std::vector<std::vector<float>> found(texts.size());
  const auto keep = [&](size_t text, Result<std::vector<float>> logprobs) -> Status {
    EXPECT_TRUE(found[text].empty()) << "told twice";
    found[text] = value_of(std::move(logprobs));
    return {};
  };
  ASSERT_TRUE(scorer.score_all(texts, keep));
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(found[i], logprobs_alone(alone, texts[i])) << name << " text " << i;
  }
  EXPECT_LT(scorer.counts().computed_tokens, scorer.counts().text_tokens);
}

TEST(Scorer, AgreesWithTheRecordedLogits) {
  for (const char* name : {"llama2", "qwen2_5", "gpt2", "gpt_neox", "phi", "qwen3_5"}) {
    const auto file = value_of(formats::open_safetensors(fixture(name) + "/expected.safetensors"));
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
  const std::string folder = test_root() + "jige_nan." + std::to_string(getpid());
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

TEST(Scorer, TextsScoreTogetherAsEachAlone) {
  using Format = ops::WeightFormat;
  const model::InferenceOptions numbers[] = {
      {.compute = DType::kF32},
      {.compute = DType::kBF16},
      {.compute = DType::kBF16, .format = Format::kQ8},
      {.compute = DType::kF32, .format = Format::kQ4},
      {.compute = DType::kBF16, .kv_dtype = DType::kI8},
  };
  uint64_t seed = 0;
  for (const auto& options : numbers) expect_the_bits_of_each_alone("llama3", options, ++seed);
  // With windows, learned positions, several streams, latents and experts.
  for (const char* name : {"mistral", "gpt2", "gemma2", "gemma3n", "deepseek_v2", "qwen3_moe"}) {
    expect_the_bits_of_each_alone(name, {.compute = DType::kBF16}, ++seed);
  }
}

TEST(Scorer, TextsOfRecurrentModelsScoreTogetherAsEachAlone) {
  uint64_t seed = 20;
  for (const int64_t states : {1, 2, 5}) {
    expect_the_bits_of_each_alone("qwen3_5", {.compute = DType::kF32, .state_count = states},
                                  ++seed);
  }
  for (const char* name : {"qwen3_5", "falcon_h1", "lfm2", "falcon_mamba"}) {
    expect_the_bits_of_each_alone(name, {.compute = DType::kBF16, .state_count = 4}, ++seed);
  }
}

TEST(Scorer, DoesNotDependOnChunks) {
  Loaded whole("mistral", {.scores = true});
  Loaded chunks("mistral", {.batch_tokens_max = 7, .logit_rows_max = 1, .scores = true});
  const auto ids = ids_of(whole.tokenizer, kSentence);
  Scorer a(*whole.model);
  Scorer b(*chunks.model);
  EXPECT_EQ(value_of(a.score(ids)).logprobs, value_of(b.score(ids)).logprobs);
}

TEST(Scorer, RunsWhatTextsShareOnce) {
  Loaded loaded("llama2", {.scores = true});
  Scorer scorer(*loaded.model);
  const auto context = ids_of(loaded.tokenizer, "question: is it so? answer:");
  std::vector<ScoredText> texts;
  for (const char* choice : {"question: is it so? answer: yes", "question: is it so? answer: no",
                             "question: is it so? answer:!"}) {
    texts.push_back(value_of(continued_text(loaded.tokenizer, context, choice)));
    EXPECT_EQ(texts.back().first, context.size());
  }
  const auto ignore = [](size_t, Result<std::vector<float>>) -> Status { return {}; };
  ASSERT_TRUE(scorer.score_all(texts, ignore));
  const auto shared = static_cast<int64_t>(context.size());
  // Of " yes" and " no" the space is shared, and the last tokens are never run.
  EXPECT_EQ(scorer.counts().computed_tokens, shared + 1 + 2 + 1);
  EXPECT_EQ(scorer.counts().text_tokens, 3 * shared + 3 + 2);
  EXPECT_EQ(scorer.counts().forwards, 3);
}

TEST(Scorer, StopsWhenItIsCancelled) {
  Loaded loaded("llama2", {.batch_tokens_max = 16, .logit_rows_max = 1, .scores = true});
  Scorer scorer(*loaded.model);
  const std::vector<ScoredText> texts = random_texts(3, 8, 40);
  std::atomic<bool> cancelled = false;
  size_t done = 0;
  const auto stop = [&](size_t, Result<std::vector<float>>) -> Status {
    ++done;
    cancelled = true;
    return {};
  };
  const Status status = scorer.score_all(texts, stop, &cancelled);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kCancelled);
  EXPECT_LT(done, texts.size());
  cancelled = false;
  EXPECT_TRUE(scorer.score_all(texts, stop)) << "it can be used again";
}

TEST(Scorer, TakesTurnsWithOthersOnOneModel) {
  Loaded loaded("llama2", {.scores = true});
  Scorer scorer(*loaded.model);
  Generator generator(*loaded.model, loaded.tokenizer);
  const auto ids = ids_of(loaded.tokenizer, "the answer to everything is forty two");
  const auto whole = value_of(scorer.score(ids));
  const std::vector<float> tail(whole.logprobs.begin() + 29, whole.logprobs.end());
  EXPECT_EQ(value_of(scorer.score(ids, 30)).logprobs, tail);
  const auto prompt = std::vector<int32_t>(ids.begin(), ids.begin() + 30);
  const auto before = value_of(generator.generate(prompt, {.tokens_max = 8}));
  value_of(scorer.score(ids_of(loaded.tokenizer, "something else entirely, of some length")));
  const auto after = value_of(generator.generate(prompt, {.tokens_max = 8}));
  EXPECT_EQ(after.stats.reused_tokens, 0);
  EXPECT_EQ(after.tokens, before.tokens);
  EXPECT_EQ(value_of(scorer.score(ids, 30)).logprobs, tail);
}

TEST(ScoredText, ContinuesAContextFromWhereTheyDiffer) {
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  const auto context = ids_of(tokenizer, "abc");
  const ScoredText text = value_of(continued_text(tokenizer, context, "abcde"));
  EXPECT_EQ(text.first, 3u);
  EXPECT_EQ(text.tokens.size(), 5u);
  EXPECT_EQ(value_of(continued_text(tokenizer, context, "abc")).first, 3u) << "adds nothing";
  EXPECT_EQ(value_of(continued_text(tokenizer, context, "axc")).first, 1u);
  EXPECT_EQ(value_of(continued_text(tokenizer, {}, "abc")).first, 1u) << "nothing is before it";
}

TEST(ScoredText, TheFirstAmongEqualChoicesIsTheBest) {
  const ChoiceResult result = compare_choices({{.logprob = -6, .token_count = 2, .byte_count = 6},
                                               {.logprob = -4, .token_count = 1, .byte_count = 1},
                                               {.logprob = -4, .token_count = 2, .byte_count = 4}});
  EXPECT_EQ(result.best, 1);
  EXPECT_EQ(result.best_per_token, 2);
  EXPECT_EQ(result.best_per_byte, 0);
  EXPECT_DOUBLE_EQ(result.scores[0].per_byte(), -1);
  EXPECT_DOUBLE_EQ(result.scores[2].per_token(), -2);
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
  EXPECT_EQ(code(scorer.score(std::vector<int32_t>{5, 96, 5})), Code::kInvalidArgument);
}

}  // namespace
}  // namespace jige::serve
