#include "formats/embedding_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/test_fuzz_rounds.h"
#include "formats/model_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

std::string recorded(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/" + name;
}

// A folder of an embedding model, whose files a test may change.
class EmbeddingFolder {
 public:
  EmbeddingFolder() {
    put("modules.json", R"([
      {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
      {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
      {"idx": 2, "name": "2", "path": "2_Normalize", "type":
      "sentence_transformers.models.Normalize"}])");
    std::filesystem::create_directory(scratch_.file("1_Pooling"));
    put("1_Pooling/config.json",
        R"({"word_embedding_dimension": 24, "pooling_mode_lasttoken": true})");
  }
  const std::string& path() const { return scratch_.path(); }
  void put(const std::string& name, const std::string& text) const {
    write_or_fail(scratch_.file(name), text);
  }
  Result<EmbeddingConfig> load(std::optional<PoolingKind> pooling = {}) const {
    return load_embedding_config(path(), pooling);
  }

 private:
  ScratchFolder scratch_;
};

// That a folder with this file is refused with all these words, and what it says names the file.
void expect_refused_file(const std::string& name, const std::string& text, Code code,
                         std::initializer_list<std::string_view> words) {
  const EmbeddingFolder folder;
  folder.put(name, text);
  const auto config = folder.load();
  ASSERT_FALSE(config) << text;
  EXPECT_EQ(config.error().code, code) << config.error().message;
  EXPECT_NE(config.error().message.find(folder.path() + "/" + name), std::string::npos)
      << config.error().message;
  for (const std::string_view word : words) {
    EXPECT_NE(config.error().message.find(word), std::string::npos)
        << word << " is not in: " << config.error().message;
  }
}

TEST(EmbeddingConfig, ReadsWhatSentenceTransformersWrote) {
  const auto qwen = load_embedding_config(recorded("qwen3"));
  ASSERT_TRUE(qwen) << qwen.error().message;
  const std::string query = "Instruct: find passages that answer the question\nQuery:";
  EXPECT_EQ(*qwen, (EmbeddingConfig{.pooling = PoolingKind::kLastToken,
                                    .width = 24,
                                    .tokens_max = 200,
                                    .prompts = {{"query", query}, {"document", ""}}}));
  EXPECT_EQ(*qwen->find_prompt("query"), query);
  EXPECT_EQ(qwen->find_prompt("quer"), nullptr);
  const auto mistral = load_embedding_config(recorded("mistral"));
  ASSERT_TRUE(mistral) << mistral.error().message;
  EXPECT_EQ(*mistral, (EmbeddingConfig{.pooling = PoolingKind::kMean,
                                       .include_prompt = false,
                                       .normalise = false,
                                       .width = 24,
                                       .tokens_max = 200,
                                       .prompts = {{"query", query}},
                                       .default_prompt = "query"}));
  const auto llama = load_embedding_config(recorded("llama"));
  ASSERT_TRUE(llama) << llama.error().message;
  EXPECT_EQ(llama->pooling, PoolingKind::kWeightedMean);
  EXPECT_TRUE(llama->normalise);
}

TEST(EmbeddingConfig, AFolderWithoutModulesTakesTheLastTokenAndNormalises) {
  const ScratchFolder scratch;
  EXPECT_EQ(load_embedding_config(scratch.path()).value(), EmbeddingConfig());
  const auto mean = load_embedding_config(scratch.path(), PoolingKind::kMean).value();
  EXPECT_EQ(mean.pooling, PoolingKind::kMean);
  EXPECT_TRUE(mean.normalise);
}

TEST(EmbeddingConfig, NamesOfPoolingsAreFoundAgain) {
  for (const std::string& name : pooling_names())
    EXPECT_EQ(pooling_names()[static_cast<size_t>(*find_pooling(name))], name);
  EXPECT_FALSE(find_pooling("median"));
}

TEST(EmbeddingConfig, RefusesModulesThatItDoesNotCompute) {
  const auto list = [](const std::vector<std::string>& types) {
    Json modules = Json::array();
    for (const std::string& type : types) {
      modules.push_back({{"path", modules.empty() ? "" : "1_Pooling"}, {"type", type}});
    }
    return dump_json(modules);
  };
  const std::string transformer = "sentence_transformers.models.Transformer";
  const std::string pooling = "sentence_transformers.models.Pooling";
  const std::string dense = "sentence_transformers.models.Dense";
  const std::string normalize = "sentence_transformers.models.Normalize";
  expect_refused_file("modules.json",
                      list({transformer, pooling, "sentence_transformers.models.CNN"}),
                      Code::kUnsupported, {"module 2", "CNN", "take a model without"});
  expect_refused_file("modules.json", list({transformer, pooling, normalize, dense}),
                      Code::kUnsupported, {"module 2", "Normalize"});
  expect_refused_file("modules.json", list({pooling, transformer}), Code::kUnsupported,
                      {"module 0"});
  expect_refused_file("modules.json", list({transformer, "custom.Pooling"}), Code::kUnsupported,
                      {"module 1", "custom.Pooling"});
  expect_refused_file("modules.json", list({transformer}), Code::kUnsupported, {"no Pooling"});
  expect_refused_file("modules.json", R"([{"type": "sentence_transformers.models.Transformer",
                                      "path": "0_Transformer"}, {}])",
                      Code::kUnsupported, {"\"path\" of module 0", "0_Transformer", "move"});
  for (const char* path : {"../other", "/etc", ""}) {
    const Json modules = {{{"type", transformer}}, {{"type", pooling}, {"path", path}}};
    expect_refused_file("modules.json", dump_json(modules), Code::kCorrupt,
                        {"\"path\" of module 1"});
  }
  expect_refused_file("modules.json", R"({"a": 1})", Code::kCorrupt, {"list"});
  expect_refused_file("modules.json", R"([1, 2])", Code::kNotFound, {"\"type\""});
  const EmbeddingFolder newer;
  newer.put("modules.json",
            list({"sentence_transformers.base.modules.transformer.Transformer",
                  "sentence_transformers.sentence_transformer.modules.pooling.Pooling"}));
  EXPECT_FALSE(newer.load().value().normalise);
}

TEST(EmbeddingConfig, PoolingsMayBeSeveral) {
  const EmbeddingFolder folder;
  const std::string name = "1_Pooling/config.json";
  folder.put(name, R"({"pooling_mode": ["mean", "lasttoken", "mean"]})");
  const EmbeddingConfig listed = folder.load().value();
  EXPECT_EQ(listed.pooling, PoolingKind::kMean);
  EXPECT_EQ(listed.further, (std::vector{PoolingKind::kLastToken, PoolingKind::kMean}));
  EXPECT_TRUE(folder.load(PoolingKind::kCls).value().further.empty());
  folder.put(name, R"({"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true})");
  const EmbeddingConfig flagged = folder.load().value();
  EXPECT_EQ(flagged.pooling, PoolingKind::kMax) << "the flags have an order of their own";
  EXPECT_EQ(flagged.further, std::vector{PoolingKind::kMean});
}

TEST(EmbeddingConfig, RefusesPoolingsThatItDoesNotComputeButForAChoice) {
  const std::string name = "1_Pooling/config.json";
  expect_refused_file(name, R"({"pooling_mode": ["mean", "median"]})", Code::kUnsupported,
                      {"median"});
  expect_refused_file(
      name, R"({"pooling_mode": "median"})", Code::kUnsupported,
      {"median", "lasttoken, mean, weightedmean, cls, max, mean_sqrt_len_tokens", "--pooling"});
  expect_refused_file(name, R"({"pooling_mode": 3})", Code::kCorrupt, {"pooling_mode"});
  expect_refused_file(name, R"({"pooling_mode_lasttoken": "yes"})", Code::kCorrupt,
                      {"pooling_mode_lasttoken"});
  expect_refused_file(name, R"({"word_embedding_dimension": -1})", Code::kCorrupt,
                      {"word_embedding_dimension"});
  const EmbeddingFolder folder;
  folder.put(name, R"({"pooling_mode_cls_token": true, "include_prompt": false})");
  EXPECT_EQ(folder.load().value().pooling, PoolingKind::kCls);
  const EmbeddingConfig chosen = folder.load(PoolingKind::kMean).value();
  EXPECT_EQ(chosen.pooling, PoolingKind::kMean);
  EXPECT_FALSE(chosen.include_prompt);
  folder.put(name, "{}");
  EXPECT_EQ(folder.load().value().pooling, PoolingKind::kMean) << "as sentence-transformers does";
}

TEST(EmbeddingConfig, ReadsTheLayersBehindThePooling) {
  const EmbeddingConfig gemma = load_embedding_config(recorded("gemma")).value();
  ASSERT_TRUE(gemma.layers);
  ASSERT_EQ(gemma.layers->size(), 2u);
  const VectorLayer& first = gemma.layers->front();
  EXPECT_EQ(std::pair(first.inputs, first.outputs), std::pair(int64_t{24}, int64_t{40}));
  EXPECT_EQ(first.weight.size(), 24u * 40u);
  EXPECT_TRUE(first.bias.empty());
  EXPECT_EQ(first.activation, VectorActivation::kIdentity);
  EXPECT_EQ(gemma.layers->back().bias.size(), 20u);
  EXPECT_EQ(gemma.layers->back().activation, VectorActivation::kTanh);
  EXPECT_TRUE(gemma.normalise);
}

TEST(EmbeddingConfig, RefusesLayersBehindThePoolingThatDoNotFit) {
  struct Case {
    std::string file;
    Json fields;
    Code code;
    std::string_view word;
  };
  const std::string first = "2_Dense/config.json", second = "3_Dense/config.json";
  for (const auto& [file, fields, code, word] :
       std::vector<Case>{{first, {{"in_features", 23}}, Code::kCorrupt, "[40, 23]"},
                         {first, {{"out_features", 0}}, Code::kCorrupt, "out_features"},
                         {first, {{"bias", true}}, Code::kNotFound, "linear.bias"},
                         {first,
                          {{"activation_function", "torch.nn.modules.activation.GELU"}},
                          Code::kUnsupported,
                          "activation_function"},
                         {second, {{"in_features", 41}}, Code::kCorrupt, "[20, 41]"}}) {
    const ScratchFolder scratch;
    const std::string to = scratch.file("model");
    std::filesystem::copy(recorded("gemma"), to, std::filesystem::copy_options::recursive);
    Json config = parse_json(read_or_fail(to + "/" + file), file).value();
    config.update(fields);
    write_or_fail(to + "/" + file, dump_json(config));
    EXPECT_FAILS_WITH(load_embedding_config(to), code, word);
  }
  // Of the width that the pooling's file says.
  const ScratchFolder scratch;
  const std::string to = scratch.file("model");
  std::filesystem::copy(recorded("gemma"), to, std::filesystem::copy_options::recursive);
  write_or_fail(to + "/1_Pooling/config.json", R"({"word_embedding_dimension": 25})");
  EXPECT_FAILS_WITH(load_embedding_config(to), Code::kCorrupt, "in_features");
}

TEST(EmbeddingConfig, RefusesPromptsAndLimitsThatContradict) {
  const std::string prompts = "config_sentence_transformers.json";
  expect_refused_file(prompts, R"({"prompts": {"a": "b"}, "default_prompt_name": "c"})",
                      Code::kCorrupt, {"default_prompt_name", "\"c\""});
  expect_refused_file(prompts, R"({"prompts": {"a": 1}})", Code::kCorrupt, {"prompt \"a\""});
  expect_refused_file(prompts, R"({"prompts": ["a"]})", Code::kCorrupt, {"\"prompts\""});
  const std::string limits = "sentence_bert_config.json";
  expect_refused_file(limits, R"({"do_lower_case": 1})", Code::kCorrupt, {"do_lower_case"});
  expect_refused_file(limits, R"({"max_seq_length": 0})", Code::kCorrupt, {"max_seq_length"});
  expect_refused_file(limits, R"({"transformer_task": "text-generation"})", Code::kUnsupported,
                      {"transformer_task"});
  const EmbeddingFolder folder;
  folder.put("tokenizer_config.json", R"({"model_max_length": 1e30})");
  EXPECT_EQ(folder.load().value().tokens_max, 0);
  folder.put("tokenizer_config.json", R"({"model_max_length": 77})");
  EXPECT_EQ(folder.load().value().tokens_max, 77);
  EXPECT_FALSE(folder.load().value().lowers);
  folder.put(limits, R"({"max_seq_length": 33, "do_lower_case": true})");
  EXPECT_TRUE(folder.load().value().lowers);
  EXPECT_EQ(folder.load().value().tokens_max, 33);
}

TEST(EmbeddingConfig, SurvivesDamageToAnyOfItsFiles) {
  const ScratchFolder scratch;
  const std::string from = recorded("qwen3"), to = scratch.file("model");
  const std::string names[] = {"modules.json", "1_Pooling/config.json",
                               "config_sentence_transformers.json", "sentence_bert_config.json"};
  std::filesystem::create_directories(to + "/1_Pooling");
  for (const std::string& name : names)
    write_or_fail(to + "/" + name, read_or_fail(from + "/" + name));
  int accepted = 0;
  for (size_t i = 0; i < std::size(names); ++i) {
    const std::string whole = read_or_fail(from + "/" + names[i]);
    for (uint64_t seed = i; seed < fuzz_rounds(1200); seed += std::size(names)) {
      SCOPED_TRACE(fmt::format("seed {}", seed));
      write_or_fail(to + "/" + names[i], Mutator(seed).mutate(whole));
      const auto config = load_embedding_config(to);
      if (!config) {
        EXPECT_LT(config.error().message.size(), 10'000u);
        EXPECT_NE(config.error().message.find(to), std::string::npos) << config.error().message;
        continue;
      }
      ++accepted;
      ASSERT_TRUE(config->tokens_max >= 0 && config->tokens_max <= kContextMax);
      ASSERT_TRUE(config->width >= 0 && config->width <= kHiddenMax);
      ASSERT_TRUE(config->default_prompt.empty() || config->find_prompt(config->default_prompt));
    }
    write_or_fail(to + "/" + names[i], whole);
  }
  EXPECT_GT(accepted, 50);
}

TEST(EmbeddingConfig, KnowsWhichEndOfALongTextIsCutOff) {
  const EmbeddingFolder folder;
  EXPECT_FALSE(folder.load()->cuts_left);
  folder.put("tokenizer_config.json", R"({"truncation_side": "left", "model_max_length": 77})");
  EXPECT_TRUE(folder.load()->cuts_left);
  EXPECT_EQ(folder.load()->tokens_max, 77);
  folder.put("sentence_bert_config.json", R"({"max_seq_length": 55})");
  EXPECT_TRUE(folder.load()->cuts_left);
  EXPECT_EQ(folder.load()->tokens_max, 55);
  expect_refused_file("tokenizer_config.json", R"({"truncation_side": "both"})", Code::kCorrupt,
                      {"truncation_side", "both", "left"});
  EXPECT_TRUE(is_embedding_folder(folder.path()));
  EXPECT_FALSE(is_embedding_folder(folder.path() + "/1_Pooling"));
}

}  // namespace
}  // namespace jige::formats
