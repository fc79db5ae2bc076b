// Tokenizers of GGUF files: the ids of the tokenizers they were made of, and what is refused.
#include "formats/gguf_tokenizer.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "formats/gguf_test_support.h"
#include "text/test_fixtures.h"
#include "text/tokenizer.h"

namespace jige::formats {
namespace {

using text::Ids;

constexpr int64_t kRoomyVocabulary = 100'000;

Result<GgufTokenizerFiles> read_file_tokenizer(const std::string& path) {
  JIGE_TRY(const GgufFile file, GgufFile::open(path));
  return read_gguf_tokenizer(file.metadata(), {.vocab_size = kRoomyVocabulary});
}

Result<GgufTokenizerFiles> read_built(const GgufBuilder& builder, const std::string& pre = "") {
  const std::string file = builder.bytes();
  JIGE_TRY(const GgufHeader header, parse_gguf(bytes_of(file), "a.gguf"));
  return read_gguf_tokenizer(header.metadata, {.pre = pre, .vocab_size = 40, .context_tokens = 64});
}

std::string recorded_cases(const std::string& name) {
  const bool own = name == "smollm" || name == "spm";
  return own ? "../gguf/tokenizer-" + name + ".jsonl" : "tokenizers/" + name + "/cases.jsonl";
}

TEST(GgufTokenizer, GivesTheIdsOfTheTokenizersThatTheFilesWereMadeOf) {
  for (const char* name : {"gpt2", "llama3", "qwen2", "tekken", "smollm", "spm"}) {
    SCOPED_TRACE(name);
    const auto files =
        read_file_tokenizer(gguf_fixture(std::string("tokenizer-") + name + ".gguf"));
    ASSERT_TRUE(files) << files.error().message;
    const auto tokenizer = text::Tokenizer::from_json(files->tokenizer_json, name);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    int count = 0;
    for (const Json& row : text::fixture_rows(recorded_cases(name))) {
      if (!row.contains("ids")) continue;
      ++count;
      const auto expect = [&](const char* field, const text::EncodeOptions& options) {
        const auto ids = tokenizer->encode(text::row_input(row), options);
        ASSERT_TRUE(ids) << ids.error().message;
        EXPECT_EQ(*ids, row[field].get<Ids>()) << row.dump();
      };
      expect("ids", {});
      if (row.contains("ids_plain")) expect("ids_plain", {.add_special = false});
      if (row.contains("ids_as_text")) {
        expect("ids_as_text", {.add_special = false, .allow_special = false});
      }
      EXPECT_EQ(tokenizer->decode(row["ids"].get<Ids>(), {}).value(),
                row["decoded"].get<std::string>());
    }
    EXPECT_GE(count, 50);
    if (name == std::string("llama3")) {
      ASSERT_EQ(tokenizer->prefix_ids().size(), 1u);
      EXPECT_EQ(tokenizer->prefix_ids()[0], tokenizer->token_to_id("<|begin_of_text|>"));
    }
  }
}

TEST(GgufTokenizer, SentencePieceIdsAreThoseOfTheLibrary) {
  const auto files = read_file_tokenizer(gguf_fixture("tokenizer-spm.gguf"));
  ASSERT_TRUE(files) << files.error().message;
  const auto tokenizer = text::Tokenizer::from_json(files->tokenizer_json, "spm");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  for (const Json& row : text::fixture_rows("sentencepiece/bpe/cases.jsonl")) {
    const auto ids =
        tokenizer->encode(text::row_input(row), {.add_special = false, .allow_special = false});
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, row["ids"].get<Ids>()) << row.dump();
  }
}

TEST(GgufTokenizer, WritesRolesTemplateAndEnds) {
  GgufBuilder builder = small_gguf_llama();
  std::vector<std::string> tokens(35, "");
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = fmt::format("t{}", i);
  tokens[5] = "<|im_end|>";
  tokens[6] = "<|eom_id|>";
  tokens[7] = "<|eot_id|>";
  std::vector<int32_t> types(35, 1);
  types[5] = types[6] = 3;
  types[9] = 5;
  types[11] = 4;
  builder.texts("tokenizer.ggml.tokens", tokens)
      .reals("tokenizer.ggml.scores", std::vector<float>(35, -1.0f))
      .ints("tokenizer.ggml.token_type", types)
      .number("tokenizer.ggml.bos_token_id", 3)
      .number("tokenizer.ggml.eos_token_id", 4)
      .number("tokenizer.ggml.padding_token_id", 9)
      .number("tokenizer.ggml.eot_token_id", 8)
      .flag("tokenizer.ggml.add_eos_token", true)
      .text("tokenizer.chat_template", "{{ messages[0].content }}<|im_end|>");
  const auto files = read_built(builder);
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->bos_id, 3);
  EXPECT_EQ(files->pad_id, 9);
  // Stated, and the one that the template writes; <|eot_id|> is an ordinary token here.
  EXPECT_EQ(files->eos_ids, (std::vector<int32_t>{4, 8, 5}));
  const auto config = parse_json(files->tokenizer_config_json, "tokenizer_config.json");
  ASSERT_TRUE(config);
  EXPECT_EQ((*config)["bos_token"], "t3");
  EXPECT_EQ((*config)["pad_token"], "t9");
  EXPECT_EQ((*config)["chat_template"], "{{ messages[0].content }}<|im_end|>");
  EXPECT_EQ((*config)["model_max_length"], 64);
  EXPECT_EQ((*config)["add_bos_token"], true);
  const auto tokenizer = text::Tokenizer::from_json(files->tokenizer_json, "t");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("<|im_end|>t11", {}).value(), (Ids{3, 5, 11, 4}));
  EXPECT_TRUE(tokenizer->is_special(5));
  EXPECT_FALSE(tokenizer->is_special(11));
}

TEST(GgufTokenizer, PutsNoSpaceInFrontWhereTheFileSaysSo) {
  GgufBuilder builder = small_gguf_llama();
  builder.flag("tokenizer.ggml.add_bos_token", false);
  const auto ids = [&] {
    const auto files = read_built(builder);
    EXPECT_TRUE(files) << files.error().message;
    return text::Tokenizer::from_json(files->tokenizer_json, "t")->encode("the", {}).value();
  };
  EXPECT_EQ(ids(), Ids{33});  // "▁the"
  builder.flag("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(ids(), Ids{32});  // "the"
}

TEST(GgufTokenizer, TakesTheUsualWordsOfAnArchitectureWhereTheFileNamesNone) {
  GgufBuilder builder = small_gguf_llama();
  builder.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.merges", {"t h", "th e"});
  for (const auto& [architecture, words] :
       {std::pair{"llama", "llama-bpe"}, std::pair{"qwen3", "qwen2"}, std::pair{"gpt2", "gpt-2"}}) {
    builder.text("general.architecture", architecture);
    const auto files = read_built(builder);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_EQ(files->kind, fmt::format("byte-level BPE, words as {}", words));
  }
  EXPECT_EQ(read_built(builder, "smollm")->kind, "byte-level BPE, words as smollm");
  builder.text("tokenizer.ggml.pre", "poro-chat");
  EXPECT_FAILS_WITH(read_built(builder), Code::kUnsupported, "\"poro-chat\"");
  EXPECT_FAILS_WITH(read_built(builder), Code::kUnsupported, "--pre");
  EXPECT_TRUE(read_built(builder, "gpt-2"));
}

TEST(GgufTokenizer, RefusesWhatContradictsItself) {
  struct Case {
    std::function<void(GgufBuilder&)> change;
    Code code;
    std::string words;
  };
  const std::vector<Case> cases = {
      {[](auto& b) { b.text("tokenizer.ggml.model", "t5"); }, Code::kUnsupported, "\"t5\""},
      {[](auto& b) { b.remove("tokenizer.ggml.model"); }, Code::kUnsupported, "no tokenizer"},
      {[](auto& b) { b.remove("tokenizer.ggml.tokens"); }, Code::kCorrupt, "is missing"},
      {[](auto& b) { b.texts("tokenizer.ggml.tokens", {}); }, Code::kCorrupt, "is empty"},
      {[](auto& b) { b.texts("tokenizer.ggml.tokens", std::vector<std::string>(41, "x")); },
       Code::kCorrupt, "has 41 tokens, but tensor \"token_embd.weight\" has 40 rows"},
      {[](auto& b) {
         b.ints("tokenizer.ggml.token_type", {1, 2});
       },
       Code::kCorrupt, "has 2 elements"},
      {[](auto& b) { b.reals("tokenizer.ggml.scores", {1.0f}); }, Code::kCorrupt, "has 1 elements"},
      {[](auto& b) { b.remove("tokenizer.ggml.scores"); }, Code::kCorrupt, "scores\" is missing"},
      {[](auto& b) { b.number("tokenizer.ggml.bos_token_id", 99); }, Code::kCorrupt,
       "key \"tokenizer.ggml.bos_token_id\" is 99"},
      {[](auto& b) { b.texts("tokenizer.ggml.tokens", std::vector<std::string>(34, "x")); },
       Code::kCorrupt, "tokens 0 and 1"},
      {[](auto& b) {
         b.texts("tokenizer.ggml.tokens", {"\xff"}).remove("tokenizer.ggml.token_type");
       },
       Code::kCorrupt, "not UTF-8"},
      {[](auto& b) { b.text("tokenizer.chat_template", "\xff"); }, Code::kCorrupt, "not UTF-8"},
      {[](auto& b) { b.text("tokenizer.ggml.model", "gpt2"); }, Code::kCorrupt,
       "merges\" is missing"},
      {[](auto& b) {
         b.texts("tokenizer.ggml.merges", {"t h", "th"});
       },
       Code::kCorrupt, "merge 1"},
      {[](auto& b) { b.texts("tokenizer.ggml.merges", {"t q"}); }, Code::kCorrupt, "tq"},
      {[](auto& b) { b.flag("tokenizer.ggml.remove_extra_whitespaces", true); }, Code::kUnsupported,
       "remove_extra_whitespaces"},
  };
  for (const Case& entry : cases) {
    SCOPED_TRACE(entry.words);
    GgufBuilder builder = small_gguf_llama();
    entry.change(builder);
    const auto files = read_built(builder);
    EXPECT_FAILS_WITH(files, entry.code, entry.words);
    EXPECT_NE(files.error().message.find("a.gguf"), std::string::npos);
  }
}

}  // namespace
}  // namespace jige::formats
