// A vocab.json with its merges.txt: which tokens the small files add, which class counts, and what
// is refused. Ids of texts are compared with transformers' in tokenizer_fixture_test.cc.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/test_path.h"
#include "text/post_processor.h"
#include "text/test_fixtures.h"
#include "text/tokenizer.h"

namespace jige::text {
namespace {

constexpr const char* kVocab = R"({"<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4, "aab": 5})";
constexpr const char* kMerges = "#version: 0.2\na b\n\na ab\r\n";

class MergesFolder {
 public:
  MergesFolder() : path_(test_root() + "jige_merges." + std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    write("vocab.json", kVocab);
    write("merges.txt", kMerges);
  }
  ~MergesFolder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }
  void remove(const std::string& name) const { std::filesystem::remove(path_ + "/" + name); }
  Tokenizer load() const {
    auto made = Tokenizer::load(path_);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return *made;
  }
  Ids encode(const std::string& text) const { return *load().encode(text, {}); }
  void expect_refused(Code code, const std::vector<std::string>& parts) const {
    const auto made = Tokenizer::load(path_);
    ASSERT_FALSE(made.has_value()) << parts[0];
    EXPECT_EQ(made.error().code, code) << made.error().message;
    for (const std::string& part : parts) {
      EXPECT_NE(made.error().message.find(part), std::string::npos) << made.error().message;
    }
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(MergeList, IsReadWhereNoOtherTokenizerIs) {
  const MergesFolder folder;
  EXPECT_EQ(folder.encode("aab b"), (Ids{5, 3})) << "a byte without a token vanishes";
  const Tokenizer bare = folder.load();
  EXPECT_EQ(bare.special().eos_token, "<|endoftext|>") << "GPT-2's, behind the vocabulary";
  EXPECT_EQ(bare.eos_id(), 6);
  EXPECT_EQ(bare.vocab_size(), 7);
  EXPECT_EQ(bare.pad_id(), -1);
  folder.write("vocab.txt", "[CLS]\n[SEP]\n[UNK]\n");
  EXPECT_EQ(folder.encode("ab"), (Ids{0, 2, 1}));
}

TEST(MergeList, ErrorsNameFileLineAndRemedy) {
  const MergesFolder folder;
  const auto merges = [&](const std::string& text, const std::vector<std::string>& parts) {
    folder.write("merges.txt", text);
    folder.expect_refused(Code::kCorrupt, parts);
    folder.write("merges.txt", kMerges);
  };
  merges("#version: 0.2\na b\na c\n", {"merges.txt: line 3", "\"c\"", "vocab.json", "one model"});
  merges("a b\n\nb a\n", {"merges.txt: line 3", "\"ba\""});
  merges("a  b\n", {"line 1", "two tokens"});
  merges("a b \n", {"line 1", "two tokens"});
  merges("a b\nab\n", {"line 2", "two tokens"});
  merges(" a\n", {"line 1", "two tokens"});
  merges("a \n", {"line 1", "two tokens"});
  merges("a \xFF\n", {"merges.txt", "UTF-8"});
  const auto vocab = [&](const std::string& text, const std::vector<std::string>& parts) {
    folder.write("vocab.json", text);
    folder.expect_refused(Code::kCorrupt, parts);
    folder.write("vocab.json", kVocab);
  };
  vocab(R"({"a": 0, "b": 1, "ab": 1, "aab": 2})", {"vocab.json: id 1", "another token"});
  vocab(R"({"a": 0, "b": 1, "ab": 2, "aab": 3, "a": 4})", {"\"a\" stands there twice", "0 and 4"});
  vocab(R"({"a": 0, "b": 16777216, "ab": 2, "aab": 3})", {"vocab.json", "16777216"});
  vocab(R"({"a": 0, "b": -1})", {"vocab.json", "-1"});
  vocab(R"({"a": 0, "b": 1.5})", {"vocab.json", "\"b\" has no number"});
  vocab(R"({"a": 0, "b": {"c": 1}})", {"vocab.json", "has no number"});
  vocab(R"({"a": 0, "b": null})", {"vocab.json", "\"b\" has no number"});
  vocab(R"(["a", "b"])", {"vocab.json", "not a JSON object"});
  vocab("3", {"vocab.json", "not a JSON object"});
  vocab(R"({"a": 0,)", {"vocab.json", "not valid JSON"});
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer",
                                            "sep_token": null})");
  folder.expect_refused(Code::kCorrupt, {"sep_token"});
  folder.write("tokenizer_config.json", R"({"extra_special_tokens": [3]})");
  folder.expect_refused(Code::kCorrupt, {folder.path(), "extra_special_tokens"});
  folder.remove("tokenizer_config.json");
  folder.write("added_tokens.json", R"({"<x>": "6"})");
  folder.expect_refused(Code::kCorrupt, {"added_tokens.json", "<x>"});
  folder.remove("added_tokens.json");
  folder.remove("merges.txt");
  folder.expect_refused(Code::kNotFound, {"merges.txt: is not there", "tokenizer.json"});
}

TEST(MergeList, TheClassIsThatOfTheFolderOrOfItsModel) {
  const MergesFolder folder;
  const auto config = [&](const std::string& text) { folder.write("tokenizer_config.json", text); };
  const auto model = [&](const std::string& text) { folder.write("config.json", text); };
  for (const char* other : {"CLIPTokenizer", "CTRLTokenizer", "PhobertTokenizer",
                            "BloomTokenizerFast", "PreTrainedTokenizerFast"}) {
    config(std::string(R"({"tokenizer_class": ")") + other + "\"}");
    folder.expect_refused(Code::kUnsupported, {other, "tokenizer_config.json", "tokenizer.json"});
  }
  config("{}");
  const Ids framed = {0, 4, 1};
  for (const char* roberta : {"roberta", "bart", "longformer"}) {
    model(std::string(R"({"model_type": ")") + roberta + "\"}");
    EXPECT_EQ(folder.encode("ab"), framed) << roberta;
  }
  for (const char* gpt : {"opt", "gpt_neo"}) {
    model(std::string(R"({"model_type": ")") + gpt + "\"}");
    EXPECT_EQ(folder.encode("ab"), Ids{4}) << gpt;
  }
  model("{}");
  EXPECT_EQ(folder.encode("ab"), Ids{4});
  // Those of the first three are other classes in transformers, which has none for the last.
  for (const char* other : {"gpt_neox", "cohere", "qwen3_5", "granite"}) {
    model(std::string(R"({"model_type": ")") + other + "\"}");
    folder.expect_refused(Code::kUnsupported, {other, "tokenizer_class", "tokenizer.json"});
  }
  model(R"({"model_type": "qwen3"})");
  EXPECT_EQ(folder.load().bos_id(), -1) << "Qwen2's class has none";
  model(R"({"model_type": "qwen3", "tokenizer_class": "RobertaTokenizerFast"})");
  EXPECT_EQ(folder.encode("ab"), framed);
  config(R"({"tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_EQ(folder.encode("ab"), Ids{4});
}

// As transformers 5 adds them: an id given by a file must be the next one.
TEST(MergeList, AddedTokensFollowTheVocabulary) {
  const MergesFolder folder;
  const auto added = [&](const std::string& text) { folder.write("added_tokens.json", text); };
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>", "bos_token": null,
                                            "unk_token": null, "pad_token": "<pad>"})");
  added(R"({"<y>": 7, "<x>": 6})");
  EXPECT_EQ(folder.encode("<x>a<y><pad></s>"), (Ids{6, 2, 7, 8, 1}));
  EXPECT_EQ(folder.load().pad_id(), 8);
  EXPECT_FALSE(folder.load().is_special(6));
  EXPECT_TRUE(folder.load().is_special(8));
  added(R"({"<x>": 7})");
  folder.expect_refused(Code::kUnsupported,
                        {"\"<x>\"", "the id 7", "would be 6", "correct the id"});
  added(R"({"a": 7})");
  folder.expect_refused(Code::kUnsupported, {"\"a\"", "the id 7", "would be 2"});
  added("{}");
  // Five tokens, whose largest id is 6: the next is 5, which is free; then 6, which is not.
  folder.write("vocab.json", R"({"</s>": 1, "a": 2, "b": 3, "ab": 4, "aab": 6})");
  EXPECT_EQ(folder.load().pad_id(), 5);
  EXPECT_EQ(*folder.load().decode(Ids{2, 0, 3}, {}), "ab") << "a hole is nothing";
  added(R"({"<x>": 5})");
  folder.expect_refused(Code::kUnsupported, {"\"<pad>\"", "the id 6", "\"aab\" has it"});
}

TEST(MergeList, OtherFilesCountOnlyWhereTokensAreNotAllInOne) {
  const MergesFolder folder;
  folder.write("special_tokens_map.json", R"({"eos_token": {"content": "<s>", "lstrip": true}})");
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_EQ(folder.load().eos_id(), 0) << "special_tokens_map.json wins";
  EXPECT_EQ(*folder.load().decode(Ids{2, 0}, {.skip_special = true}), "a");
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>", "added_tokens_decoder": {}})");
  EXPECT_EQ(folder.load().eos_id(), 1) << "and is not read beside a list of all";
}

// Qwen2's normal form joins a letter and its accent, which tells tokens that are looked for in raw
// text from others: where no file says it, special ones are.
TEST(MergeList, SpecialTokensAreLookedForInRawText) {
  const MergesFolder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "aab": 3, "<|endoftext|>": 4})");
  const auto ids = [&](const std::string& flags) {
    folder.write("tokenizer_config.json",
                 R"({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"5": {"content":
                    "ae\u0301")" +
                     flags + "}}}");
    return Ids(folder.encode("a\u00e9b"));
  };
  EXPECT_EQ(ids(R"(, "special": true)"), Ids{2}) << "a byte without a token vanishes";
  EXPECT_EQ(ids(R"(, "special": true, "normalized": true)"), (Ids{5, 1}));
  EXPECT_EQ(ids(""), (Ids{5, 1}));
  EXPECT_EQ(ids(R"(, "normalized": false)"), Ids{2});
}

TEST(MergeList, PairsAreFramedAsTheClassDoes) {
  const auto frame = [](const char* name) {
    const auto tokenizer = Tokenizer::load(fixture_path(std::string("merge_lists/") + name));
    EXPECT_TRUE(tokenizer && tokenizer->pair_frame()) << name;
    return *tokenizer->pair_frame();
  };
  const PairFrame roberta = frame("roberta");
  EXPECT_EQ(roberta.before, Ids{0});
  EXPECT_EQ(roberta.between, (Ids{2, 2}));
  EXPECT_EQ(roberta.behind, Ids{2});
  const PairFrame opt = frame("opt");  // </s> a </s> b
  EXPECT_EQ(opt.before, Ids{2});
  EXPECT_EQ(opt.between, Ids{2});
  EXPECT_TRUE(opt.behind.empty());
}

}  // namespace
}  // namespace jige::text
