#include "serve/guess_row.h"

#include "grammar/constraint_compiler.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::value_of;

// Tokens of which some are beginnings of others.
struct Spelled {
  Spelled()
      : tokenizer(value_of(text::Tokenizer::from_json(
            R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,
            "post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":false,
            "trim_offsets":true,"use_regex":true},"model":{"type":"BPE","merges":[],"vocab":{
            "n":0,"a":1,"m":2,"e":3,"na":4,"nam":5,"x":6}}})",
            "a test"))) {}
  // The row of an answer that has to match: what is forced, then a copy of these.
  GuessRow row(const std::string& regex, const std::vector<int32_t>& copy, size_t count_max = 8,
               bool forced = true) {
    grammar::ConstraintCompiler compiler(tokenizer);
    const auto constraint =
        value_of(compiler.compile({grammar::ConstraintSource::Kind::kRegex, regex}));
    Answer ahead = Answer(tokenizer, prompt, {.constraint = constraint}).ahead();
    GuessRow row;
    if (forced) add_forced(ahead, count_max, row);
    add_copy({&ahead, forced}, copy, plan::GuessSource::kCopy, count_max, row);
    return row;
  }
  text::Tokenizer tokenizer;
  const std::vector<int32_t> prompt = {6};
};

using Sources = std::vector<plan::GuessSource>;

TEST(GuessRow, WhatIsForcedHasItsSource) {
  using enum plan::GuessSource;
  Spelled spelled;
  const GuessRow row = spelled.row("namex[ae]x", {});
  EXPECT_EQ(row.tokens, (std::vector<int32_t>{5, 3, 6}));
  EXPECT_EQ(row.sources, (Sources{kForced, kOnly, kOnly}));
  EXPECT_EQ(spelled.row("namex[ae]x", {}, 2).tokens, (std::vector<int32_t>{5, 3}));
  EXPECT_EQ(spelled.row("namex", {}).size(), 2u) << "the answer ends with the last token";
}

TEST(GuessRow, ACopyHasWhatIsForcedOrEnds) {
  using enum plan::GuessSource;
  Spelled spelled;
  const GuessRow row = spelled.row("[ae]name[ae]x[ae]", {1, 5, 3, 3, 6, 1});
  EXPECT_EQ(row.tokens, (std::vector<int32_t>{1, 5, 3, 3, 6}));
  EXPECT_EQ(row.sources, (Sources{kCopy, kForced, kOnly, kCopy, kOnly}));
  // The same text in other tokens, which the answer might have, too.
  const std::vector<int32_t> shorter = {1, 0, 1, 2, 3, 3};
  EXPECT_EQ(spelled.row("[ae]name[ae]x[ae]", shorter).tokens, std::vector<int32_t>{1});
  const GuessRow as_it_is = spelled.row("[ae]name[ae]x[ae]", shorter, 8, /*forced=*/false);
  EXPECT_EQ(as_it_is.tokens, shorter);
  EXPECT_EQ(as_it_is.sources, Sources(6, kCopy));
  // Behind what is forced the copy goes on where it has the same.
  EXPECT_EQ(spelled.row("name[ae]", {5, 3, 1}, 2).size(), 2u);
  EXPECT_EQ(spelled.row("name[ae]x", {5, 3, 1}).sources, (Sources{kForced, kOnly, kCopy}));
  EXPECT_EQ(spelled.row("name[ae]x", {4, 2, 3, 1}).sources, (Sources{kForced, kOnly}));
}

TEST(GuessRow, WithoutRulesACopyIsWhatItIs) {
  using enum plan::GuessSource;
  GuessRow row;
  add_copy({}, std::vector<int32_t>{3, 1, 4, 1, 5}, kLongCopy, 4, row);
  EXPECT_EQ(row.tokens, (std::vector<int32_t>{3, 1, 4, 1}));
  EXPECT_EQ(row.first(2).sources, Sources(2, kLongCopy));
  row.clear();
  EXPECT_TRUE(row.empty());
}

}  // namespace
}  // namespace jige::serve
