// jige train by a schedule on several GPUs, which are emulated ones (jige_emulated): the model of
// one GPU, and memory that is planned for each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "integration/emulated_gpus.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

class GpuPipeline : public TrainsOnEmulatedGpus {
 protected:
  GpuPipeline() : TrainsOnEmulatedGpus("3") {}
};

// A run goes on with all that it began with, but for where it computes.
TEST_F(GpuPipeline, MakesTheModelOfOneGpuAndGoesOnFromAKillOnOthers) {
  ASSERT_EQ(run_jige(arguments("alone", "cuda", {"--steps", "8"})).exit_code, 0);
  const std::string run = folder_ / "run";
  kill_behind_checkpoint(arguments("run", "cuda:0,cuda:1", {"--steps", "8"}), run);
  const Outcome again = run_jige(
      arguments("run", "cuda:all",
                {"--steps", "8", "--resume", "--pipeline", "mobius", "--parameters", "host"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("mobius over 3 logical devices"));
  EXPECT_THAT(again.err, HasSubstr("devices are parts of 3 GPUs in turns"));
  EXPECT_TRUE(model_of(run) == model_of(folder_ / "alone"));
}

TEST_F(GpuPipeline, PlansTheMemoryOfEveryGpuByWhatItHas) {
  set_variable("JIGE_EMULATED_MIB", "64,48,64");
  const Outcome plan = run_with(arguments("plan", "cuda:2,0", {"--devices", "4"}),
                                {"--times", "assumed", "--plan-only"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  for (const char* line : {"device 0, on GPU 2", "device 1, on GPU 0", "device 3, on GPU 0"}) {
    EXPECT_THAT(plan.out, HasSubstr(line));
  }
  // 24 MiB of GPU 1 are a device's.
  const Outcome fits = run_with(arguments("fits", "cuda:0,1", {"--devices", "4"}),
                                {"--device-memory", "24MiB", "--times", "assumed", "--plan-only"});
  EXPECT_EQ(fits.exit_code, 0) << fits.err;
  const Outcome large = run_with(arguments("large", "cuda:0,1", {"--devices", "4"}),
                                 {"--device-memory", "25MiB", "--times", "assumed", "--plan-only"});
  expect_error(large, 6,
               {"a logical device is to have 25.0 MiB of memory", "2 of the 48.0 MiB of GPU 1",
                "24.0 MiB each"});
}

TEST_F(GpuPipeline, IsSeenInPlansAndTimedBySchedule) {
  const Json plan = run_with(arguments("plan", "cuda:2,0", {"--times", "assumed"}),
                             {"--plan-only", "--json", "--quiet"})
                        .json();
  EXPECT_EQ(plan["pipeline"]["gpus"], Json::array({2, 0}));
  EXPECT_EQ(plan["pipeline"]["devices"], 2);
  const Outcome bench =
      run_jige({"bench", "train-schedules", "1f1b", "--device", "cuda:0,1", "--devices", "2",
                "--micro-batches", "2", "--blocks", "4", "--micro-batch-tokens", "16", "--context",
                "16", "--rounds", "1", "--steps", "1"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  EXPECT_THAT(bench.out, HasSubstr("logical devices that are parts of cuda:0,1"));
  EXPECT_THAT(bench.out, HasSubstr("The losses of all rows that ran have the same bits"));
}

TEST_F(GpuPipeline, IsRefusedWhereItsGpusCannotBeUsed) {
  expect_error(run_jige(arguments("missing", "cuda:0,7", {})), 3,
               {"--device cuda:0,7: there is no GPU 7; this machine has 3"});
  expect_error(run_jige(arguments("twice", "cuda:0,0", {})), 2, {"names GPU 0 twice"});
  expect_error(run_jige(arguments("uneven", "cuda:0,1", {"--devices", "3"})), 2,
               {"3 logical devices", "2 GPUs", "multiple of 2"});
  expect_error(run_jige(arguments("ranks", "cuda:0,1", {"--ranks", "2"})), 5,
               {"--device cuda:0,1", "ranks take a machine's GPUs in turns"});
}

}  // namespace
}  // namespace jige::integration
