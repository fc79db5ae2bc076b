#include "cli/step_profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace jige::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;

std::set<std::string> kinds_of(const std::vector<StepGridCell>& grid) {
  std::set<std::string> kinds;
  for (const StepGridCell& cell : grid) kinds.insert(cell.kind);
  return kinds;
}

TEST(StepGrid, HasEveryKindAndOnlyWhatAModelHolds) {
  for (const int64_t rows : {32, 512, 2048}) {
    const model::InferenceSizes sizes{
        .context_max = 1024, .kv_block_count = 256, .batch_tokens_max = rows, .logit_rows_max = 64};
    size_t before = 0;
    for (int detail = 0; detail <= kStepGridDetailMax; ++detail) {
      const std::vector<StepGridCell> grid = step_grid(sizes, detail);
      EXPECT_GT(grid.size(), before) << rows << " rows, detail " << detail;
      before = grid.size();
      for (const StepGridCell& cell : grid) {
        EXPECT_TRUE(serve::holds_steps(sizes, cell.shape, kStepTurns));
        EXPECT_LE(cell.detail, detail);
      }
      EXPECT_THAT(kinds_of(grid), AllOf(Contains("decode"), Contains("prompt"), Contains("piece")));
    }
    EXPECT_THAT(kinds_of(step_grid(sizes, kStepGridDetailMax)), Contains("mixed"));
  }
}

TEST(StepProfiler, ProfilesATinyModelOrStops) {
  BenchServeModelFlags flags;
  flags.random = "tiny";
  flags.device.threads = 1;
  auto served = flags.load(64, 64, 32, 4);
  ASSERT_TRUE(served) << served.error().message;
  int64_t told = 0;
  const auto profile = profile_steps(
      *served, {.seconds = 0.05, .on_progress = [&](double, const std::string&) { ++told; }});
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_GT(told, 2 * 8);
  EXPECT_EQ(profile->subject.machine.threads, 1);
  EXPECT_EQ(profile->step.limits.rows_max, 32);
  EXPECT_EQ(profile->step.limits.sample_rows_max, 4);
  EXPECT_EQ(profile->held_out.all.cells, std::ssize(profile->cells));
  // Of turns that were measured: the usual one is among them.
  for (const sim::NoiseGroup& group : profile->step.noise.groups) {
    EXPECT_LE(group.at(0), 1);
    EXPECT_GE(group.at(1), 1);
    EXPECT_GT(group.end_s, 0);
  }
  sim::StepFeatures one, many;
  one.add(0, 1, 1);
  many.add(0, 32, 1);
  EXPECT_GT(profile->step.seconds(one), 0);
  EXPECT_GT(profile->step.seconds(many), profile->step.seconds(one));
  const std::atomic<bool> stop = true;
  EXPECT_EQ(profile_steps(*served, {.seconds = 5, .cancel = &stop}).error().code, Code::kCancelled);
}

}  // namespace
}  // namespace jige::cli
