// What is read of folders that judge pairs of texts, and what is refused.
#include "formats/pair_config.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_path.h"
#include "formats/model_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

using ::testing::HasSubstr;

std::string recorded_pairs(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/pairs/" + name;
}

Result<PairConfig> load_of(const std::string& folder) {
  const auto tokenizer = text::Tokenizer::load(folder);
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  return load_pair_config(folder, *tokenizer);
}

// A recorded folder with another config.json, or further files.
class ChangedPairs {
 public:
  explicit ChangedPairs(const std::string& name)
      : path_(test_root() + "jige_pairs." + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::copy(recorded_pairs(name), path_);
  }
  ~ChangedPairs() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::remove(path_ + "/" + file);
    std::ofstream(path_ + "/" + file) << text;
  }
  void change(const std::function<void(Json&)>& edit) const {
    Json json = Json::parse(*read_file(path_ + "/config.json"));
    edit(json);
    write("config.json", json.dump());
  }
  void expect_refused(Code code, const std::string& part) const {
    const auto made = load_of(path_);
    ASSERT_FALSE(made.has_value()) << part;
    EXPECT_EQ(made.error().code, code) << made.error().message;
    EXPECT_THAT(made.error().message, HasSubstr(part));
    EXPECT_THAT(made.error().message, HasSubstr(path_));
  }

 private:
  std::string path_;
};

TEST(PairConfig, SaysHowFoldersJudge) {
  struct Case {
    const char* name;
    PairJoin join;
    PoolingKind pooling;
    size_t layers;
    VectorActivation first;
    bool is_sigmoid;
    int64_t token_types, tokens_max;
    bool is_class;
  };
  constexpr auto kTokenizer = PairJoin::kTokenizer;
  constexpr auto kLast = PoolingKind::kLastToken;
  constexpr auto kTanh = VectorActivation::kTanh;
  constexpr auto kGelu = VectorActivation::kGelu;
  constexpr auto kPlain = VectorActivation::kIdentity;
  constexpr auto kCls = PoolingKind::kCls;
  constexpr auto kMean = PoolingKind::kMean;
  const Case cases[] = {
      {"bert", kTokenizer, kCls, 2, kTanh, false, 2, 96, true},
      {"roberta", kTokenizer, kCls, 2, kTanh, true, 1, 120, true},
      {"xlm_roberta", kTokenizer, kCls, 2, kTanh, true, 1, 120, true},
      {"modernbert", kTokenizer, kCls, 2, kGelu, true, 1, 128, true},
      {"modernbert_mean", kTokenizer, kMean, 2, kGelu, true, 1, 128, true},
      {"distilbert", kTokenizer, kCls, 2, VectorActivation::kRelu, true, 1, 96, true},
      {"mpnet", kTokenizer, kCls, 2, kTanh, true, 1, 120, true},
      {"nomic", kTokenizer, kCls, 2, kTanh, true, 2, 96, true},
      {"deberta", kTokenizer, kCls, 2, kGelu, true, 1, 128, true},
      {"deberta_own", kTokenizer, kCls, 2, kTanh, false, 2, 128, true},
      {"deberta_keys", kTokenizer, kCls, 2, kGelu, true, 1, 128, true},
      {"gte", kTokenizer, kCls, 2, kTanh, true, 1, 120, true},
      {"eurobert", kTokenizer, kMean, 2, kGelu, true, 1, 120, true},
      {"eurobert_bos", kTokenizer, kCls, 2, kGelu, true, 1, 120, true},
      {"qwen3_class", PairJoin::kQwen3, kLast, 1, kPlain, true, 1, 0, true},
      {"qwen3", PairJoin::kQwen3, kLast, 1, kPlain, true, 1, 0, false},
      {"qwen3_untied", PairJoin::kQwen3, kLast, 1, kPlain, true, 1, 0, false}};
  for (const Case& one : cases) {
    const auto made = load_of(recorded_pairs(one.name));
    ASSERT_TRUE(made.has_value()) << made.error().message;
    EXPECT_EQ(made->join, one.join) << one.name;
    EXPECT_EQ(made->pooling, one.pooling) << one.name;
    ASSERT_EQ(made->layers->size(), one.layers) << one.name;
    EXPECT_EQ(made->layers->front().inputs, 24) << one.name;
    EXPECT_EQ(made->layers->back().outputs, 1) << one.name;
    EXPECT_EQ(made->layers->front().activation, one.first) << one.name;
    EXPECT_EQ(made->layers->back().activation, VectorActivation::kIdentity) << one.name;
    EXPECT_EQ(made->is_sigmoid, one.is_sigmoid) << one.name;
    EXPECT_EQ(made->token_types, one.token_types) << one.name;
    EXPECT_EQ(made->tokens_max, one.tokens_max) << one.name;
    EXPECT_EQ(is_pair_folder(recorded_pairs(one.name)), one.is_class) << one.name;
  }
}

TEST(PairConfig, ScoresAreSigmoidsUnlessTheFolderSaysIdentity) {
  EXPECT_DOUBLE_EQ(pair_score({}, 0), 0.5);
  EXPECT_DOUBLE_EQ(pair_score({}, -2), 1 / (1 + std::exp(2.0)));
  EXPECT_DOUBLE_EQ(pair_score({.is_sigmoid = false}, -2), -2);
  EXPECT_EQ(pair_score({}, -INFINITY), 0);

  const ChangedPairs folder("roberta");
  const auto sigmoid = [&] { return load_of(folder.path())->is_sigmoid; };
  const std::string identity = "torch.nn.modules.linear.Identity";
  const std::string curve = "torch.nn.modules.activation.Sigmoid";
  folder.change([&](Json& json) { json["sbert_ce_default_activation_function"] = identity; });
  EXPECT_FALSE(sigmoid());
  folder.change([&](Json& json) { json["sentence_transformers"]["activation_fn"] = curve; });
  EXPECT_TRUE(sigmoid());
  folder.write("config_sentence_transformers.json", Json{{"activation_fn", identity}}.dump());
  EXPECT_FALSE(sigmoid());
  folder.write("config_sentence_transformers.json",
               R"({"activation_fn": "torch.nn.modules.activation.Tanh"})");
  folder.expect_refused(Code::kUnsupported, "Tanh");
  folder.write("config_sentence_transformers.json", R"({"activation_fn": "mine.Sigmoid"})");
  folder.expect_refused(Code::kUnsupported, "mine.Sigmoid");
}

TEST(PairConfig, PairsHaveNoTypesWhereTheTokenizerGivesTheModelNone) {
  const ChangedPairs folder("bert");
  EXPECT_EQ(load_of(folder.path())->token_types, 2);
  folder.write("tokenizer_config.json",
               R"({"model_input_names": ["input_ids", "token_type_ids"], "eos_token": null})");
  EXPECT_EQ(load_of(folder.path())->token_types, 2);
  folder.write("tokenizer_config.json", R"({"model_input_names": ["input_ids"]})");
  EXPECT_EQ(load_of(folder.path())->token_types, 1);
}

TEST(PairConfig, RefusesModelsWithoutOneLabel) {
  const ChangedPairs folder("bert");
  folder.change([](Json& json) { json["id2label"] = {{"0", "no"}, {"1", "yes"}, {"2", "?"}}; });
  folder.expect_refused(Code::kUnsupported, "has 3 labels");
  folder.change([](Json& json) { json.erase("id2label"); });
  folder.expect_refused(Code::kUnsupported, "has 2 labels");
  folder.change([](Json& json) { json["num_labels"] = 1; });
  EXPECT_TRUE(load_of(folder.path()).has_value());
  folder.change([](Json& json) { json["num_labels"] = "one"; });
  folder.expect_refused(Code::kCorrupt, "num_labels");
}

TEST(PairConfig, RefusesClassesThatDoNotJudge) {
  const ChangedPairs folder("bert");
  folder.change([](Json& json) { json["architectures"] = {"BertForTokenClassification"}; });
  folder.expect_refused(Code::kUnsupported, "BertForTokenClassification");
  EXPECT_FALSE(is_pair_folder(folder.path()));
  folder.change([](Json& json) { json["architectures"] = {"RobertaForSequenceClassification"}; });
  folder.expect_refused(Code::kUnsupported, "is not one that Jige knows");
  folder.change([](Json& json) {
    json["architectures"] = {"MambaForSequenceClassification"};
    json["model_type"] = "mamba";
  });
  folder.expect_refused(Code::kUnsupported, "MambaForSequenceClassification");
}

TEST(PairConfig, TheActivationBehindDebertasPoolingIsThatOfTheFolder) {
  const ChangedPairs folder("deberta");
  folder.change([](Json& json) { json["pooler_hidden_act"] = "relu"; });
  EXPECT_EQ(load_of(folder.path())->layers->front().activation, VectorActivation::kRelu);
  folder.change([](Json& json) { json.erase("pooler_hidden_act"); });
  EXPECT_EQ(load_of(folder.path())->layers->front().activation, VectorActivation::kGelu);
  folder.change([](Json& json) { json["pooler_hidden_act"] = "silu"; });
  folder.expect_refused(Code::kUnsupported, "pooler_hidden_act");
  folder.change([](Json& json) {
    json["pooler_hidden_act"] = "gelu";
    json["pooler_hidden_size"] = 48;
  });
  folder.expect_refused(Code::kUnsupported, "pooler_hidden_size");
  folder.change([](Json& json) {
    json["pooler_hidden_size"] = 24;
    json["id2label"] = {{"0", "contradiction"}, {"1", "entailment"}, {"2", "neutral"}};
  });
  folder.expect_refused(Code::kUnsupported, "has 3 labels");
}

TEST(PairConfig, EuroBertPoolsBeforeItsHead) {
  const ChangedPairs folder("eurobert");
  folder.change([](Json& json) { json["classifier_pooling"] = "late"; });
  folder.expect_refused(Code::kUnsupported, "classifier_pooling");
  folder.change([](Json& json) { json.erase("classifier_pooling"); });
  folder.expect_refused(Code::kUnsupported, "\"late\"");
}

TEST(PairConfig, RefusesHeadsThatAreNotWhole) {
  // BERT's folder has no tensor of these names.
  const ChangedPairs bert("bert");
  std::filesystem::copy_file(recorded_pairs("roberta") + "/model.safetensors",
                             bert.path() + "/model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  bert.expect_refused(Code::kNotFound, "bert.pooler.dense.weight");
  const ChangedPairs qwen("qwen3");
  qwen.change([](Json& json) { json["architectures"] = {"Qwen3ForSequenceClassification"}; });
  qwen.expect_refused(Code::kUnsupported, "has 2 labels");
  qwen.change([](Json& json) { json["num_labels"] = 1; });
  qwen.expect_refused(Code::kNotFound, "score.weight");
  qwen.change([](Json& json) {
    json["architectures"] = {"Qwen3ForCausalLM"};
    json["tie_word_embeddings"] = false;
  });
  qwen.expect_refused(Code::kNotFound, "lm_head.weight");
}

TEST(PairConfig, RefusesALanguageModelWithoutItsVerdicts) {
  const ChangedPairs folder("qwen3");
  Json json = Json::parse(*read_file(folder.path() + "/tokenizer.json"));
  Json& vocab = json["model"]["vocab"];
  vocab["Yes"] = vocab["yes"];
  vocab.erase("yes");
  Json& merges = json["model"]["merges"];
  for (size_t i = merges.size(); i-- > 0;) {
    const std::string merged = merges[i][0].get<std::string>() + merges[i][1].get<std::string>();
    if (merged == "yes") merges.erase(i);
  }
  folder.write("tokenizer.json", json.dump());
  folder.expect_refused(Code::kUnsupported, "\"yes\" and \"no\"");
}

void survive_damage(const std::string& kind) {
  const ChangedPairs folder(kind);
  const auto tokenizer = text::Tokenizer::load(folder.path());
  ASSERT_TRUE(tokenizer.has_value());
  const std::string names[] = {"config.json", "tokenizer_config.json", "model.safetensors"};
  std::vector<std::string> wholes;
  for (const auto& name : names) wholes.push_back(read_or_fail(folder.path() + "/" + name));
  int accepted = 0;
  for (size_t i = 0; i < std::size(names); ++i) {
    const std::string path = folder.path() + "/" + names[i];
    for (uint64_t seed = i; seed < fuzz_rounds(400); seed += std::size(names)) {
      SCOPED_TRACE(fmt::format("{} seed {}", kind, seed));
      write_or_fail(path, Mutator(seed).mutate(wholes[i]));
      (void)is_pair_folder(folder.path());
      const auto config = load_pair_config(folder.path(), *tokenizer);
      if (!config) {
        EXPECT_LT(config.error().message.size(), 10'000u);
        EXPECT_NE(config.error().message.find(folder.path()), std::string::npos);
        continue;
      }
      ++accepted;
      ASSERT_TRUE(config->tokens_max >= 0 && config->tokens_max <= kContextMax);
      ASSERT_EQ(config->layers->back().outputs, 1);
    }
    write_or_fail(path, wholes[i]);
  }
  EXPECT_GT(accepted, 26);
}

TEST(PairConfig, SurvivesDamageToAnyOfItsFiles) {
  for (const char* kind : {"bert", "deberta", "gte"}) survive_damage(kind);
}

TEST(PairConfig, FoldersOfEmbeddingModelsAreNoneOfPairs) {
  const ChangedPairs folder("xlm_roberta");
  EXPECT_TRUE(is_pair_folder(folder.path()));
  folder.write("modules.json", R"([{"type": "sentence_transformers.models.Transformer"}])");
  EXPECT_TRUE(is_pair_folder(folder.path()));
  folder.write("modules.json", R"([{"type": "sentence_transformers.models.Pooling"}])");
  EXPECT_FALSE(is_pair_folder(folder.path()));
  EXPECT_FALSE(is_pair_folder(folder.path() + "/nowhere"));
}

}  // namespace
}  // namespace jige::formats
