// For tests of jige train --grpo: prompts, and the arguments of a run that learns from them.
//
// Threads: one thread.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "integration/tiny_run.h"

namespace jige::integration {

inline std::string reward_prompts(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const Json question = {{"role", "user"}, {"content", "What is " + std::to_string(i) + "?"}};
    lines +=
        dump_json(Json{{"messages", Json::array({question})}, {"answer", "e"}, {"n", i}}) + "\n";
  }
  return lines;
}

inline std::vector<std::string> grpo_arguments(const std::string& data, const std::string& out) {
  std::vector<std::string> words = {
      "train", "--from", TinyRun::get().run(), "--grpo", "--data", data, "--out", out};
  for (const char* word : {"--json", "--prompts-per-step", "4", "--group", "6", "--max-new-tokens",
                           "12", "--context", "96", "--micro-batch-tokens", "192", "--lr", "1e-2",
                           "--schedule", "constant", "--threads", "1", "--dtype", "f32"}) {
    words.emplace_back(word);
  }
  return words;
}

class RewardRun : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(TinyRun::get().training().exit_code, 0);
    ASSERT_TRUE(write_file_atomic(data(), reward_prompts(12)));
  }
  std::string data() const { return folder_ / "prompts.jsonl"; }
  std::string program(const std::string& text) const {
    EXPECT_TRUE(write_file_atomic(folder_ / "judge.sh", text));
    return "sh " + (folder_ / "judge.sh");
  }
  // Of an answer's letters, those that are an "e": nothing that the model does by itself. `before`
  // is done with each line before.
  std::string letter_judge(const std::string& before = "") const {
    return program("while read -r line; do\n" + before +
                   "  text=${line##*\\\"completion\\\":\\\"}; text=${text%%\\\",\\\"step\\\"*}\n"
                   "  others=$(printf %s \"$text\" | tr -d e)\n"
                   "  echo \"{\\\"reward\\\": $((${#text} - ${#others}))}\"\n"
                   "done\n");
  }

  TestFolder folder_;
};

}  // namespace jige::integration
