#include "text/tokenizer.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/test_path.h"
#include "text/post_processor.h"
#include "text/test_fixtures.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

Ids encode(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.has_value()) << ids.error().message;
  return ids.value_or(Ids{});
}

// A folder with chosen files, removed at the end.
class Folder {
 public:
  Folder() : path_(test_root() + "jige_tokenizer_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void copy(const std::string& fixture, const std::string& name) const {
    std::filesystem::copy_file(fixture_path(fixture), path_ + "/" + name);
  }
  void write(const std::string& name, std::string_view text) const {
    EXPECT_TRUE(write_file_atomic(path_ + "/" + name, text).has_value());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const char* const kByteLevelFamilies[] = {"gpt2", "llama3", "tekken", "deepseek", "codegen"};

TEST(Tokenizer, GivesBackEveryValidTextThroughByteLevelFamilies) {
  Rng rng(derive_key(3, "round trip"));
  for (const char* name : kByteLevelFamilies) {
    const Tokenizer tokenizer = family(name);
    for (int round = 0; round < 300; ++round) {
      std::string text;
      const size_t size = rng.below(60);
      for (size_t i = 0; i < size; ++i) {
        const uint64_t kind = rng.below(4);
        const uint64_t limit = kind == 0   ? 0x80
                               : kind == 1 ? 0x800
                               : kind == 2 ? 0x10000
                                           : 0x110000;
        append_utf8(text, static_cast<char32_t>(rng.below(limit)));
      }
      const Ids ids = encode(tokenizer, text, {.add_special = false, .allow_special = false});
      EXPECT_EQ(*tokenizer.decode(ids, {}), text) << name;
    }
  }
}

TEST(Tokenizer, ReadsInvalidBytesAsReplacementCharacters) {
  const Tokenizer tokenizer = family("gpt2");
  Rng rng(derive_key(4, "bytes"));
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    const size_t size = rng.below(40);
    for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(rng.below(256)));
    EXPECT_EQ(encode(tokenizer, bytes), encode(tokenizer, replace_invalid_utf8(bytes)));
  }
}

TEST(Tokenizer, GivesTheSameIdsFromManyThreads) {
  const Tokenizer tokenizer = family("llama3");
  const auto corpus = read_file(fixture_path("trainer/corpus.txt"));
  ASSERT_TRUE(corpus.has_value());
  const Ids expected = encode(tokenizer, *corpus);
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) ids = *tokenizer.encode(*corpus, {});
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Ids& ids : found) EXPECT_EQ(ids, expected);
}

TEST(Tokenizer, TellsHowFarALongTextIs) {
  std::string text;
  while (text.size() < 400'000) text += "once upon a time </s> there was  a caf\u00e9, ";
  for (const char* name : {"gpt2", "llama3", "t5"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = family(name);
    std::vector<size_t> told;
    const std::function<void(size_t)> tell = [&](size_t done) { told.push_back(done); };
    const Ids ids = encode(tokenizer, text, {.on_progress = &tell});
    EXPECT_EQ(ids, encode(tokenizer, text));
    ASSERT_GE(told.size(), 5u);
    EXPECT_TRUE(std::ranges::is_sorted(told));
    EXPECT_GT(told.back(), text.size() * 3 / 4);
    EXPECT_LE(told.back(), text.size());
  }
}

TEST(Tokenizer, StopsAtTheTokenLimit) {
  const Tokenizer tokenizer = family("llama3");
  EXPECT_EQ(encode(tokenizer, "hello world", {.tokens_max = 50}).size(),
            encode(tokenizer, "hello world").size());
  const auto ids = tokenizer.encode(std::string(100000, 'x'), {.tokens_max = 10});
  ASSERT_FALSE(ids.has_value());
  EXPECT_EQ(ids.error().code, Code::kExhausted);
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  const Tokenizer tokenizer = family("gpt2");
  for (const int32_t id : {-1, tokenizer.vocab_size(), INT32_MAX, INT32_MIN}) {
    const auto text = tokenizer.decode(Ids{id}, {});
    ASSERT_FALSE(text.has_value());
    EXPECT_EQ(text.error().code, Code::kInvalidArgument);
    EXPECT_EQ(tokenizer.id_to_token(id), std::nullopt);
    StreamDecoder stream(tokenizer);
    EXPECT_FALSE(stream.push(id).has_value());
  }
}

TEST(Tokenizer, DecodesHolesInTheVocabularyAsNothing) {
  const Tokenizer tokenizer = family("llama3");  // its last vocabulary id is 1000
  EXPECT_EQ(tokenizer.vocab_size(), 1001);
  EXPECT_EQ(tokenizer.id_to_token(900), std::nullopt);
  EXPECT_EQ(*tokenizer.decode(Ids{900}, {}), "");
}

TEST(Tokenizer, TreatsSpecialTextAsTextWhenTold) {
  const Tokenizer tokenizer = family("qwen2");
  const int32_t end = *tokenizer.token_to_id("<|im_end|>");
  const std::string text = "a<|im_end|>b<think>";
  const Ids trusted = encode(tokenizer, text);
  EXPECT_EQ(std::count(trusted.begin(), trusted.end(), end), 1);
  const Ids untrusted = encode(tokenizer, text, {.allow_special = false});
  EXPECT_EQ(std::count(untrusted.begin(), untrusted.end(), end), 0);
  EXPECT_EQ(*tokenizer.decode(untrusted, {.skip_special = true}), text);
  EXPECT_TRUE(tokenizer.is_special(end));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.token_to_id("<think>")));
}

TEST(Tokenizer, FindsNoSpecialTokenAcrossAGuard) {
  const Tokenizer tokenizer = family("qwen2");
  const int32_t end = *tokenizer.token_to_id("<|im_end|>");
  const std::string text = "<|im_end|><|im_end|>";
  const std::vector<size_t> guards = {1};
  const Ids ids = encode(tokenizer, text, {.guards = guards});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), end), 1);
  EXPECT_EQ(ids.back(), end);
  EXPECT_EQ(*tokenizer.decode(ids, {}), text);
}

TEST(Tokenizer, ReadsRolesAndTemplateFromTheFolder) {
  const Folder folder;
  folder.copy("tokenizers/llama3/tokenizer.json", "tokenizer.json");
  folder.write("tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>",
      "eos_token": {"content": "<|eot_id|>", "lstrip": false}, "pad_token": null,
      "chat_template": [{"name": "tool_use", "template": "T"},
                        {"name": "default", "template": "D"}]})");
  folder.write("special_tokens_map.json", R"({"pad_token": "<|end_of_text|>"})");
  folder.write("generation_config.json", R"({"eos_token_id": [701, 704, 99999, -3]})");
  const auto tokenizer = Tokenizer::load(folder.path());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->special().bos_token, "<|begin_of_text|>");
  EXPECT_EQ(tokenizer->bos_id(), tokenizer->token_to_id("<|begin_of_text|>"));
  EXPECT_EQ(tokenizer->eos_id(), tokenizer->token_to_id("<|eot_id|>"));
  EXPECT_EQ(tokenizer->pad_id(), tokenizer->token_to_id("<|end_of_text|>"));
  EXPECT_EQ(tokenizer->eos_ids(), (Ids{705, 701, 704}));
  EXPECT_EQ(tokenizer->chat_template(), "D");
  folder.write("chat_template.jinja", "file");
  EXPECT_EQ(Tokenizer::load(folder.path())->chat_template(), "file");
}

// What transformers 5 does, and for files that say nothing and the classes of DeepSeek and others
// what it did before.
TEST(Tokenizer, FollowsThePostProcessorElseTheFlagsOfClassesThatAddByThemselves) {
  const std::string file = read_file(fixture_path("tokenizers/llama3/tokenizer.json")).value_or("");
  Json json = *parse_json(file, "llama3");
  Json recorded = json["post_processor"];
  recorded["processors"][1]["special_tokens"]["<|begin_of_text|>"]["ids"] = Json::array({701});
  Json nothing_but_text = recorded["processors"][1];
  nothing_but_text["single"] = Json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}});
  const Json byte_level = recorded["processors"][0];
  struct Case {
    const char* what;
    Json post_processor;
    const char* tokenizer_class;
    const char* flags;
    std::string added;
  };
  const char* const both = R"("add_bos_token": true, "add_eos_token": true)";
  const char* const bos = R"("add_bos_token": true)";
  const char* const none = R"("add_bos_token": false)";
  const Case cases[] = {
      {"a template", recorded, "PreTrainedTokenizerFast", none, "b"},
      {"a template", recorded, "LlamaTokenizerFast", none, "b"},
      {"a template", recorded, "LlamaTokenizer", both, "b"},
      {"a template of the text alone", nothing_but_text, "LlamaTokenizerFast", bos, ""},
      {"nothing", nullptr, "LlamaTokenizerFast", both, "be"},
      {"nothing", nullptr, "GemmaTokenizer", bos, "b"},
      {"nothing", nullptr, "PreTrainedTokenizerFast", both, ""},
      {"bytes", byte_level, "LlamaTokenizerFast", bos, "b"},
      {"bytes", byte_level, "LlamaTokenizerFast", none, ""},
      {"bytes", byte_level, "GPT2Tokenizer", bos, ""},
      {"bytes", byte_level, "Qwen2Tokenizer", bos, ""},
  };
  const Folder folder;
  for (const Case& one : cases) {
    json["post_processor"] = one.post_processor;
    folder.write("tokenizer.json", json.dump());
    folder.write("tokenizer_config.json",
                 std::string(R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>",)") +
                     R"("tokenizer_class": ")" + one.tokenizer_class + "\", " + one.flags + "}");
    const auto tokenizer = Tokenizer::load(folder.path());
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    Ids expected;
    for (const char role : one.added) {
      expected.push_back(role == 'b' ? tokenizer->bos_id() : tokenizer->eos_id());
    }
    EXPECT_EQ(encode(*tokenizer, ""), expected)
        << one.what << ", " << one.tokenizer_class << ", " << one.flags;
    EXPECT_EQ(encode(*tokenizer, "", {.add_special = false}), Ids{});
  }
}

TEST(Tokenizer, LoadsSentencePieceModelsAndJoinsTextAfterSpecialTokens) {
  const auto tokenizer = Tokenizer::load(fixture_path("sentencepiece/bpe"));
  ASSERT_TRUE(tokenizer.has_value());
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(encode(*tokenizer, "red").front(), 1) << "bos is the custom of these models";
  const Ids ids = encode(*tokenizer, "red</s>green  blue\n<s>", {.add_special = false});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 1);
  EXPECT_EQ(ids.back(), 1);
  EXPECT_EQ(*tokenizer->decode(ids, {}), "red</s>green  blue\n<s>")
      << "no space is put behind a special token";
}

TEST(Tokenizer, SentencePieceKeepsUnknownCharactersBehindSpecialTokens) {
  const auto tokenizer = Tokenizer::load(fixture_path("sentencepiece/unigram"));
  ASSERT_TRUE(tokenizer.has_value());
  const int32_t unk = tokenizer->special().unk_id;
  const auto plain = [&](std::string_view text) {
    return encode(*tokenizer, text, {.add_special = false});
  };
  const Ids known = plain("<s>ab");
  Ids expected = known;
  expected.insert(expected.begin() + 1, unk);
  EXPECT_EQ(plain("<s>☃ab"), expected);
  EXPECT_EQ(plain("<s>☃☃ab"), expected) << "a run is one token";
  EXPECT_EQ(plain("</s>☃"), (Ids{2, unk}));
  EXPECT_EQ(plain("</s>☃<s>"), (Ids{2, unk, 1}));
}

TEST(Tokenizer, SentencePieceMakesNoSpecialTokenOfTextThatIsToStayText) {
  const Folder folder;
  auto model = read_file(fixture_path("sentencepiece/bpe/tokenizer.model"));
  ASSERT_TRUE(model.has_value());
  const int32_t id = Tokenizer::load(fixture_path("sentencepiece/bpe"))->vocab_size();
  // One more piece at the end of the list: text, score 0, type user-defined.
  const std::string name = "<|im_end|>";
  std::string piece = "\x0A" + std::string(1, static_cast<char>(name.size())) + name;
  piece += std::string("\x15\0\0\0\0\x18\x04", 7);
  *model += "\x0A" + std::string(1, static_cast<char>(piece.size())) + piece;
  folder.write("tokenizer.model", *model);
  const auto count = [&](const Ids& ids) { return std::count(ids.begin(), ids.end(), id); };
  const std::string text = "red<|im_end|>green<|im_end|><|im_<|im_end|>";
  const EncodeOptions as_text{.add_special = false, .allow_special = false};
  {
    const auto tokenizer = Tokenizer::load(folder.path());
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    EXPECT_EQ(count(encode(*tokenizer, text, as_text)), 3) << "an ordinary piece";
  }
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {")" + std::to_string(id) +
                                            R"(": {"content": "<|im_end|>", "special": true}}})");
  const auto tokenizer = Tokenizer::load(folder.path());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ(count(encode(*tokenizer, text)), 3);
  const Ids ids = encode(*tokenizer, text, as_text);
  EXPECT_EQ(count(ids), 0);
  EXPECT_EQ(*tokenizer->decode(ids, {}), text);
}

TEST(Tokenizer, SentencePieceTextsComeBack) {
  const auto tokenizer = Tokenizer::load(fixture_path("sentencepiece/bpe"));
  ASSERT_TRUE(tokenizer.has_value());
  for (const Json& row : fixture_rows("sentencepiece/bpe/cases.jsonl")) {
    if (!row.contains("text")) continue;
    const std::string text = row_input(row);
    if (text.find('\0') != std::string::npos) continue;            // the library drops NUL
    if (text.find("\xE2\x96\x81") != std::string::npos) continue;  // a literal mark is a space
    const Ids ids = encode(*tokenizer, text, {.allow_special = false});
    EXPECT_EQ(*tokenizer->decode(ids, {.skip_special = true}), text);
  }
}

struct Refusal {
  const char* what;
  std::string json;
  Code code;
  const char* named;
};

std::string tokenizer_with(const std::string& fields) {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})" +
         (fields.empty() ? "" : ", " + fields) + "}";
}

TEST(TokenizerJson, AFileThatIsNoJsonIsRefusedWithThePlace) {
  const auto refused = Tokenizer::from_json("{\"model\": x}", "small");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "small: not valid JSON: column 11: invalid literal; last read: '\"model\": x'");
}

TEST(TokenizerJson, LoadsTheSmallestFile) {
  const auto tokenizer = Tokenizer::from_json(tokenizer_with(""), "small");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ(encode(*tokenizer, "aba"), (Ids{2, 0}));
  EXPECT_EQ(*tokenizer->decode(Ids{2, 0}, {}), "ab a") << "without decoder, spaces join tokens";
}

TEST(TokenizerJson, WhiteSpaceThatATokenTookAlongIsNoSecondToken) {
  const auto tokenizer = Tokenizer::from_json(
      tokenizer_with(R"("added_tokens": [{"id": 3, "content": "\n", "normalized": false,
                                          "lstrip": true, "rstrip": true}])"),
      "small");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ(encode(*tokenizer, "a \n\n \n a\na"), (Ids{0, 3, 0, 3, 0}));
}

TEST(TokenizerJson, OfTokensThatTheNormalizerMakesEqualTheFirstIsFound) {
  const auto tokenizer = Tokenizer::from_json(tokenizer_with(R"("normalizer": {"type": "Lowercase"},
                        "added_tokens": [{"id": 5, "content": "CD", "normalized": true},
                                         {"id": 4, "content": "Cd", "normalized": true},
                                         {"id": 6, "content": "cd", "normalized": true}])"),
                                              "small");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  EXPECT_EQ(encode(*tokenizer, "aCDcdb"), (Ids{0, 4, 4, 1}));
}

TEST(TokenizerJson, RefusesWhatItCannotDoNamingIt) {
  const Refusal refusals[] = {
      {"a model", R"({"model": {"type": "WordLevel", "vocab": {"a": 0}}})", Code::kUnsupported,
       "WordLevel"},
      {"a normalizer", tokenizer_with(R"("normalizer": {"type": "Unknown"})"), Code::kUnsupported,
       "Unknown"},
      {"a pre-tokenizer", tokenizer_with(R"("pre_tokenizer": {"type": "UnicodeScripts"})"),
       Code::kUnsupported, "UnicodeScripts"},
      {"a decoder", tokenizer_with(R"("decoder": {"type": "CTC"})"), Code::kUnsupported, "CTC"},
      {"a post-processor", tokenizer_with(R"("post_processor": {"type": "Magic"})"),
       Code::kUnsupported, "Magic"},
      {"a part of a sequence",
       tokenizer_with(R"("decoder": {"type": "Sequence", "decoders": [{"type": "CTC"}]})"),
       Code::kUnsupported, "CTC"},
      {"a limit", R"({"model": {"type": "WordPiece", "vocab": {"a": 0},
       "max_input_chars_per_word": 0}})",
       Code::kCorrupt, "max_input_chars_per_word"},
      {"a suffix", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [],
       "end_of_word_suffix": "</w>"}})",
       Code::kUnsupported, "end_of_word_suffix"},
      {"a possessive interval",
       tokenizer_with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a{1,2}+"}})"),
       Code::kUnsupported, "{n,m}+"},
  };
  for (const Refusal& refusal : refusals) {
    const auto tokenizer = Tokenizer::from_json(refusal.json, "folder/tokenizer.json");
    ASSERT_FALSE(tokenizer.has_value()) << refusal.what;
    EXPECT_EQ(tokenizer.error().code, refusal.code) << tokenizer.error().message;
    EXPECT_NE(tokenizer.error().message.find(refusal.named), std::string::npos)
        << tokenizer.error().message;
    EXPECT_NE(tokenizer.error().message.find("folder/tokenizer.json"), std::string::npos);
  }
}

TEST(TokenizerJson, RefusesFilesThatContradictThemselves) {
  const std::string broken[] = {
      "",
      "null",
      "[]",
      "{}",
      R"({"model": 3})",
      R"({"model": {"type": "BPE"}})",
      R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 99999999999}, "merges": []}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 1.5}, "merges": []}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c"]}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "a", "a"]]}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a z"]}})",
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": {"a": 1}}})",
      R"({"model": {"type": "BPE", "vocab": [["a", 0]], "merges": []}})",
      R"({"model": {"type": "Unigram", "vocab": {"a": 0}}})",
      R"({"model": {"type": "Unigram", "vocab": []}})",
      R"({"model": {"type": "Unigram", "vocab": ["a", 0.5]}})",
      R"({"model": {"type": "Unigram", "vocab": [["a"]]}})",
      R"({"model": {"type": "Unigram", "vocab": [["a", 0.5, 0.5]]}})",
      R"({"model": {"type": "Unigram", "vocab": [["a", "b"]]}})",
      R"({"model": {"type": "Unigram", "vocab": [[0.5, "a"]]}})",
      R"({"model": {"type": "Unigram", "vocab": [[0.5, 0.5]]}})",
      R"({"model": {"type": "Unigram", "vocab": [["a", null]]}})",
      R"({"model": {"type": "Unigram", "vocab": [["a", [0.5]]]}})",
      R"({"model": {"type": "Unigram", "vocab": [{"a": 0.5}]}})",
      R"({"model": {"type": "Unigram", "vocab": [{"x": "a", "y": 0.5}]}})",
      R"({"model": {"type": "Unigram", "vocab": [["a", 1e999]]}})",
      R"({"model": {"type": "Unigram", "vocab": [["a", 0.5]], "unk_id": 1}})",
      R"({"model": {"type": "Unigram", "vocab": [["a", 0.5]], "unk_id": -1}})",
      R"({"model": {"type": "Unigram", "vocab": [["a", 0.5]], "unk_id": "a"}})",
      tokenizer_with(R"("normalizer": {"type": "Precompiled"})"),
      tokenizer_with(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": ""})"),
      tokenizer_with(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "!"})"),
      tokenizer_with(R"("added_tokens": [{"id": -5, "content": "x"}])"),
      tokenizer_with(R"("added_tokens": [{"id": 4294967296, "content": "x"}])"),
      tokenizer_with(R"("added_tokens": [{"content": "x"}])"),
      tokenizer_with(R"("added_tokens": {"x": 1})"),
      tokenizer_with(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}})"),
      tokenizer_with(R"("pre_tokenizer": {})"),
      tokenizer_with(R"("post_processor": {"type": "TemplateProcessing", "single":
          [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
          "special_tokens": {"<s>": {"ids": [7]}}})"),
      tokenizer_with("").substr(0, 40),
      std::string("{\"a\": \0 1}", 10),
  };
  for (const std::string& text : broken) {
    const auto tokenizer = Tokenizer::from_json(text, "broken.json");
    ASSERT_FALSE(tokenizer.has_value()) << text;
    EXPECT_NE(tokenizer.error().message.find("broken.json"), std::string::npos);
  }
}

TEST(TokenizerFolder, SaysWhatIsMissing) {
  const Folder folder;
  const auto none = Tokenizer::load(folder.path());
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_NE(none.error().message.find("tokenizer.json"), std::string::npos);
  folder.write("tokenizer.model", "not a model");
  const auto broken = Tokenizer::load(folder.path());
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code, Code::kCorrupt);
  folder.write("tokenizer.model", "IQ== 0\nIg== 1\n");
  const auto ranks = Tokenizer::load(folder.path());
  ASSERT_FALSE(ranks.has_value());
  EXPECT_EQ(ranks.error().code, Code::kUnsupported);
  EXPECT_NE(ranks.error().message.find("tiktoken"), std::string::npos) << ranks.error().message;
}

TEST(TokenizerFolder, AVocabularyAloneIsThatOfAClass) {
  const Folder folder;
  const auto refused = [&](Code code, const std::string& part) {
    const auto made = Tokenizer::load(folder.path());
    ASSERT_FALSE(made.has_value()) << part;
    EXPECT_EQ(made.error().code, code) << made.error().message;
    EXPECT_NE(made.error().message.find(part), std::string::npos) << made.error().message;
    EXPECT_NE(made.error().message.find("vocab.txt"), std::string::npos);
  };
  const std::string good = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##b\n";
  folder.write("vocab.txt", good);
  const auto bert = Tokenizer::load(folder.path());
  ASSERT_TRUE(bert.has_value()) << bert.error().message;
  EXPECT_EQ(encode(*bert, "AB c"), (Ids{2, 4, 5, 1, 3}));
  EXPECT_EQ(bert->special().pad_id, -1) << "no file gives it a role";
  ASSERT_NE(bert->pair_frame(), nullptr);
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "PhobertTokenizer"})");
  refused(Code::kUnsupported, "PhobertTokenizer");
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "MPNetTokenizer"})");
  refused(Code::kCorrupt, "\"<s>\"");
  folder.write("tokenizer_config.json", R"({"cls_token": "a", "unk_token": "[CLS]"})");
  const auto named = Tokenizer::load(folder.path());
  ASSERT_TRUE(named.has_value()) << named.error().message;
  EXPECT_EQ(encode(*named, "b"), (Ids{4, 2, 3}));
  folder.write("tokenizer_config.json", "{}");
  folder.write("vocab.txt", "");
  refused(Code::kCorrupt, "[CLS]");
  folder.write("vocab.txt", good + "\xFF\n");
  refused(Code::kCorrupt, "UTF-8");
}

// As transformers' classes frame two texts: [CLS] a [SEP] b [SEP] with types, <s> a </s></s> b
// </s>.
TEST(TokenizerFolder, AVocabularyAloneFramesPairsAsItsClassDoes) {
  const auto frame = [](const char* name) {
    const auto tokenizer = Tokenizer::load(fixture_path(std::string("vocab_lists/") + name));
    EXPECT_TRUE(tokenizer && tokenizer->pair_frame()) << name;
    return *tokenizer->pair_frame();
  };
  for (const char* name : {"bert", "accents", "cased"}) {
    const PairFrame bert = frame(name);
    EXPECT_EQ(bert.before, Ids{2}) << name;
    EXPECT_EQ(bert.between, Ids{3}) << name;
    EXPECT_EQ(bert.behind, Ids{3}) << name;
    EXPECT_EQ(bert.second_from, size_t{1}) << name;
  }
  const PairFrame mpnet = frame("mpnet");
  EXPECT_EQ(mpnet.before, Ids{2});
  EXPECT_EQ(mpnet.between, (Ids{3, 3}));
  EXPECT_EQ(mpnet.behind, Ids{3});
  EXPECT_FALSE(mpnet.second_from.has_value());
}

TEST(TokenizerFolder, FieldsOfAnotherTypeAreDamage) {
  const std::pair<const char*, std::string> damaged[] = {
      {"tokenizer.json", tokenizer_with(R"("added_tokens": [{"id": 0, "content": 5}])")},
      {"tokenizer.json", tokenizer_with(R"("normalizer": {"type": "Prepend", "prepend": 5})")},
      {"tokenizer_config.json", R"({"eos_token": 5})"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": [1]})"},
      {"tokenizer_config.json", R"({"do_lower_case": "yes"})"},
      {"tokenizer_config.json", R"({"strip_accents": 1})"},
      {"special_tokens_map.json", R"({"bos_token": [1]})"},
      {"chat_template.json", R"({"chat_template": 5})"},
      {"chat_template.json", R"({"chat_template":)"},
      {"generation_config.json", R"({"eos_token_id": "</s>"})"},
  };
  for (const auto& [name, text] : damaged) {
    SCOPED_TRACE(text);
    const Folder folder;
    folder.write("tokenizer.json", tokenizer_with(""));
    ASSERT_TRUE(Tokenizer::load(folder.path()).has_value());
    folder.write(name, text);
    const auto tokenizer = Tokenizer::load(folder.path());
    ASSERT_FALSE(tokenizer.has_value());
    EXPECT_EQ(tokenizer.error().code, Code::kCorrupt) << tokenizer.error().message;
    EXPECT_NE(tokenizer.error().message.find(name), std::string::npos);
  }
}

TEST(TokenizerFolder, ATemplateOfItsOwnFileCountsWhereThereIsNoOther) {
  const Folder folder;
  const auto chat_template = [&] { return Tokenizer::load(folder.path())->chat_template(); };
  folder.write("tokenizer.json", tokenizer_with(""));
  folder.write("chat_template.json", R"({"chat_template": "own"})");
  EXPECT_EQ(chat_template(), "own");
  folder.write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(chat_template(), "config");
  folder.write("chat_template.jinja", "jinja");
  EXPECT_EQ(chat_template(), "jinja");
}

}  // namespace
}  // namespace jige::text
