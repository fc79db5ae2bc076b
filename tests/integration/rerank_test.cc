// `jige rerank` and `jige serve` of a reranker as users meet them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "integration/process.h"
#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string judge_folder(const std::string& name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/pairs/" + name;
}

Json recorded_judgement(const std::string& name) {
  return Json::parse(*read_file(judge_folder(name) + "/expected.json"));
}

std::string lines_of(const Json& documents) {
  std::string lines;
  for (const Json& one : documents) lines += one.dump() + "\n";
  return lines;
}

Outcome rerank(const std::string& name, const std::string& documents,
               const std::vector<std::string>& more) {
  std::vector<std::string> words = {"rerank", judge_folder(name), "--dtype", "f32"};
  words.insert(words.end(), more.begin(), more.end());
  return run_jige(words, documents);
}

TEST(Rerank, GivesTheScoresOfTransformersTheBestFirst) {
  for (const std::string name :
       {"bert", "modernbert_mean", "deberta_own", "qwen3", "qwen3_class"}) {
    const Json expected = recorded_judgement(name);
    std::vector<std::string> flags = {"--query", expected["query"], "--json"};
    if (!expected["instruction"].is_null()) {
      flags.insert(flags.end(), {"--instruction", expected["instruction"]});
    }
    const Outcome outcome = rerank(name, lines_of(expected["documents"]), flags);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const JsonLines lines = outcome.json_lines();
    ASSERT_EQ(lines.size(), 6u);
    EXPECT_EQ(lines[5]["summary"]["documents"], 5);
    double before = 1e9;
    for (size_t i = 0; i < 5; ++i) {
      const size_t index = lines[i]["index"];
      EXPECT_EQ(lines[i]["line"], index + 1);
      EXPECT_NEAR(lines[i]["relevance_score"].get<double>(),
                  expected["scores"][index].get<double>(), 1e-5)
          << name;
      EXPECT_LE(lines[i]["relevance_score"].get<double>(), before);
      before = lines[i]["relevance_score"];
    }
    flags.insert(flags.end(), {"--raw", "--top", "2"});
    const JsonLines raw = rerank(name, lines_of(expected["documents"]), flags).json_lines();
    ASSERT_EQ(raw.size(), 3u);
    EXPECT_NEAR(raw[0]["relevance_score"].get<double>(),
                expected["logits"][raw[0]["index"].get<size_t>()].get<double>(), 2e-5);
  }
}

TEST(Rerank, ShowsDocumentsToPeople) {
  const TestFolder folder;
  write_text(folder / "documents", "a lease\n\nthe tenant\tpays " + std::string(90, 'z') + "\n");
  const Outcome outcome = rerank(
      "roberta", "", {"--query", "Who pays?", "--documents", folder / "documents", "--lines"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("line 1  a lease\n"));
  EXPECT_THAT(outcome.out, HasSubstr("line 3  the tenant pays zzz"));
  EXPECT_THAT(outcome.out, HasSubstr("z…\n"));
  EXPECT_THAT(outcome.err, HasSubstr("2 documents, "));
}

TEST(Rerank, RefusesBadInputByName) {
  const std::vector<std::string> query = {"--query", "Who pays?"};
  expect_error(rerank("bert", "\"a\"", {}), 2, {"--query is missing"});
  expect_error(rerank("bert", "\n", query), 2, {"standard input: holds no document"});
  expect_error(rerank("bert", "\"fine\"\nnot JSON\n", query), 4, {"standard input:2", "--lines"});
  expect_error(rerank("bert", "\"a\"", {"--query", "a", "--instruction", "b"}), 2,
               {"takes no instruction"});
  const std::string word(500, 'x');
  expect_error(rerank("roberta", "\"a\"\n" + Json(word).dump(), query), 2,
               {"standard input:2: ", "120 are allowed; shorten the document, or give --truncate"});
  std::vector<std::string> cutting = query;
  cutting.insert(cutting.end(), {"--truncate", "--json"});
  const Outcome cut = rerank("roberta", Json(word).dump(), cutting);
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_EQ(cut.json_lines()[0]["tokens"], 120);
  EXPECT_EQ(cut.json_lines()[0]["truncated"], true);
  EXPECT_THAT(cut.err, HasSubstr("of 1 document the end was cut off"));
  expect_error(run_jige({"rerank", TinyRun::get().model(), "--query", "a"}, "\"a\""), 5,
               {"does not judge pairs of texts", "Qwen3-Reranker"});
}

TEST(RerankServe, GivesTheScoresOfJigeRerank) {
  for (const std::string name : {"bert", "qwen3"}) {
    const Json expected = recorded_judgement(name);
    std::vector<std::string> words = {judge_folder(name), "--dtype", "f32", "--batch-tokens", "32"};
    if (name == "qwen3") words.push_back("--rerank");
    Serving server(words);
    const JsonLines offline =
        rerank(name, lines_of(expected["documents"]), {"--query", expected["query"], "--json"})
            .json_lines();
    const auto response = server.post(
        "/v1/rerank",
        Json{{"query", expected["query"]}, {"documents", expected["documents"]}}.dump());
    ASSERT_EQ(response.status, 200) << response.body;
    const Json results = Json::parse(response.body)["results"];
    ASSERT_EQ(results.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(results[i]["index"], offline[i]["index"]) << name;
      EXPECT_EQ(results[i]["relevance_score"], offline[i]["relevance_score"]) << name;
    }
    EXPECT_THAT(server.out(), HasSubstr("scores of pairs of up to "));
    const auto refused = server.post("/v1/chat/completions", R"({"messages":[]})");
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.body, HasSubstr("rerank_only"));
  }
}

TEST(RerankServe, WhatFlagsSayCounts) {
  Serving vectors({judge_folder("xlm_roberta"), "--embeddings", "--pooling", "cls"});
  EXPECT_EQ(vectors.post("/v1/embeddings", R"({"input":"a"})").status, 200);
  expect_error(run_jige({"serve", judge_folder("xlm_roberta"), "--embeddings", "--rerank"}), 2,
               {"give one of them"});
  expect_error(run_jige({"serve", judge_folder("xlm_roberta"), "--max-n", "2"}), 2,
               {"scores of documents"});
  expect_error(run_jige({"serve", judge_folder("xlm_roberta"), "--pooling", "cls"}), 2,
               {"--embeddings"});
}

TEST(Rerank, InspectTellsWhatTheFolderIsFor) {
  for (const std::string name : {"bert", "qwen3_class"}) {
    const Outcome shown = run_jige({"inspect", judge_folder(name)});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("judges pairs of texts (jige rerank)"));
    EXPECT_THAT(shown.out, Not(HasSubstr("cannot run")));
  }
}

}  // namespace
}  // namespace jige::integration
