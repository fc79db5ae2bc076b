#include "cli/speculation_bench.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/speculation_texts.h"

namespace jige::cli {
namespace {

std::vector<std::string> names_of(const std::vector<SpeculationWay>& ways) {
  std::vector<std::string> names;
  for (const SpeculationWay& way : ways) names.push_back(way.name);
  return names;
}

TEST(SpeculationBench, WaysHaveOneSourceEachAndAllOfThem) {
  const serve::DraftOptions drafts{.tokens_max = 3, .adaptive = false};
  EXPECT_EQ(names_of(each_source(drafts, true)),
            (std::vector<std::string>{"without", "forced", "copied", "model", "all"}));
  const std::vector<SpeculationWay> ways = each_source(drafts, false);
  EXPECT_EQ(names_of(ways), (std::vector<std::string>{"without", "forced", "copied", "all"}));
  EXPECT_EQ(ways[0].drafts.tokens_max, 0);
  EXPECT_TRUE(ways[1].drafts.forced && !ways[1].drafts.copied && !ways[1].drafts.model);
  EXPECT_TRUE(ways[2].drafts.copied && !ways[2].drafts.forced && !ways[2].drafts.model);
  EXPECT_EQ(ways[3].drafts, drafts);
}

TEST(SpeculationBench, CountsTokensStepsAndGuessesOfEachWay) {
  BenchServeModelFlags flags;
  flags.random = "tiny";
  auto served = flags.load(96, 32, 64, 33);
  ASSERT_TRUE(served) << served.error().message;
  const std::vector<SpeculationCase> cases = made_up_cases(40, served->model->config().vocab_size);
  for (const int64_t users : {1, 2}) {
    const auto found =
        bench_speculation(*served, {.cases = {cases[0]}, .users = users, .new_tokens = 20},
                          each_source({.tokens_max = 4, .adaptive = false}, false), 2);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->name, "repeats");
    ASSERT_EQ(found->results.size(), 4u);
    for (const SpeculationResult& result : found->results) {
      EXPECT_EQ(result.ratios.size(), 2u);
      EXPECT_EQ(result.tokens, 20 * users);
      const bool copies = result.way == "copied" || result.way == "all";
      EXPECT_EQ(result.guesses.right[static_cast<size_t>(plan::GuessKind::kCopied)] > 0, copies);
      EXPECT_EQ(result.steps < 20, copies) << result.way;
      EXPECT_TRUE(users > 1 || result.steps == (copies ? 5 : 20)) << result.steps;
    }
  }
}

TEST(SpeculationTexts, AreOfFourKinds) {
  const auto tokenizer =
      text::Tokenizer::load(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/text/tokenizers/qwen2");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto cases = text_cases(*tokenizer, {});
  ASSERT_TRUE(cases) << cases.error().message;
  ASSERT_EQ(cases->size(), 4u);
  for (const SpeculationCase& one : *cases) {
    EXPECT_EQ(one.prompts.size(), 3u) << one.name;
    EXPECT_EQ(one.constraint != nullptr, one.name == "JSON schema" || one.name == "tool call");
    for (const auto& prompt : one.prompts) EXPECT_GT(prompt.size(), 20u);
  }
}

}  // namespace
}  // namespace jige::cli
