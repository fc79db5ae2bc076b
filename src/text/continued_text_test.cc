// Texts that go on from earlier text: tokenizers that put a space or a mark before a text put none
// before these.
#include "text/test_fixtures.h"
#include "text/tokenizer.h"

namespace jige::text {
namespace {

constexpr EncodeOptions kApart = {.add_special = false, .allow_special = false};
constexpr EncodeOptions kContinued = {
    .add_special = false, .allow_special = false, .continues = true};

Ids ids_with(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.has_value()) << ids.error().message;
  return ids.value_or(Ids{});
}

// The text of a prompt's ids with those of its completion behind.
std::string joined(const Tokenizer& tokenizer, std::string_view completion,
                   const EncodeOptions& options) {
  Ids ids = ids_with(tokenizer, "2+2=", kApart);
  const Ids behind = ids_with(tokenizer, completion, options);
  ids.insert(ids.end(), behind.begin(), behind.end());
  return *tokenizer.decode(ids, {});
}

TEST(ContinuedText, GetsNoSpaceFromAnyKindOfTokenizer) {
  for (const char* name :
       {"tokenizers/gpt2_prefix", "tokenizers/llama2_legacy", "tokenizers/llama2_metaspace",
        "tokenizers/mistral", "sentencepiece/bpe", "sentencepiece/unigram", "tokenizers/t5",
        "tokenizers/xlm_roberta", "tokenizers/unigram_bytes"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::load(fixture_path(name));
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    EXPECT_TRUE(tokenizer->marks_start());
    const std::string prompt = joined(*tokenizer, "", kContinued);
    EXPECT_TRUE(prompt == "2+2=" || prompt == " 2+2=") << prompt;
    EXPECT_EQ(joined(*tokenizer, "4", kApart), prompt + " 4") << "a text of its own";
    for (const std::string completion : {"", "4", " 4", "four, I think", "the end of it", "."}) {
      EXPECT_EQ(joined(*tokenizer, completion, kContinued), prompt + completion);
    }
  }
}

TEST(ContinuedText, IsLikeAnyOtherWhereNothingIsPutBeforeTexts) {
  for (const char* name : {"gpt2", "llama3", "qwen2", "tekken", "gemma"}) {
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = family(name);
    EXPECT_FALSE(tokenizer.marks_start());
    for (const std::string text : {"", "4", " 4", "four, I think"}) {
      EXPECT_EQ(ids_with(tokenizer, text, kContinued), ids_with(tokenizer, text, kApart));
    }
  }
}

struct MarkCase {
  const char* what;
  std::string fields;
  std::string spelled;    // "a a<x>a" as a text of its own
  std::string continued;  // and as one that goes on
};

TEST(ContinuedText, LosesTheFirstMarkAndNoOther) {
  const MarkCase cases[] = {
      {"nothing", "", "a a|a", "a a|a"},
      {"Prepend", R"("normalizer": {"type": "Prepend", "prepend": "_"})", "_a a|_a", "a a|_a"},
      {"Prepend and Replace",
       R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
           {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]})",
       "_a_a|_a", "a_a|_a"},
      {"Metaspace always",
       R"("pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"})",
       "_a_a|_a", "a_a|_a"},
      {"Metaspace first",
       R"("pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"})",
       "_a_a|a", "a_a|a"},
      {"Metaspace never",
       R"("pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"})",
       "a_a|a", "a_a|a"},
      {"Metaspace behind a split",
       R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
           {"type": "Metaspace", "replacement": "_"}]})",
       "_a_a|_a", "a_a|_a"},
      {"ByteLevel",
       R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})",
       "GaGa|Ga", "aGa|Ga"},
  };
  for (const MarkCase& one : cases) {
    SCOPED_TRACE(one.what);
    const auto tokenizer = Tokenizer::from_json(
        R"({"model": {"type": "BPE", "vocab": {"a": 0, " ": 1, "_": 2, "Ġ": 3}, "merges": []},
            "added_tokens": [{"id": 4, "content": "<x>", "normalized": false}])" +
            (one.fields.empty() ? "" : ", " + one.fields) + "}",
        "small");
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->marks_start(), one.spelled != one.continued);
    const auto spelled = [&](const EncodeOptions& options) {
      std::string text;
      for (const int32_t id : ids_with(*tokenizer, "a a<x>a", options)) text += "a _G|"[id];
      return text;
    };
    EXPECT_EQ(spelled({}), one.spelled);
    EXPECT_EQ(spelled({.continues = true}), one.continued);
  }
}

}  // namespace
}  // namespace jige::text
