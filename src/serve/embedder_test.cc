// Vectors of texts against those of sentence-transformers (tests/tools/record_embeddings.py), and
// what may not change their bits.
#include "serve/embedder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/embedding_config.h"
#include "formats/json_file.h"
#include "serve/embedding_text.h"

namespace jige::serve {
namespace {

using Vectors = std::vector<std::vector<float>>;

std::string embedding_fixture(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/" + name;
}

// A recorded model and all that is needed to run it.
struct Recorded {
  explicit Recorded(const std::string& name, model::InferenceOptions options = {})
      : folder(embedding_fixture(name)),
        config(*formats::load_embedding_config(folder)),
        tokenizer(*text::Tokenizer::load(folder)),
        expected(*formats::load_json_object(folder + "/expected.json")) {
    options.compute = DType::kF32;
    options.embeds = true;
    model = std::move(*model::InferenceModel::load(folder, device, options));
  }

  EmbeddingForm form() const {
    return {.pooling = config.pooling,
            .include_prompt = config.include_prompt,
            .normalise = config.normalise};
  }
  std::vector<std::string> texts() const {
    return expected.at("texts").get<std::vector<std::string>>();
  }

  std::string folder;
  formats::EmbeddingConfig config;
  text::Tokenizer tokenizer;
  Json expected;
  CpuDevice device{{.thread_count = 2}};
  std::unique_ptr<model::InferenceModel> model;
};

std::vector<EmbedInput> inputs_of(const Recorded& setup, const EmbeddingTextOptions& options) {
  const auto texts = EmbeddingText::create(setup.tokenizer, options);
  EXPECT_TRUE(texts);
  std::vector<EmbedInput> inputs;
  for (const std::string& text : setup.texts()) inputs.push_back(*texts->encode(text));
  return inputs;
}

Vectors vectors_of(Recorded& setup, const EmbeddingForm& form,
                   const std::vector<EmbedInput>& inputs) {
  Embedder embedder(*setup.model, form);
  auto vectors = embedder.embed(inputs);
  EXPECT_TRUE(vectors) << vectors.error().message;
  return vectors ? *vectors : Vectors();
}

// The prompt that a recorded case asks for.
std::string prompt_of(const Recorded& setup, const Json& recorded) {
  if (recorded.at("prompt_text").is_string()) return recorded.at("prompt_text");
  const std::string name = recorded.at("prompt").is_string()
                               ? recorded.at("prompt").get<std::string>()
                               : setup.config.default_prompt;
  return name.empty() ? name : *setup.config.find_prompt(name);
}

TEST(Embedder, GivesWhatSentenceTransformersGives) {
  for (const char* name : {"qwen3", "mistral", "llama"}) {
    SCOPED_TRACE(name);
    Recorded setup(name);
    double worst = 0;
    for (const Json& recorded : setup.expected.at("cases")) {
      EmbeddingForm form = setup.form();
      if (recorded.at("dimensions").is_number()) form.dimensions = recorded.at("dimensions");
      const bool is_cut = recorded.at("max_seq_length").is_number();
      const auto inputs =
          inputs_of(setup, {.prompt = prompt_of(setup, recorded),
                            .tokens_max = is_cut ? recorded.at("max_seq_length").get<int64_t>()
                                                 : setup.config.tokens_max,
                            .truncate = is_cut});
      const auto wanted = recorded.at("vectors").get<Vectors>();
      const Vectors vectors = vectors_of(setup, form, inputs);
      ASSERT_EQ(vectors.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_EQ(vectors[i].size(), wanted[i].size());
        for (size_t k = 0; k < wanted[i].size(); ++k) {
          worst = std::max(worst, std::abs(double{vectors[i][k]} - wanted[i][k]));
        }
      }
    }
    EXPECT_LT(worst, 1e-5);
    RecordProperty(name, std::to_string(worst));
  }
}

TEST(Embedder, ReadsTheTokensThatTheFolderSays) {
  for (const char* name : {"qwen3", "mistral", "llama"}) {
    SCOPED_TRACE(name);
    const Recorded setup(name);
    const auto inputs = inputs_of(setup, {.tokens_max = setup.config.tokens_max});
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(inputs[i].tokens, setup.expected.at("ids")[i].get<std::vector<int32_t>>());
    }
  }
}

TEST(Embedder, VectorsHaveTheSameBitsWhateverRunsBesideThem) {
  for (const char* name : {"qwen3", "mistral", "llama"}) {
    SCOPED_TRACE(name);
    Recorded wide(name);
    const auto inputs = inputs_of(wide, {.tokens_max = wide.config.tokens_max});
    const Vectors together = vectors_of(wide, wide.form(), inputs);
    // Batches and a cache so small that texts wait for one another, and go on in the next batch.
    Recorded narrow(name, {.context_max = 128, .batch_tokens_max = 7, .logit_rows_max = 3});
    EXPECT_EQ(vectors_of(narrow, narrow.form(), inputs), together);
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(vectors_of(wide, wide.form(), {inputs[i]})[0], together[i]);
    }
  }
}

TEST(Embedder, RefusesTextsThatDoNotFit) {
  Recorded setup("qwen3", {.context_max = 32});
  Embedder embedder(*setup.model, setup.form());
  const std::vector<EmbedInput> long_text = {{.tokens = std::vector<int32_t>(33, 3)}};
  const auto refused = embedder.embed(long_text);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("33 tokens"), std::string::npos);
  const std::vector<EmbedInput> empty = {{}};
  EXPECT_FALSE(embedder.embed(empty));
  const std::vector<EmbedInput> unknown = {{.tokens = {3, 100000}}};
  EXPECT_FALSE(embedder.embed(unknown));
  const std::vector<EmbedInput> good = {{.tokens = {3, 4}}};
  EXPECT_TRUE(embedder.embed(good));
  const std::atomic<bool> cancelled = true;
  const auto stopped = embedder.embed(good, &cancelled);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

TEST(EmbeddingText, CutsATextAndKeepsWhatTheTokenizerPutsBehindIt) {
  const Recorded setup("qwen3");
  const auto suffix = setup.tokenizer.suffix_ids();
  ASSERT_EQ(suffix.size(), 1u);
  const auto texts = EmbeddingText::create(setup.tokenizer, {.tokens_max = 4, .truncate = true});
  ASSERT_TRUE(texts);
  const auto whole =
      EmbeddingText::create(setup.tokenizer, {.tokens_max = 100})->encode("What is it worth?");
  const auto cut = texts->encode("What is it worth?");
  ASSERT_TRUE(cut && whole);
  EXPECT_TRUE(cut->truncated);
  ASSERT_EQ(cut->tokens.size(), 4u);
  EXPECT_EQ(cut->tokens.back(), suffix[0]);
  EXPECT_TRUE(std::equal(cut->tokens.begin(), cut->tokens.end() - 1, whole->tokens.begin()));
  const auto refusing = EmbeddingText::create(setup.tokenizer, {.tokens_max = 4, .hint = " !"});
  const auto refused = refusing->encode("What is it worth?");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("shorten it !"), std::string::npos);
  EXPECT_FALSE(EmbeddingText::create(setup.tokenizer, {.tokens_max = 1}));
}

TEST(RowPooler, FollowsItsDefinitions) {
  const std::vector<std::vector<float>> rows = {{1, 2}, {3, -4}, {6, 8}};
  const auto pooled = [&](const EmbeddingForm& form, int64_t prompt_count) {
    RowPooler pooler(form, std::ssize(rows), prompt_count);
    for (int64_t i = 0; i < std::ssize(rows); ++i) {
      if (pooler.wants(i)) pooler.add(i, rows[static_cast<size_t>(i)]);
    }
    return pooler.finish();
  };
  using enum formats::PoolingKind;
  using Vector = std::vector<float>;
  EXPECT_EQ(pooled({.pooling = kLastToken, .normalise = false}, 0), (Vector{6, 8}));
  EXPECT_EQ(pooled({.pooling = kLastToken}, 0), (Vector{0.6f, 0.8f}));
  EXPECT_EQ(pooled({.pooling = kLastToken, .dimensions = 1}, 0), (Vector{1}));
  EXPECT_EQ(pooled({.pooling = kMean, .normalise = false}, 0),
            (Vector{static_cast<float>(10.0 / 3), 2}));
  EXPECT_EQ(pooled({.pooling = kMean, .normalise = false}, 1),
            (Vector{static_cast<float>(10.0 / 3), 2}));  // the prompt counts
  EXPECT_EQ(pooled({.pooling = kMean, .include_prompt = false, .normalise = false}, 1),
            (Vector{4.5f, 2}));
  EXPECT_EQ(pooled({.pooling = kWeightedMean, .normalise = false}, 0),
            (Vector{static_cast<float>(25.0 / 6), 3}));
  const auto nothing = pooled({.pooling = kMean, .include_prompt = false}, 3);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, Code::kInvalidArgument);
  RowPooler pooler({}, 1, 0);
  pooler.add(0, std::vector<float>{1, INFINITY});
  ASSERT_FALSE(pooler.finish());
  EXPECT_EQ(pooler.finish().error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace jige::serve
