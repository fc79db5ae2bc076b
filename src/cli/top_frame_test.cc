#include "cli/top_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace jige::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kMetrics =
    "# HELP jige:prefix_cache_queries_total Prompt tokens.\n"
    "# TYPE jige:prefix_cache_queries_total counter\n"
    "jige:prefix_cache_queries_total{model_name=\"a b} c\"} 200\n"
    "jige:prefix_cache_queries_total_more{x=\"1\"} 999\n"
    "jige:prefix_cache_hits_total{model_name=\"a\"} 50\n"
    "jige:http_requests_total{handler=\"/x\",status=\"200\"} 3\n"
    "jige:http_requests_total{handler=\"/y\",status=\"200\"} 4.5\n"
    "plain 7\nbroken{x=\"1\"} seven\n";

TopSample sample_of(int rows = 2) {
  Json top = {{"model", "tiny"},
              {"loading", false},
              {"scheduling", {{"policy", "chunked"}, {"max_batch", 16}, {"batch_tokens", 256}}},
              {"accepting", true},
              {"stalled", false},
              {"uptime_seconds", 65.0},
              {"waiting_requests", 4},
              {"waiting_prompt_tokens", 900},
              {"preempted", 1},
              {"kv_usage", 0.5},
              {"kv_blocks", 64},
              {"kv_blocks_cached", 3},
              {"generated_tokens", 1000},
              {"drafted_tokens", 40},
              {"accepted_tokens", 30},
              {"guesses",
               {{"forced", {{"guessed", 12}, {"right", 12}}},
                {"copied", {{"guessed", 0}, {"right", 0}}},
                {"model", {{"guessed", 28}, {"right", 18}}}}},
              {"last_iteration_tokens", 17},
              {"last_iteration_seconds", 0.0123},
              {"tokens_per_second", 345.6},
              {"first_token_seconds", {{"p50", 0.1}, {"p99", 0.9}}},
              {"inter_token_seconds", {{"p50", 0.01}, {"p99", 0.02}}},
              {"requests", Json::array()}};
  for (int i = 0; i < rows; ++i) {
    top["requests"].push_back({{"id", 100 + i},
                               {"state", i == 0 ? "prefill" : "decode"},
                               {"prompt_tokens", 50},
                               {"computed_tokens", 32},
                               {"generated_tokens", i},
                               {"tokens_max", 99},
                               {"preemptions", 0},
                               {"age_seconds", 1.5}});
  }
  return {.top = std::move(top), .metrics = kMetrics, .at_s = 10};
}

TEST(TopFrame, NamesTheModelOfARequestWhereThereAreAdapters) {
  TopSample sample = sample_of();
  for (Json& row : sample.top["requests"]) row["model"] = "poet";
  EXPECT_THAT(render_top(sample, nullptr, {}), Not(HasSubstr("poet")));
  sample.top["adapters"] = {"poet"};
  EXPECT_THAT(render_top(sample, nullptr, {}), HasSubstr("poet"));
}

TEST(TopFrame, SaysThatRequestsAreOthersThanPlanned) {
  TopSample sample = sample_of();
  sample.top["drift"] = {{"drifted", false}};
  EXPECT_THAT(render_top(sample, nullptr, {.columns_max = 200}), Not(HasSubstr("OTHERS")));
  sample.top["drift"] = {{"drifted", true}};
  EXPECT_THAT(render_top(sample, nullptr, {.columns_max = 200}),
              HasSubstr("batch_tokens 256; REQUESTS ARE OTHERS THAN PLANNED"));
}

TEST(TopFrame, SaysWhenItWasPlannedAgain) {
  TopSample sample = sample_of();
  sample.top["replan"] = {{"planning", false}, {"switched", 0}};
  EXPECT_THAT(render_top(sample, nullptr, {.columns_max = 200}), Not(HasSubstr("plan")));
  sample.top["replan"]["planning"] = true;
  EXPECT_THAT(render_top(sample, nullptr, {.columns_max = 200}),
              HasSubstr("batch_tokens 256; planning again"));
  sample.top["replan"] = {{"planning", false},
                          {"last", {{"outcome", "switched"}, {"age_seconds", 125}}}};
  EXPECT_THAT(render_top(sample, nullptr, {.columns_max = 200}),
              HasSubstr("batch_tokens 256; planned again 2:05 ago: switched"));
}

TEST(TopFrame, SumsSamplesOfAMetric) {
  EXPECT_EQ(metric_sum(kMetrics, "jige:prefix_cache_queries_total"), 200);
  EXPECT_EQ(metric_sum(kMetrics, "jige:http_requests_total"), 7.5);
  EXPECT_EQ(metric_sum(kMetrics, "plain"), 7);
  EXPECT_FALSE(metric_sum(kMetrics, "jige:prefix_cache"));
  EXPECT_FALSE(metric_sum(kMetrics, "broken"));
  EXPECT_FALSE(metric_sum("", "x"));
}

TEST(TopFrame, ShowsWhatTheServerDoes) {
  const TopSample now = sample_of();
  TopSample before = sample_of();
  before.top["generated_tokens"] = 900;
  before.at_s = 8;
  const std::string frame =
      render_top(now, &before, {.address = "host:80", .rows_max = 40, .columns_max = 200});
  EXPECT_THAT(
      frame,
      HasSubstr("tiny at host:80, accepting, up 1:05; chunked, max_batch 16, batch_tokens 256\n"));
  EXPECT_THAT(frame, HasSubstr("1 prefilling, 1 decoding, 4 waiting (900 prompt tokens), 1 pre"));
  EXPECT_THAT(frame, HasSubstr("50 % of 64 blocks, 3 kept for later, 25 % of prompts found"));
  EXPECT_THAT(frame, HasSubstr("50 tokens/s of answers, 346 tokens/s computed, 12.3 ms and 17"));
  EXPECT_THAT(frame, HasSubstr("tokens in the last iteration, 75 % of guesses right: "
                               "forced 12 of 12, model 18 of 28\n"));
  EXPECT_THAT(frame, HasSubstr("first token p50 100 ms, p99 900 ms"));
  EXPECT_THAT(frame, HasSubstr("prefill"));
  EXPECT_EQ(answer_tokens_per_s(now, nullptr), std::nullopt);
  EXPECT_EQ(answer_tokens_per_s(before, &now), std::nullopt) << "a new run of the server";
}

TEST(TopFrame, GoesOnInTheNextLineWhereTheTerminalIsNarrow) {
  const std::string frame = render_top(sample_of(), nullptr, {.rows_max = 24, .columns_max = 80});
  EXPECT_THAT(frame, HasSubstr("later, 25\n          % of prompts found\n")) << frame;
  EXPECT_THAT(frame, HasSubstr("28\nlatency   first token p50"));
}

TEST(TopFrame, FitsTheTerminal) {
  for (const int rows_max : {8, 12, 24}) {
    const std::string frame =
        render_top(sample_of(500), nullptr, {.rows_max = rows_max, .columns_max = 50});
    EXPECT_LE(std::count(frame.begin(), frame.end(), '\n'), std::max(rows_max, 10));
    EXPECT_THAT(frame, HasSubstr("more"));
    int column = 0;
    for (const char c : frame) {
      column = c == '\n' ? 0 : column + ((static_cast<unsigned char>(c) & 0xC0) != 0x80);
      ASSERT_LE(column, 50);
    }
  }
}

// What comes over the network may be anything.
TEST(TopFrame, ShowsGapsForWhatIsMissingOrWrong) {
  for (const char* text : {"{}", "[]", "5", "null", R"({"loading":true})",
                           R"({"model":5,"requests":[1,null,{"id":"x"}],"kv_usage":"half"})",
                           R"({"first_token_seconds":[],"uptime_seconds":1e300,"kv_usage":1e300})",
                           R"({"requests":{"a":1}})", R"({"guesses":[1]})",
                           R"({"guesses":{"model":{"guessed":7},"copied":5}})"}) {
    const auto top = parse_json(text, "top");
    ASSERT_TRUE(top);
    const TopSample sample{.top = *top, .metrics = "x{", .at_s = 0};
    EXPECT_THAT(render_top(sample, &sample, {}), HasSubstr("–")) << text;
  }
  TopSample sample = sample_of();
  sample.top["model"] = "\x1b[2Jevil\n";
  EXPECT_THAT(render_top(sample, nullptr, {}), Not(HasSubstr("\x1b")));
  sample.top["requests"][0]["state"] = "\x1b[2J";
  EXPECT_THAT(render_top(sample, nullptr, {}), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace jige::cli
