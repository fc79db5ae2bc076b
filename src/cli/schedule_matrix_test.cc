#include "cli/schedule_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/pipeline_simulate.h"
#include "plan/pipeline_verify.h"

namespace jige::cli {
namespace {

using plan::OptimizerMode;
using plan::ScheduleKind;
using plan::TaskKind;

std::vector<ScheduleKind> all_kinds() {
  std::vector<ScheduleKind> kinds;
  for (int k = 0; k < plan::kScheduleKindCount; ++k) kinds.push_back(static_cast<ScheduleKind>(k));
  return kinds;
}

plan::PipelineCosts costs_of(int32_t block_count) {
  plan::PipelineCosts costs;
  costs.blocks.assign(static_cast<size_t>(block_count), {.forward_s = 1,
                                                         .recompute_s = 1,
                                                         .backward_input_s = 1,
                                                         .backward_weight_s = 1,
                                                         .parameters = 100,
                                                         .parameter_bytes = 100,
                                                         .gradient_bytes = 100,
                                                         .input_bytes = 100});
  costs.rates = {.fetch_bytes_per_s = 50,
                 .offload_bytes_per_s = 50,
                 .link_bytes_per_s = 1000,
                 .host_parameters_per_s = 5};
  return costs;
}

double step_s(const plan::PipelineSchedule& schedule) {
  const auto graph = plan::PipelineGraph::create(schedule);
  EXPECT_TRUE(graph) << graph.error().message;
  return graph ? plan::time_tasks(schedule, *graph, costs_of(schedule.block_count)).step_s : -1;
}

TEST(ScheduleMatrix, HoldsEveryScheduleWithEveryOptimizerItTakes) {
  const auto rows = schedule_matrix(
      {.kinds = all_kinds(),
       .optimizers = {OptimizerMode::kDevice, OptimizerMode::kSync, OptimizerMode::kAsync}});
  ASSERT_TRUE(rows) << rows.error().message;
  std::map<std::string, int> optimizers;
  for (const ScheduleRow& row : *rows) {
    const auto verified = plan::verify_pipeline(row.schedule);
    EXPECT_TRUE(verified) << row.name << ": " << verified.error().message;
    EXPECT_TRUE(row.schedule.recompute);
    EXPECT_EQ(row.schedule.host_parameters, row.schedule.optimizer != OptimizerMode::kDevice);
    ++optimizers[row.name];
  }
  for (const ScheduleKind kind : all_kinds()) {
    const bool host_only = kind == ScheduleKind::kMobius || kind == ScheduleKind::kSPipe ||
                           kind == ScheduleKind::kZeroOffload;
    EXPECT_EQ(optimizers[std::string(plan::schedule_name(kind))], host_only ? 2 : 3);
  }
}

TEST(ScheduleMatrix, SaysWhyThereIsNothingToCompare) {
  const auto rows = schedule_matrix({.kinds = {ScheduleKind::kSPipe},
                                     .optimizers = {OptimizerMode::kSync},
                                     .devices = 4,
                                     .block_count = 8});
  ASSERT_FALSE(rows);
  EXPECT_NE(rows.error().message.find("the model has 8"), std::string::npos);
}

TEST(ScheduleMatrix, AblationGoesFromMobiusToSPipe) {
  const auto rows = schedule_ablation({});
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 6u);
  std::vector<double> seconds;
  for (const ScheduleRow& row : *rows) {
    const auto verified = plan::verify_pipeline(row.schedule);
    EXPECT_TRUE(verified) << row.name << ": " << verified.error().message;
    EXPECT_FALSE(row.how.empty());
    seconds.push_back(step_s(row.schedule));
  }
  // Each step but decoupling alone, which the literature found to cost time, is a gain.
  for (const size_t i : {1, 3, 4, 5}) EXPECT_LT(seconds[i], seconds[i - 1]) << (*rows)[i].name;
  const auto whole =
      schedule_matrix({.kinds = {ScheduleKind::kSPipe}, .optimizers = {OptimizerMode::kAsync}});
  EXPECT_TRUE((*rows)[5].schedule == (*whole)[0].schedule);
}

TEST(ScheduleMatrix, WithoutPrefetchAFetchWaitsForTheStageBefore) {
  const auto rows = schedule_ablation({});
  ASSERT_TRUE(rows);
  const auto overlapping = [](const plan::PipelineSchedule& schedule) {
    const auto graph = plan::PipelineGraph::create(schedule);
    const plan::HappensBefore order(*graph);
    std::map<int32_t, std::vector<int32_t>> fetches, releases;
    for (int32_t i = 0; i < static_cast<int32_t>(schedule.tasks.size()); ++i) {
      const auto& task = schedule.tasks[static_cast<size_t>(i)];
      if (task.kind == TaskKind::kFetch) fetches[task.device].push_back(i);
      if (task.kind == TaskKind::kRelease) releases[task.device].push_back(i);
    }
    int count = 0;
    for (const auto& [device, list] : fetches) {
      for (size_t i = 1; i < list.size(); ++i) {
        count += !order.before(releases[device][i - 1], list[i]);
      }
    }
    return count;
  };
  EXPECT_EQ(overlapping((*rows)[0].schedule), 0);
  EXPECT_GT(overlapping((*rows)[1].schedule), 0);
}

TEST(ScheduleMatrix, InLockstepNoPassOvertakesACheckpoint) {
  const auto rows = schedule_ablation({});
  ASSERT_TRUE(rows);
  // Sends that end before the next pass of both devices may begin, and all.
  const auto awaited = [](const plan::PipelineSchedule& schedule) {
    const auto graph = plan::PipelineGraph::create(schedule);
    const plan::HappensBefore order(*graph);
    std::map<int32_t, std::vector<int32_t>> steps;
    for (int32_t i = 0; i < static_cast<int32_t>(schedule.tasks.size()); ++i) {
      const auto& task = schedule.tasks[static_cast<size_t>(i)];
      const bool step = task.kind == TaskKind::kForward || task.kind == TaskKind::kRecompute;
      if (step) steps[task.device].push_back(i);
    }
    int waits = 0, sends = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(schedule.tasks.size()); ++i) {
      const auto& task = schedule.tasks[static_cast<size_t>(i)];
      if (task.kind != TaskKind::kCheckpointSend) continue;
      ++sends;
      const auto& own = steps[task.device];
      const auto made = std::find(own.begin(), own.end(), task.after.front());
      const bool sender = made + 1 == own.end() || order.before(i, *(made + 1));
      // The receiver's pass one step of the timetable later.
      const auto& other = steps[task.peer];
      const auto n = (made - own.begin()) + 1 + task.device - task.peer;
      const bool receiver =
          n >= static_cast<std::ptrdiff_t>(other.size()) ||
          order.before(i + 1, other[static_cast<size_t>(std::max<std::ptrdiff_t>(n, 0))]);
      waits += sender && receiver;
    }
    EXPECT_GT(sends, 50);
    return std::pair(waits, sends);
  };
  for (const size_t lockstep : {2, 3}) {
    const auto [count, sends] = awaited((*rows)[lockstep].schedule);
    EXPECT_EQ(count, sends);
  }
  const auto [count, sends] = awaited((*rows)[4].schedule);
  EXPECT_LT(count, sends);
}

}  // namespace
}  // namespace jige::cli
