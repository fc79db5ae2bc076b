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

class GpuRanks : public TrainsOnEmulatedGpus {
 protected:
  GpuRanks() : TrainsOnEmulatedGpus("2") {}
  std::vector<std::string> arguments(const std::string& out,
                                     const std::vector<std::string>& more) const {
    return TrainsOnEmulatedGpus::arguments(out, "cuda", more);
  }
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
