// `jige embed` as users meet it: forms of data and results, prompts, what is refused and how.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "integration/process.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Vector = std::vector<float>;

const std::string kQwen = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/qwen3";
const std::string kMistral = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/mistral";

Outcome embed(const std::string& input, std::vector<std::string> more,
              const std::string& folder = kQwen) {
  std::vector<std::string> words = {"embed", folder, "--dtype", "f32"};
  words.insert(words.end(), more.begin(), more.end());
  return run_jige(words, input);
}

Vector vector_of(const Json& line) { return line.at("embedding").get<Vector>(); }

double product(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

TEST(Embed, GivesTheSameVectorsInEveryForm) {
  const Outcome outcome = embed("{\"text\": \"a red kite\"}\n\n\"a golden bell\"\n", {"--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonLines lines = outcome.json_lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["line"], 1);
  EXPECT_EQ(lines[1]["line"], 3);
  EXPECT_NEAR(product(vector_of(lines[0]), vector_of(lines[0])), 1, 1e-6);
  EXPECT_LT(product(vector_of(lines[0]), vector_of(lines[1])), 0.999);
  EXPECT_EQ(lines[2]["summary"]["texts"], 2);
  EXPECT_EQ(lines[2]["summary"]["dimensions"], 24);
  EXPECT_THAT(outcome.err, HasSubstr("2 vectors of 24 numbers"));

  const TestFolder folder;
  const Outcome matrix = embed("a red kite\na golden bell\r\n",
                               {"--lines", "--quiet", "--out", folder / "vectors.npy"});
  ASSERT_EQ(matrix.exit_code, 0) << matrix.err;
  EXPECT_EQ(matrix.out + matrix.err, "");
  const std::string content = *read_file(folder / "vectors.npy");
  ASSERT_EQ(content.size(), 128u + 2 * 24 * 4);
  EXPECT_THAT(content, HasSubstr("'shape': (2, 24)"));
  for (size_t i = 0; i < 2; ++i) {
    Vector row(24);
    std::memcpy(row.data(), content.data() + 128 + i * 24 * 4, 24 * 4);
    EXPECT_EQ(row, vector_of(lines[i]));
  }
}

TEST(Embed, SaysWhereRowsOfAMatrixAreNotThoseOfLines) {
  const TestFolder folder;
  const std::string text = "a red kite\n\n \na golden bell\n";
  const Outcome matrix = embed(text, {"--lines", "--out", folder / "vectors.npy"});
  ASSERT_EQ(matrix.exit_code, 0) << matrix.err;
  EXPECT_THAT(matrix.err, HasSubstr("warning: standard input: 2 blank lines left out"));
  const Outcome lines = embed(text, {"--lines", "--out", folder / "vectors.jsonl"});
  EXPECT_THAT(lines.err, Not(HasSubstr("blank")));
}

TEST(Embed, ReadsTextInUtf8Alone) {
  const Outcome plain = embed("a red kite\n", {"--lines"});
  const Outcome marked = embed(
      "\xef\xbb\xbf"
      "a red kite\r\n",
      {"--lines"});
  ASSERT_EQ(marked.exit_code, 0) << marked.err;
  EXPECT_EQ(marked.out, plain.out);
  expect_error(embed("fine\ncaf\xe9\n", {"--lines"}), 4,
               {"standard input:2: is not valid UTF-8", "iconv"});
  expect_error(embed(std::string("\xff\xfeh\0i\0", 6), {"--lines"}), 4, {"UTF-16"});
  for (const std::string& flag : {std::string("--lines"), std::string("--json")}) {
    expect_error(embed(std::string("\x1f\x8b\x08\0\n", 5), {flag}), 5,
                 {"standard input: is a packed file; unpack it first"});
  }
}

TEST(Embed, PutsPromptsBeforeTexts) {
  const auto vector_with = [](const std::string& text, const std::vector<std::string>& more,
                              const std::string& folder) {
    const Outcome outcome = embed(text, more, folder);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return vector_of(outcome.json_lines().front());
  };
  const std::string query = "Instruct: find passages that answer the question\nQuery:";
  const std::string whole = Json(query + "a bell").dump();
  EXPECT_EQ(vector_with("\"a bell\"", {"--prompt", "query"}, kQwen), vector_with(whole, {}, kQwen));
  EXPECT_EQ(vector_with("\"a bell\"", {"--prompt-text", query}, kQwen),
            vector_with(whole, {}, kQwen));
  // The default prompt of this folder, whose tokens its mean leaves out.
  EXPECT_EQ(vector_with("\"a bell\"", {}, kMistral),
            vector_with("\"a bell\"", {"--prompt", "query"}, kMistral));
  EXPECT_NE(vector_with("\"a bell\"", {}, kMistral),
            vector_with("\"a bell\"", {"--prompt-text", ""}, kMistral));

  expect_error(embed("\"a\"", {"--prompt", "title"}), 2, {"title", "query, document"});
  expect_error(embed("\"a\"", {"--prompt", "query", "--prompt-text", "b"}), 2,
               {"--prompt and --prompt-text"});
}

TEST(Embed, TakesAnyModelAndSaysWhatItWants) {
  const Outcome outcome =
      run_jige({"embed", TinyRun::get().model(), "--pooling", "mean"}, "\"a red kite\"\n");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NEAR(product(vector_of(outcome.json()), vector_of(outcome.json())), 1, 1e-6);
  const Outcome few = embed("\"a\"", {"--dimensions", "7"});
  EXPECT_EQ(vector_of(few.json()).size(), 7u);
  const Outcome raw = embed("\"a\"", {"--no-normalize"});
  EXPECT_GT(std::abs(product(vector_of(raw.json()), vector_of(raw.json())) - 1), 1e-3);
}

// Encoders, and decoders whose tokens see those behind them: they make vectors and nothing else.
TEST(Embed, IsAllThatModelsWhoseTokensSeeThoseBehindThemAreFor) {
  const TestFolder out;
  for (const std::string name : {"gemma", "bert"}) {
    const std::string folder = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/" + name;
    const Outcome outcome = embed("\"a red kite\"", {"--prompt", "query"}, folder);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(vector_of(outcome.json()).size(), name == "gemma" ? 20u : 24u);
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"generate", folder, "--prompt", "a"},
             {"score", folder, TinyRun::get().corpus()},
             {"train", "--from", folder, "--data", TinyRun::get().corpus(), "--steps", "1", "--out",
              out / "run"}}) {
      expect_error(run_jige(words), 5, {"see those behind them", "jige embed"});
    }
    const Outcome shown = run_jige({"inspect", folder});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("to both sides"));
    EXPECT_THAT(shown.out, HasSubstr("To embed"));
    EXPECT_THAT(shown.out, Not(HasSubstr("To train")));
    EXPECT_THAT(shown.out, Not(HasSubstr("cannot run")));
  }
}

TEST(Embed, RefusesBadDataAndLeavesNothingBehind) {
  const TestFolder folder;
  const std::string out = folder / "vectors.npy";
  const auto refused = [&](const std::string& input, const std::vector<std::string>& parts,
                           std::vector<std::string> more = {}, int exit_code = 2) {
    more.insert(more.end(), {"--out", out});
    expect_error(embed(input, more), exit_code, parts);
    EXPECT_FALSE(std::filesystem::exists(out));
  };
  refused("\"fine\"\nnot JSON\n", {"standard input:2", "--lines"}, {}, 4);
  refused("\"fine\"\n[1]\n", {"standard input:2", "\"text\""});
  refused("{\"txt\": \"a\"}", {"standard input:1", "text"}, {}, 3);
  refused("\n \n", {"holds no text"});
  refused("\"a\"", {"--dimensions 25", "24 numbers"}, {"--dimensions", "25"});
  const std::string word(2000, 'x');
  refused(Json(word).dump(), {"standard input:1", "tokens", "--truncate"});
  const Outcome cut = embed(Json(word).dump(), {"--truncate"});
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_EQ(cut.json()["truncated"], true);
  EXPECT_EQ(cut.json()["tokens"], 200);
  EXPECT_THAT(cut.err, HasSubstr("of 1 text the end was cut off"));
}

// A script may write a text, wait for its vector, and write the next one then.
TEST(Embed, AnswersATextOfAPipeBeforeTheNextOneComes) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
  const int writer = open((folder / "in").c_str(), O_RDWR);  // so that it never ends
  ASSERT_GE(writer, 0);
  Process process({"embed", kQwen, "--limit", "2"}, folder.path());
  ASSERT_EQ(write(writer, "\"one\"\n", 6), 6);
  const auto answered = [&] {
    return exists(folder / "out") && read_text(folder / "out").ends_with("\n");
  };
  for (int i = 0; i < 4000 && !answered(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(answered());
  ASSERT_EQ(write(writer, "\"two\"\n", 6), 6);
  const Outcome outcome = process.wait();
  close(writer);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json_lines().size(), 2u);
}

}  // namespace
}  // namespace jige::integration
