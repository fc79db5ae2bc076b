// jige plan train for GPUs, and jige train by such a plan, on emulated ones (jige_emulated): each
// GPU planned for by its own memory and time, refused on others, predicted beside measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "integration/emulated_gpus.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

class GpuPlan : public TrainsOnEmulatedGpus {
 protected:
  GpuPlan() : TrainsOnEmulatedGpus("3") {}

  // Of the runs that arguments() begins.
  Outcome plan(const std::string& device, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"plan",
                                      "train",
                                      "--size",
                                      "tiny",
                                      "--vocab-size",
                                      tokens_,
                                      "--device",
                                      device,
                                      "--micro-batch-tokens",
                                      "16",
                                      "--context",
                                      "16",
                                      "--micro-batches",
                                      "4",
                                      "-o",
                                      folder_ / "plan.json"};
    words.insert(words.end(), more.begin(), more.end());
    return run_jige(words);
  }
  // A run by the plan; without `plan` one on a GPU alone.
  std::vector<std::string> by_plan(const std::string& out, const std::string& device) const {
    return arguments(out, device, {"--vocab-size", tokens_, "--plan", folder_ / "plan.json"});
  }

  const std::string tokens_ = "270";  // of the tokenizer that is trained here
};

TEST_F(GpuPlan, IsRunOnItsGpusAndSaysWhatItPredictedAndWhatWasMeasured) {
  const Outcome made = plan("cuda:0,cuda:1", {"--measure"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("GPU 0"));
  EXPECT_THAT(made.out, HasSubstr("GPU 1"));
  EXPECT_THAT(made.out, HasSubstr("What limits it: "));
  const Json file = *parse_json(*read_file(folder_ / "plan.json"), "plan.json");
  ASSERT_EQ(file["gpus"].size(), 2u);
  EXPECT_EQ(file["gpus"][0]["name"], "emulated");
  ASSERT_EQ(file["gpu_shares"].size(), 2u);
  EXPECT_GT(file["gpu_shares"][1]["planned_bytes"].get<int64_t>(), 0);
  // Messages pass through the host's memory, which is planned for.
  EXPECT_GT(file["costs"]["staging_bytes"].get<int64_t>(), 0);
  const Outcome alone = run_jige(arguments("alone", "cuda", {"--vocab-size", tokens_}));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const Outcome run = run_jige(by_plan("run", "cuda:0,cuda:1"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("times of the plan, measured on this machine"));
  for (const char* line : {"GPU 0: ", "GPU 1: ", "a step: ", " s predicted, ", " s measured"}) {
    EXPECT_THAT(run.err, HasSubstr(line));
  }
  EXPECT_TRUE(model_of(folder_ / "run") == model_of(folder_ / "alone"));
  // GPUs that are alike may take one another's part.
  const Outcome turned = run_jige(by_plan("turned", "cuda:2,cuda:0"));
  ASSERT_EQ(turned.exit_code, 0) << turned.err;
  EXPECT_TRUE(model_of(folder_ / "turned") == model_of(folder_ / "alone"));
}

TEST_F(GpuPlan, IsRefusedOnOtherGpus) {
  set_variable("JIGE_EMULATED_MIB", "64,48,64");
  const Outcome made = plan("cuda:0,cuda:1", {});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  expect_error(run_jige(by_plan("cpu", "cpu")), 2, {"plan.json: is a plan for 2 GPUs; name them"});
  expect_error(run_jige(by_plan("one", "cuda:0")), 2, {"is a plan for 2 GPUs, --device names 1"});
  expect_error(run_jige(by_plan("turned", "cuda:1,cuda:0")), 2,
               {"memory_bytes of the one in place 0 is 67108864 there, 50331648 of GPU 1 here"});
  ASSERT_EQ(run_jige({"plan", "train", "--size", "tiny", "--vocab-size", tokens_, "--devices", "2",
                      "--micro-batch-tokens", "16", "--context", "16", "--micro-batches", "4", "-o",
                      folder_ / "plan.json"})
                .exit_code,
            0);
  expect_error(run_jige(by_plan("processors", "cuda:0,cuda:1")), 2,
               {"plan.json: is a plan for processors; for GPUs make one with"});
}

// Parameters and their gradients on the GPUs, where they decide what fits.
const std::vector<std::string> kOnGpus = {"--parameters",    "device", "--optimizer", "async",
                                          "--schedule",      "1f1b",   "--recompute", "off",
                                          "--device-tflops", "1e-5"};

// The GPU with less memory has less of the model, and each its own budget.
TEST_F(GpuPlan, GivesEachGpuWhatItHasMemoryFor) {
  set_variable("JIGE_EMULATED_MIB", "64,2,64");
  const Outcome made = plan("cuda:0,cuda:1", kOnGpus);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Json file = *parse_json(*read_file(folder_ / "plan.json"), "plan.json");
  const Json& shares = file["gpu_shares"];
  EXPECT_LE(shares[1]["planned_bytes"].get<int64_t>(), int64_t{2} << 20);
  EXPECT_LE(shares[1]["planned_bytes"], shares[1]["budget_bytes"]);
  EXPECT_GT(shares[0]["planned_bytes"].get<int64_t>(), int64_t{2} << 20);
  EXPECT_THAT(made.out, HasSubstr("memory: "));
  EXPECT_THAT(made.out, HasSubstr("raise the device 1 budget by"));
  // Blocks that would be timed, one of each kind on each GPU, have no room there.
  const Outcome run = run_jige(by_plan("run", "cuda:0,cuda:1"));
  EXPECT_THAT(run.err, HasSubstr("blocks could not be timed, so that times are assumed"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Outcome alone = run_jige(arguments("alone", "cuda", {"--vocab-size", tokens_}));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_TRUE(model_of(folder_ / "run") == model_of(folder_ / "alone"));
}

TEST_F(GpuPlan, IsRefusedWhereBothHaveWhatTheSmallerOneHas) {
  set_variable("JIGE_EMULATED_MIB", "2");
  expect_error(plan("cuda:0,cuda:1", kOnGpus), 6, {"nothing fits the budgets"});
}

TEST_F(GpuPlan, TakesThePacesOfItsCosts) {
  // As slow as leaves nothing else to wait for.
  ASSERT_EQ(plan("cuda:0,cuda:1", {"--device-tflops", "1e-5"}).exit_code, 0);
  Json file = *parse_json(*read_file(folder_ / "plan.json"), "plan.json");
  Json costs = file["costs"];
  const auto busy_blocks = [&](std::vector<double> paces) {
    costs["device_paces"] = paces;
    EXPECT_TRUE(write_file_atomic(folder_ / "costs.json", dump_json(costs)));
    const Outcome planned =
        run_jige({"plan", "train", "--costs", folder_ / "costs.json", "--device", "cuda:0,cuda:1",
                  "--micro-batches", "4", "--schedule", "1f1b", "--json"});
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    return planned.json()["choice"]["forward_cuts"][1].get<int>();  // the second's first block
  };
  EXPECT_LT(busy_blocks({4, 1}), busy_blocks({1, 1}));
  EXPECT_GT(busy_blocks({1, 4}), busy_blocks({1, 1}));
  const Outcome wrong = run_jige({"plan", "train", "--costs", folder_ / "costs.json", "--devices",
                                  "3", "--micro-batches", "4"});
  expect_error(wrong, 2, {"device_paces has 2 of them for 3 devices"});
}

}  // namespace
}  // namespace jige::integration
