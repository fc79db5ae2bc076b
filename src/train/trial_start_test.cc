// What is read of a run's log where a trial goes on from it, whatever the log says.

#include "train/trial_start.h"

#include <gtest/gtest.h>

#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "train/step_log.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

constexpr std::string_view kTrialLog =
    "{\"kind\":\"start\",\"version\":\"1\"}\n"
    "{\"kind\":\"step\",\"step\":1,\"loss\":5.5,\"run_seconds\":2.5}\n"
    "{\"kind\":\"eval\",\"step\":1,\"loss\":4.5}\n"
    "{\"kind\":\"step\",\"step\":2,\"loss\":4.25,\"run_seconds\":5}\n"
    "{\"kind\":\"eval\",\"step\":2,\"loss\":4.75}\n";

TEST(ReadLosses, TakesTheLastAndTheBest) {
  const TestFolder folder;
  TrialRecord trial;
  ASSERT_TRUE(read_losses(folder.write("log.jsonl", kTrialLog), trial));
  EXPECT_EQ(trial.loss, 4.25);
  EXPECT_EQ(trial.held_out, 4.75);
  EXPECT_EQ(trial.held_out_step, 2);
  EXPECT_EQ(trial.held_out_best, 4.5);
  EXPECT_EQ(trial.held_out_best_step, 1);
  EXPECT_EQ(trial.seconds, 5);
}

TEST(ReadLosses, AStepThatIsNoNumberOfStepsIsNone) {
  const TestFolder folder;
  for (const char* step : {"1e300", "-1e300", "2.5", "\"2\"", "null"}) {
    TrialRecord trial;
    ASSERT_TRUE(read_losses(
        folder.write("log.jsonl", fmt::format("{}{{\"kind\":\"eval\",\"step\":{},\"loss\":1}}\n",
                                              kTrialLog, step)),
        trial));
    EXPECT_EQ(trial.held_out, 1) << step;
    EXPECT_EQ(trial.held_out_step, 0) << step;
  }
}

TEST(ReadLosses, DamagedLogsAreRefusedOrRead) {
  const TestFolder folder;
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(1500); ++seed) {
    const std::string path =
        folder.write("log.jsonl", Mutator(seed).mutate(std::string(kTrialLog)));
    TrialRecord trial;
    const Status status = read_losses(path, trial);
    read += status.has_value();
    ASSERT_TRUE(status || status.error().message.find(path) == 0) << seed;
    static_cast<void>(last_record(path));
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace jige::train
