// Cutting a long text: the ids of both parts are those of the whole, whatever follows.
#include "base/rng.h"
#include "text/regex.h"
#include "text/test_fixtures.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

constexpr EncodeOptions kStart = {.add_special = false, .allow_special = false};
constexpr EncodeOptions kFurther = {
    .add_special = false, .allow_special = false, .continues = true};

Ids plain_ids(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids.has_value()) << ids.error().message;
  return ids.value_or(Ids{});
}

// Words, white space and characters that patterns, normalizers and tokens look across.
std::string random_text(Rng& rng, size_t size) {
  static const std::vector<std::string> kKinds[] = {
      {"the", "winter", " a", " of", "don't", "We'll", "word", "Caf\u00e9", "cafe\u0301", "x", " "},
      {" ", "  ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2581", " \n ", "   "},
      {"1", "22", "4096", ".", ",", "...", "!?", "(", ")", "_", "/", "'", "'s", "\u0660"},
      {"\u6f22\u5b57", "\u3042", "\uff9e", "\u1112\u1161\u11ab", "\u1161", "\u0301", "\u0327",
       "\ud55c", "\u2028", "\U0001F600", "\ue000", "\ufb01", "\u0130"},
      {"<|endoftext|>", "<think>", "</s>", "<R>", "<L>", "<B>", "<W>", "<Norm>", "RAW", "<a><b>",
       "[INST]", "<h1>", "<", "<R> ", " <L>", "<mask>", "\u00e9\u00e8 word"},
  };
  std::string text;
  // One kind of text for a while, so that long runs come.
  while (text.size() < size) {
    const auto& kind = kKinds[rng.below(std::size(kKinds))];
    const bool spaced = rng.below(2) == 0;
    for (uint64_t i = 1 + rng.below(30); i > 0; --i) {
      text += kind[rng.below(kind.size())];
      if (spaced) text += " ";
    }
  }
  return text;
}

// Whether the text, of which `seen` bytes are known, could be cut; its ids are the same then.
bool check_cut(const Tokenizer& tokenizer, const std::string& text, size_t seen, size_t wanted,
               bool continues) {
  const auto cut = tokenizer.safe_cut(text.substr(0, seen), wanted, continues);
  if (!cut) return false;
  EXPECT_GT(*cut, 0u);
  EXPECT_LE(*cut, wanted);
  Ids parts = plain_ids(tokenizer, text.substr(0, *cut), continues ? kFurther : kStart);
  const Ids right = plain_ids(tokenizer, text.substr(*cut), kFurther);
  parts.insert(parts.end(), right.begin(), right.end());
  EXPECT_EQ(parts, plain_ids(tokenizer, text, continues ? kFurther : kStart))
      << "cut at " << *cut << " between \""
      << text.substr(*cut - std::min<size_t>(*cut, 20), std::min<size_t>(*cut, 20)) << "\" and \""
      << text.substr(*cut, 20) << "\"";
  return true;
}

// How many of the texts could be cut.
int check_cuts(const Tokenizer& tokenizer, uint64_t seed, int text_count) {
  Rng rng(seed);
  int cut_count = 0;
  for (int i = 0; i < text_count && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    const std::string text = random_text(rng, 1400 + rng.below(1500));
    size_t seen = text.size() - rng.below(300);
    while ((static_cast<uint8_t>(text[seen - 1]) & 0x80) != 0) --seen;
    const bool continues = rng.below(2) == 0;
    if (check_cut(tokenizer, text, seen, 1 + rng.below(seen), continues)) ++cut_count;
  }
  return cut_count;
}

TEST(SafeCut, ChangesNoIdOfAnyFamily) {
  for (const char* name : {"tokenizers/deepseek",
                           "tokenizers/flags",
                           "tokenizers/gemma",
                           "tokenizers/gpt2",
                           "tokenizers/gpt2_prefix",
                           "tokenizers/llama2_legacy",
                           "tokenizers/llama2_metaspace",
                           "tokenizers/llama3",
                           "tokenizers/mistral",
                           "tokenizers/qwen2",
                           "tokenizers/tekken",
                           "tokenizers/gpt_neox",
                           "tokenizers/codegen",
                           "tokenizers/cohere",
                           "sentencepiece/bpe",
                           "sentencepiece/unigram",
                           "tokenizers/t5",
                           "tokenizers/xlm_roberta",
                           "tokenizers/albert",
                           "ranks/moonshot",
                           "ranks/tekken_v13"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = Tokenizer::load(fixture_path(name));
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    EXPECT_GT(check_cuts(*tokenizer, 11, 32), 16);
  }
}

struct StepCase {
  const char* fields;
  bool cuts;
};

TEST(SafeCut, ChangesNoIdOfAnyStep) {
  const StepCase cases[] = {
      {R"("normalizer": {"type": "NFD"})", true},
      {R"("normalizer": {"type": "NFKC"}, "pre_tokenizer": {"type": "WhitespaceSplit"})", true},
      {R"("normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "BertPreTokenizer"})",
       true},
      {R"("normalizer": {"type": "Strip"})", false},
      {R"("normalizer": {"type": "Replace", "pattern": {"String": "e w"}, "content": "e"})", true},
      {R"("normalizer": {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "})", true},
      {R"("normalizer": {"type": "Replace", "pattern": {"Regex": "(?<=e) "}, "content": ""})",
       false},
      {R"("normalizer": {"type": "Strip", "strip_left": false})", true},
      {R"("normalizer": {"type": "Nmt"})", true},
      {R"("normalizer": {"type": "ByteLevel"})", true},
      {R"("pre_tokenizer": {"type": "Digits", "individual_digits": false})", true},
      {R"("pre_tokenizer": {"type": "Punctuation", "behavior": "Contiguous"})", true},
      {R"("pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": " "})", true},
      {R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
           {"type": "Metaspace"}]})",
       true},
      {R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"},
           {"type": "ByteLevel", "add_prefix_space": true}]})",
       true},
      {R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [
           {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
           {"type": "Split", "pattern": {"Regex": "Ġ+"}, "behavior": "Isolated"}]})",
       true},
      {R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})",
       true},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\b"}, "behavior": "Isolated"})",
       false},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?<=e) "},
           "behavior": "Isolated"})",
       false},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "^.*$"}, "behavior": "Removed"})",
       false},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\w+(?= \\w)|\\s+|."},
           "behavior": "Removed", "invert": true})",
       true},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "e?"}, "behavior": "Isolated"})",
       true},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\w+"},
           "behavior": "Contiguous"})",
       true},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\w+"},
           "behavior": "MergedWithNext"})",
       false},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "e"}, "behavior": "Isolated"})",
       true},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "\n\n "},
           "behavior": "MergedWithPrevious"})",
       true},  // where it does not occur
  };
  // Merges that go across white space and across letters, so that a wrong cut is seen.
  const std::string model =
      R"({"model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "t": 1, "h": 2, "e": 3,
          " ": 4, "w": 5, "a": 6, "1": 7, "2": 8, "▁": 9, "Ġ": 10, ".": 11, "\n": 12, "the": 13,
          "th": 14, "e ": 15, "a\n": 16, "Ġw": 17, "22": 18, "n": 19, "o": 20, "r": 21, "e▁": 22,
          "i": 23, "in": 24, "Ã": 25, "©": 26, "Ã©": 27},
          "merges": [["t", "h"], ["th", "e"], ["e", " "], ["a", "\n"], ["Ġ", "w"], ["2", "2"],
          ["i", "n"], ["e", "▁"], ["Ã", "©"]]}, )";
  for (const StepCase& one : cases) {
    SCOPED_TRACE(one.fields);
    const auto tokenizer = Tokenizer::from_json(model + one.fields + "}", "steps");
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    EXPECT_EQ(check_cuts(*tokenizer, 5, 25) > 0, one.cuts);
  }
}

// A token that stands only as a word of its own, and the inside of one that is special, which a cut
// beside or within them would set free.
TEST(SafeCut, SetsNoTokenFree) {
  const auto tokenizer = Tokenizer::from_json(
      R"({"model": {"type": "BPE", "vocab": {"t": 0, "h": 1, "e": 2, ".": 3, "1": 4, "2": 5,
          "th": 6, "the": 7, "the.": 8, "3": 9},
          "merges": [["t", "h"], ["th", "e"], ["the", "."]]},
          "pre_tokenizer": {"type": "Digits", "individual_digits": false},
          "added_tokens": [
            {"id": 10, "content": "12", "single_word": true, "normalized": true, "special": false},
            {"id": 11, "content": "e31", "normalized": true, "special": true},
            {"id": 12, "content": "31", "normalized": true, "special": false}]})",
      "tokens");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const std::vector<std::string> kinds[] = {{"the.", "12the.", "the12.", "2"},
                                            {"the31", "the", "2"}};
  Rng rng(3);
  for (const auto& kind : kinds) {
    int cut_count = 0;
    for (int i = 0; i < 60; ++i) {
      std::string text;
      while (text.size() < 1500) text += kind[rng.below(kind.size())];
      if (check_cut(*tokenizer, text, text.size(), 1 + rng.below(400), false)) ++cut_count;
    }
    EXPECT_GT(cut_count, 10);
  }
}

TEST(SafeCut, LooksNotBeforeTheTextNorAtItsEnd) {
  const Tokenizer tokenizer = family("gpt2");
  EXPECT_FALSE(tokenizer.safe_cut("", 0, false));
  EXPECT_FALSE(tokenizer.safe_cut("a b", 2, false));
  const std::string text(5000, 'a');
  EXPECT_FALSE(tokenizer.safe_cut(text, 4000, false)) << "one word";
  EXPECT_EQ(tokenizer.safe_cut("one two " + text, 4000, false), std::optional<size_t>(7));
}

TEST(SafeCut, KnowsPatternsThatLookBack) {
  for (const char* pattern : {R"(\bx)", "(?<!a)x", "^x", R"(\Ax)", "a|x|^"}) {
    EXPECT_TRUE(Regex::compile(pattern, "test")->looks_back()) << pattern;
  }
  for (const char* pattern : {R"( ?\p{L}+|\s+(?!\S)|\s+)", "[^a]+", R"(\^x)", "x$"}) {
    EXPECT_FALSE(Regex::compile(pattern, "test")->looks_back()) << pattern;
  }
}

}  // namespace
}  // namespace jige::text
