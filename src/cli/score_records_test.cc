#include "cli/score_records.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "serve/serve_test_support.h"

namespace jige::cli {
namespace {

using serve::testing::value_of;

// A model of letters, whose cache holds few texts at once.
LoadedModel letters_model() {
  LoadedModel loaded{.folder = serve::testing::fixture("llama3"),
                     .devices = {},
                     .model = nullptr,
                     .tokenizer = serve::testing::character_tokenizer()};
  loaded.devices.host = std::make_unique<CpuDevice>(CpuDeviceOptions{.thread_count = 1});
  loaded.model = value_of(model::InferenceModel::load(loaded.folder, *loaded.devices.host,
                                                      {.compute = DType::kF32,
                                                       .context_max = 48,
                                                       .kv_block_count = 6,
                                                       .batch_tokens_max = 32,
                                                       .scores = true}));
  return loaded;
}

struct Scored {
  std::vector<std::pair<int64_t, std::string>> results;
  Status status;
  ScoreSummary summary;
};

Scored score_lines(LoadedModel& loaded, const std::vector<std::string>& lines,
                   const ScoreOptions& options) {
  Scored scored;
  const auto take = [&](int64_t line, const Json& result) -> Status {
    scored.results.emplace_back(line, dump_json(result));
    return {};
  };
  RecordScorer scorer = value_of(RecordScorer::create(loaded, options, take));
  for (size_t i = 0; i < lines.size() && scored.status; ++i) {
    scored.status =
        scorer.add(lines[i], static_cast<int64_t>(i) + 1, "data:" + std::to_string(i + 1));
  }
  if (scored.status) scored.status = scorer.flush();
  scored.summary = scorer.summary();
  return scored;
}

std::string summary_without_costs(ScoreSummary summary) {
  summary.text_tokens = summary.computed_tokens = 0;
  return dump_json(summary.to_json());
}

std::vector<std::string> good_lines() {
  std::vector<std::string> lines;
  for (const char* what : {"one", "two", "three", "one"}) {
    const std::string start = "say it in words: ";
    lines.push_back(dump_json(Json{{"text", start + what}}));
    lines.push_back(dump_json(Json{{"prompt", start}, {"completion", what}}));
    lines.push_back(dump_json(Json{
        {"question", start}, {"choices", {"one", "two", "three", "thirty"}}, {"answer", what}}));
    lines.push_back(dump_json(Json{{"question", what}, {"choices", {"a", "b"}}}));
  }
  lines.push_back(dump_json(Json{{"question", "what?"}, {"answer", "x"}, {"kind", "k"}}));
  lines.push_back(dump_json(Json{{"text", "the end"}}));
  return lines;
}

TEST(ScoreRecords, GiveTheSameAloneAndInWindowsOfAnySize) {
  LoadedModel loaded = letters_model();
  const std::vector<std::string> lines = good_lines();
  const Scored whole = score_lines(loaded, lines, {.tokens_max = 4});
  ASSERT_TRUE(whole.status) << whole.status.error().message;
  ASSERT_EQ(whole.results.size(), lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(whole.results[i].first, static_cast<int64_t>(i) + 1) << "the order is theirs";
    const Scored alone = score_lines(loaded, {lines[i]}, {.tokens_max = 4});
    ASSERT_TRUE(alone.status);
    EXPECT_EQ(alone.results.at(0).second, whole.results[i].second) << lines[i];
  }
  for (const int64_t tokens : {1, 40, 300}) {
    const Scored cut = score_lines(loaded, lines, {.tokens_max = 4, .window_tokens = tokens});
    ASSERT_TRUE(cut.status);
    EXPECT_EQ(cut.results, whole.results) << tokens;
    EXPECT_EQ(summary_without_costs(cut.summary), summary_without_costs(whole.summary));
    EXPECT_EQ(cut.summary.text_tokens, whole.summary.text_tokens);
    EXPECT_GE(cut.summary.computed_tokens, whole.summary.computed_tokens);
  }
  EXPECT_LT(3 * whole.summary.computed_tokens, 2 * whole.summary.text_tokens);
}

TEST(ScoreRecords, ALineAtFaultFailsBehindTheResultsOfThoseBeforeIt) {
  LoadedModel loaded = letters_model();
  const std::string long_text(60, 'a');
  const std::pair<std::string, Code> bad[] = {
      {"{oops", Code::kCorrupt},
      {"[]", Code::kInvalidArgument},
      {"{\"txt\": 1}", Code::kNotFound},
      {dump_json(Json{{"text", long_text}}), Code::kInvalidArgument},
      {dump_json(Json{{"text", "a"}}), Code::kInvalidArgument},
      {dump_json(Json{{"prompt", "a"}, {"completion", ""}}), Code::kInvalidArgument},
      {dump_json(Json{{"question", "q"}, {"choices", {"b", long_text}}}), Code::kInvalidArgument},
      {dump_json(Json{{"question", "q"}, {"choices", {"b"}}, {"answer", 7}}),
       Code::kInvalidArgument},
      {dump_json(Json{{"question", long_text}, {"answer", "7"}}), Code::kInvalidArgument},
  };
  const std::vector<std::string> good = good_lines();
  const Scored expected = score_lines(loaded, {good[0], good[2], good[1], good[5]}, {});
  for (const auto& [line, code] : bad) {
    const std::vector<std::string> lines = {good[0], good[2], line, good[1], good[5]};
    for (const int64_t window : {1, 1000}) {
      const Scored failed = score_lines(loaded, lines, {.window_tokens = window});
      ASSERT_FALSE(failed.status) << line;
      EXPECT_EQ(failed.status.error().code, code) << line;
      EXPECT_TRUE(failed.status.error().message.starts_with("data:3")) << line;
      EXPECT_EQ(failed.results.size(), 2u) << line;
      const Scored left_out =
          score_lines(loaded, lines, {.skip_bad = true, .window_tokens = window});
      ASSERT_TRUE(left_out.status) << line;
      EXPECT_EQ(left_out.summary.skipped_count, 1) << line;
      ASSERT_EQ(left_out.results.size(), 4u) << line;
      EXPECT_EQ(left_out.results[2].first, 4) << line;
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(left_out.results[i].second, expected.results[i].second) << line;
      }
    }
  }
}

TEST(ScoreRecords, LinesThatAreDamagedDisturbNoOther) {
  LoadedModel loaded = letters_model();
  const std::vector<std::string> good = good_lines();
  const Scored expected = score_lines(loaded, {good[2]}, {});
  Rng rng(derive_key(5, "damage"));
  std::vector<std::string> lines;
  for (uint64_t i = 0; i < fuzz_rounds(300); ++i) {
    std::string line = good[rng.below(good.size())];
    for (uint64_t k = 1 + rng.below(4); k > 0; --k) {
      const size_t at = rng.below(line.size());
      if (rng.below(3) == 0) {
        line.erase(at, 1 + rng.below(6));
      } else {
        line[at] = static_cast<char>(rng.below(3) > 0 ? "\"{}[]:,0\\"[rng.below(9)]
                                                      : static_cast<int>(rng.below(256)));
      }
      if (line.empty()) line = "x";
    }
    lines.push_back(line);
    lines.push_back(good[2]);
  }
  const Scored scored = score_lines(loaded, lines, {.tokens_max = 2, .skip_bad = true});
  ASSERT_TRUE(scored.status) << scored.status.error().message;
  EXPECT_EQ(scored.summary.record_count + scored.summary.skipped_count, std::ssize(lines));
  EXPECT_GT(scored.summary.skipped_count, 100);
  size_t found = 0;
  for (const auto& [line, result] : scored.results) {
    if (line % 2 != 0) continue;
    ++found;
    EXPECT_EQ(result, expected.results[0].second);
  }
  EXPECT_EQ(found, lines.size() / 2);
}

TEST(ScoreRecords, StopWhereResultsAreNotTaken) {
  LoadedModel loaded = letters_model();
  int taken = 0;
  const auto take = [&](int64_t, const Json&) -> Status {
    return ++taken < 3 ? Status() : fail(Code::kIo, "the disk is full");
  };
  RecordScorer scorer = value_of(RecordScorer::create(loaded, {}, take));
  Status status;
  for (int64_t line = 1; line < 9 && status; ++line) {
    status = scorer.add(dump_json(Json{{"text", "abc"}}), line, "data");
  }
  if (status) status = scorer.flush();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "the disk is full");
  EXPECT_EQ(taken, 3);
}

}  // namespace
}  // namespace jige::cli
