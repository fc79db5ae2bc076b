#include "cli/schedule_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace jige::cli {
namespace {

using plan::OptimizerMode;
using plan::ScheduleKind;

train::RigOptions small_options() {
  train::RigOptions options;
  options.config = *train::even_blocks_config(8, 32);
  options.micro_batch_tokens = 12;
  options.context = 8;
  return options;
}

std::vector<ScheduleRow> small_rows() {
  return *schedule_matrix({.kinds = {ScheduleKind::k1F1B, ScheduleKind::kSPipe},
                           .optimizers = {OptimizerMode::kDevice, OptimizerMode::kAsync},
                           .devices = 2,
                           .micro_batches = 2,
                           .block_count = 8,
                           .forward_stages = 2,
                           .backward_stages = 4});
}

TEST(ScheduleRuns, BlocksOfTheModelWeighTheSame) {
  const auto config = train::even_blocks_config(24, 64);
  ASSERT_TRUE(config);
  const auto architecture = model::Architecture::create(*config);
  ASSERT_TRUE(architecture) << architecture.error().message;
  ASSERT_EQ((*architecture)->node_count(), 24u);
  for (size_t node = 0; node < 24; ++node) {
    int64_t count = 0;
    for (const auto& spec : (*architecture)->block(node).params()) count += spec.shape.count();
    EXPECT_NEAR(static_cast<double>(count), 13 * 64 * 64, 0.005 * 13 * 64 * 64) << node;
  }
  EXPECT_FALSE(train::even_blocks_config(2, 64));
  EXPECT_FALSE(train::even_blocks_config(24, 40));
}

TEST(ScheduleRuns, RealRowsAgreeToTheBitWithinTheirMemory) {
  int heard = 0;
  const auto all = run_schedules(small_rows(), small_options(), {.rounds = 2, .steps = 2},
                                 [&](const std::string&) { ++heard; });
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 3u);  // spipe has no optimizer on the device
  EXPECT_EQ(heard, 6);
  for (const ScheduleRuns& runs : *all) {
    EXPECT_TRUE(runs.refusal.empty()) << runs.refusal;
    EXPECT_EQ(runs.seconds.size(), 4u);
    ASSERT_EQ(runs.losses.size(), 3u);
    EXPECT_EQ(runs.losses, (*all)[0].losses);
    EXPECT_GT(runs.losses[0], 0);
    EXPECT_NE(runs.losses[0], runs.losses[1]);
    EXPECT_EQ(runs.device_peak_bytes.size(), 2u);
    EXPECT_GT(runs.fullest_bytes(), 0);
    EXPECT_LE(runs.fullest_bytes(), runs.planned_bytes);
    EXPECT_EQ(runs.step_tokens, 24);
    const Json json = runs_json(runs, false);
    EXPECT_EQ(json["step_s"].get<double>(), runs.median_s());
    EXPECT_EQ(json["losses"].size(), 3u);
  }
  const std::string table = real_runs_table(*all);
  EXPECT_NE(table.find("1f1b"), std::string::npos);
  EXPECT_EQ(table.find("does not run"), std::string::npos);
}

TEST(ScheduleRuns, ARowBeyondItsMemoryIsRefusedAndTheOthersRun) {
  train::RigOptions options = small_options();
  const auto unlimited =
      run_schedules(small_rows(), options, {.rounds = 1, .steps = 1}, [](const std::string&) {});
  ASSERT_TRUE(unlimited);
  // One byte less than the greediest can need.
  int64_t most = 0;
  for (const ScheduleRuns& runs : *unlimited) most = std::max(most, runs.planned_bytes);
  options.device_bytes = most - 1;
  const auto limited =
      run_schedules(small_rows(), options, {.rounds = 1, .steps = 1}, [](const std::string&) {});
  ASSERT_TRUE(limited) << limited.error().message;
  for (size_t i = 0; i < limited->size(); ++i) {
    const bool fits = (*unlimited)[i].planned_bytes < most;
    EXPECT_EQ((*limited)[i].refusal.empty(), fits) << (*limited)[i].refusal;
    EXPECT_EQ((*limited)[i].seconds.empty(), !fits);
    EXPECT_EQ(runs_json((*limited)[i], false).contains("refusal"), !fits);
  }
  EXPECT_NE(real_runs_table(*limited).find("does not run"), std::string::npos);
}

TEST(ScheduleRuns, TimedRowsNeverBeatTheirPrediction) {
  train::RigOptions options = small_options();
  options.timed = train::TimedRatios{.forward_s = 1e-4};
  const auto all =
      run_schedules(small_rows(), options, {.rounds = 1, .steps = 2}, [](const std::string&) {});
  ASSERT_TRUE(all) << all.error().message;
  for (const ScheduleRuns& runs : *all) {
    EXPECT_TRUE(runs.losses.empty());
    EXPECT_GE(runs.fastest_s(), runs.predicted_s * (1 - 1e-6));
    const Json json = runs_json(runs, true);
    EXPECT_EQ(json["simulated_step_s"].get<double>(), runs.predicted_s);
    EXPECT_FALSE(json.contains("tokens_per_s"));
  }
  EXPECT_NE(timed_runs_table(*all).find("simulated"), std::string::npos);
}

TEST(ScheduleRuns, TakesMedians) {
  ScheduleRuns runs;
  EXPECT_EQ(runs.median_s(), 0);
  runs.seconds = {3, 1, 2};
  EXPECT_EQ(runs.median_s(), 2);
  runs.seconds = {3, 1, 2, 8};
  EXPECT_EQ(runs.median_s(), 2.5);
  EXPECT_EQ(runs.fastest_s(), 1);
  EXPECT_EQ(runs.slowest_s(), 8);
  runs.predicted_s = 2;
  EXPECT_EQ(runs.error(), 0.25);
}

}  // namespace
}  // namespace jige::cli
