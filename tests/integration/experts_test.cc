// jige train of a model with experts that are to stay in use, as a user does it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

// Of MiniMax M2, whose choice of experts has a bias.
constexpr const char* kBiased =
    R"({"model_type": "minimax_m2", "vocab_size": 320, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rotary_dim": 8,
        "intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 2,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-06, "hidden_act": "silu",
        "tie_word_embeddings": false, "output_router_logits": true})";

// The records of a run's steps.
std::vector<Json> steps_of(const std::string& run) {
  std::vector<Json> steps;
  std::istringstream lines(read_text(run + "/log.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Json record = Json::parse(line);
    if (record["kind"] == "step") steps.push_back(std::move(record));
  }
  return steps;
}

using Arguments = std::vector<std::string>;

Arguments joined(Arguments words, const Arguments& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(Experts, StayInUseWithTheSameBitsOnTwoRanksAfterAKill) {
  const TestFolder folder;
  const std::string config = folder / "config.json";
  write_text(config, kBiased);
  Arguments common = {"train",
                      "--data",
                      TinyRun::get().corpus(),
                      "--tokenizer",
                      TinyRun::get().model(),
                      "--config",
                      config,
                      "--dtype",
                      "f32",
                      "--steps",
                      "80"};
  common = joined(common, {"--batch-tokens", "512", "--micro-batch-tokens", "128", "--context",
                           "64", "--lr", "0.01", "--warmup", "5", "--save-every", "5",
                           "--eval-every", "0", "--threads", "1", "--quiet", "--out"});
  const std::string whole = folder / "whole", killed = folder / "killed", none = folder / "none";
  // The configuration asks for a loss, but not for which.
  expect_error(run_jige(joined(common, {none})), 5, {"--expert-balance 0: none"});
  const Arguments balanced = {"--expert-balance", "0.01", "--expert-bias-rate", "0.01"};
  const Arguments of_killed = joined(joined(common, {killed}), balanced);
  ASSERT_EQ(run_jige(joined(joined(common, {whole}), balanced)).exit_code, 0);
  ASSERT_EQ(run_jige(joined(common, {none, "--expert-balance", "0"})).exit_code, 0);
  kill_behind_checkpoint(of_killed, killed);
  const Outcome rest = run_jige(joined(of_killed, {"--ranks", "2"}));
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_TRUE(model_of(killed) == model_of(whole));
  const auto steps = steps_of(whole), again = steps_of(killed), plain = steps_of(none);
  ASSERT_EQ(steps.size(), 80u);
  ASSERT_EQ(again.size(), 80u);
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const char* field : {"loss", "balance_loss", "expert_busiest", "expert_busiest_mean"}) {
      EXPECT_EQ(again[i].at(field), steps[i].at(field)) << i << " " << field;
    }
  }
  ASSERT_EQ(plain.size(), 80u);
  EXPECT_FALSE(plain[0].contains("balance_loss"));
  EXPECT_LT(steps[79]["expert_busiest_mean"], plain[79]["expert_busiest_mean"]);
  EXPECT_EQ(run_jige({"report", whole}).exit_code, 0);
  EXPECT_THAT(read_text(whole + "/report.html"), HasSubstr("busiest expert, over equal use"));
}

}  // namespace
}  // namespace jige::integration
