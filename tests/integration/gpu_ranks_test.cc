// jige train on several ranks with GPUs, which are emulated ones (jige_emulated): processes as on a
// real machine, the model of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "integration/emulated_gpus.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

// Two GPUs.
class GpuRanks : public OnEmulatedGpus {
 protected:
  void SetUp() override {
    OnEmulatedGpus::SetUp();
    if (IsSkipped()) return;
    set_variable("JIGE_EMULATED_GPUS", "2");
    std::string text;
    for (int i = 0; i < 300; ++i) text += "a story of " + std::to_string(i * 37) + " things\n";
    write_text(folder_ / "data.txt", text);
  }
  std::vector<std::string> arguments(const std::string& out,
                                     const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"train",
                                      "--device",
                                      "cuda",
                                      "--data",
                                      folder_ / "data.txt",
                                      "--size",
                                      "tiny",
                                      "--steps",
                                      "5",
                                      "--context",
                                      "16",
                                      "--micro-batch-tokens",
                                      "16",
                                      "--batch-tokens",
                                      "64",
                                      "--threads",
                                      "1",
                                      "--eval-share",
                                      "0",
                                      "--save-every",
                                      "1",
                                      "--out",
                                      folder_ / out};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  TestFolder folder_;
};

TEST_F(GpuRanks, MakeTheModelOfOneGpuAndGoOnFromAKill) {
  ASSERT_EQ(run_jige(arguments("alone", {})).exit_code, 0);
  const Outcome plan = run_jige(arguments("plan", {"--ranks", "5", "--plan-only"}));
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("5, 5 of them here, 3 of those on this GPU"));
  EXPECT_THAT(plan.out, HasSubstr("gradients, pinned"));

  const TestFolder streams;
  Process job(arguments("run", {"--ranks", "3"}), streams.path());
  const KilledRank killed = kill_rank(job, folder_ / "run", 3, 1);
  EXPECT_THAT(killed.outcome.err, HasSubstr("rank 1 ("));
  const Outcome again =
      run_jige(arguments("run", {"--ranks", "2", "--shard-optimizer", "--resume"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("2 ranks, 2 of them here, 1 on this GPU"));
  EXPECT_TRUE(model_of(folder_ / "run") == model_of(folder_ / "alone"));
}

TEST_F(GpuRanks, AreRefusedWhereTheyDoNotFit) {
  const Outcome small = run_jige(
      arguments("small", {"--ranks", "3", "--device", "cuda:1", "--memory-limit", "40MiB"}));
  EXPECT_EQ(small.exit_code, 6);
  EXPECT_THAT(small.err, HasSubstr("on each of 3 ranks on this GPU, the limit is 40.0 MiB"));
}

}  // namespace
}  // namespace jige::integration
