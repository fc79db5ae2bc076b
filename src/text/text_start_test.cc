// Where the first character of a text goes, the mark of its beginning goes with it. The tokens are
// those of Hugging Face tokenizers 0.23.
#include "text/test_fixtures.h"
#include "text/tokenizer.h"

namespace jige::text {
namespace {

struct StartCase {
  const char* normalizer;
  const char* text;
  const char* tokens;
};

TEST(TextStart, HasAMarkWhileItsFirstCharacterStays) {
  const StartCase cases[] = {
      {R"({"type": "Strip", "strip_right": false})", "ab", "▁ab"},
      {R"({"type": "Strip", "strip_right": false})", " ab", "ab"},
      {R"({"type": "Strip", "strip_left": false})", " ab", "▁ab"},
      {R"({"type": "StripAccents"})", "\u0301ab", "ab"},
      {R"({"type": "StripAccents"})", "a\u0301b", "▁ab"},
      {R"({"type": "Nmt"})", "\u0001ab", "ab"},
      {R"({"type": "Nmt"})", "a\u0001b", "▁ab"},
      {R"({"type": "Replace", "pattern": {"String": "a"}, "content": "x"})", "ab", "▁xb"},
      {R"({"type": "Replace", "pattern": {"String": "a"}, "content": ""})", "ab", "b"},
      {R"({"type": "Replace", "pattern": {"String": "aa"}, "content": "x"})", "aab", "xb"},
      {R"({"type": "Replace", "pattern": {"Regex": "a"}, "content": "x"})", "ab", "▁xb"},
      {R"({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "x"})", "aab", "xb"},
      {R"({"type": "Replace", "pattern": {"String": "a"}, "content": "xyz"})", "ab", "▁xyzb"},
      {R"({"type": "Prepend", "prepend": "x"})", "ab", "▁xab"},
      {R"({"type": "Sequence", "normalizers": [{"type": "Strip", "strip_right": false},
           {"type": "Prepend", "prepend": "x"}]})",
       " ab", "xab"},
  };
  for (const StartCase& one : cases) {
    SCOPED_TRACE(std::string(one.normalizer) + " of \"" + one.text + "\"");
    const auto tokenizer = Tokenizer::from_json(
        std::string(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "x": 2, "y": 3, "z": 4,
                        "▁": 5}, "merges": []},
                        "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first",
                        "split": false}, "normalizer": )") +
            one.normalizer + "}",
        "small");
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    const bool kept = std::string_view(one.tokens).starts_with("\u2581");
    EXPECT_TRUE(kept || tokenizer->may_lose_start());
    const auto ids = tokenizer->encode(one.text, {.add_special = false});
    ASSERT_TRUE(ids.has_value());
    std::string tokens;
    for (const int32_t id : *ids) tokens += *tokenizer->id_to_token(id);
    EXPECT_EQ(tokens, one.tokens);
  }
}

TEST(TextStart, StaysInEveryFamily) {
  for (const std::string& name : fixture_folders("tokenizers")) {
    EXPECT_EQ(family(name).may_lose_start(), name == "albert") << "which strips marks: " << name;
  }
}

}  // namespace
}  // namespace jige::text
