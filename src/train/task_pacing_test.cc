#include "train/task_pacing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/pipeline_simulate.h"
#include "train/pipeline_rig.h"

namespace jige::train {
namespace {

using plan::BlockRange;
using plan::TaskKind;

// F and a message from device 0, F on device 1, a release behind it.
plan::PipelineSchedule small_schedule() {
  plan::PipelineSchedule schedule;
  schedule.device_count = 2;
  schedule.micro_batch_count = 2;
  schedule.block_count = 2;
  schedule.tasks = {
      {TaskKind::kForward, 0, {0, 1}, 0, -1, {}},            // 0: 100 ns
      {TaskKind::kSendActivation, 0, {1, 1}, 0, 1, {0}},     // 1: 40 ns
      {TaskKind::kReceiveActivation, 1, {1, 1}, 0, 0, {1}},  // 2
      {TaskKind::kForward, 0, {0, 1}, 1, -1, {}},            // 3
      {TaskKind::kForward, 1, {1, 2}, 0, -1, {2}},           // 4: 300 ns
      {TaskKind::kRelease, 1, {1, 2}, -1, -1, {}},           // 5
      {TaskKind::kForward, 1, {1, 2}, 1, -1, {}},            // 6
  };
  return schedule;
}

plan::PipelineCosts small_costs() {
  plan::PipelineCosts costs;
  costs.blocks = {{.forward_s = 100e-9}, {.forward_s = 300e-9, .input_bytes = 20}};
  costs.rates.link_bytes_per_s = 1e9;
  costs.rates.link_latency_s = 20e-9;
  return costs;
}

TEST(TaskPacing, TakesItsTimesFromTheCosts) {
  const plan::PipelineSchedule schedule = small_schedule();
  const auto graph = plan::PipelineGraph::create(schedule);
  const TaskPacing pacing(schedule, *graph, small_costs());
  const int64_t expected[] = {100, 40, 0, 100, 300, 0, 300};
  for (int32_t i = 0; i < 7; ++i) EXPECT_NEAR(pacing.duration_ns(i), expected[i], 1) << i;
}

TEST(TaskPacing, AQueueGoesOnByItselfAndAnotherWaitsForTheThread) {
  const plan::PipelineSchedule schedule = small_schedule();
  const auto graph = plan::PipelineGraph::create(schedule);
  TaskPacing pacing(schedule, *graph, small_costs());
  // Nothing before it: it begins when its thread comes.
  EXPECT_EQ(pacing.begin(0, 1000), 1000);
  pacing.end(0, {.due_ns = 1100, .seen_ns = 1130});
  // The next of the same queue begins where this one ended, whenever its thread wakes up.
  EXPECT_EQ(pacing.begin(3, 1135), 1100);
  // Another queue hears of it from the thread.
  EXPECT_EQ(pacing.begin(1, 1140), 1130);
  pacing.end(1, {.due_ns = 1170, .seen_ns = 1175});
  EXPECT_EQ(pacing.begin(2, 1180), 1175);
  pacing.end(2, {.due_ns = 1175, .seen_ns = 1182});
  EXPECT_EQ(pacing.begin(4, 1190), 1182);
  pacing.end(4, {.due_ns = 1482, .seen_ns = 1500});
  // What takes no time does not break the chain.
  EXPECT_EQ(pacing.begin(5, 1510), 1482);
  EXPECT_EQ(pacing.due(5, 1482, 1511), 1482);
  pacing.end(5, {.due_ns = 1482, .seen_ns = 1511});
  EXPECT_EQ(pacing.begin(6, 1520), 1482);
  // Never later than its thread is there.
  EXPECT_EQ(pacing.begin(6, 1400), 1400);
}

TEST(TaskPacing, ACopySlowerThanItsLinkTakesAsLongAsItTook) {
  const plan::PipelineSchedule schedule = small_schedule();
  const auto graph = plan::PipelineGraph::create(schedule);
  const TaskPacing pacing(schedule, *graph, small_costs());
  const int64_t link_ns = pacing.duration_ns(1);
  EXPECT_EQ(pacing.due(1, 1000, 1010), 1000 + link_ns);
  EXPECT_EQ(pacing.due(1, 1000, 1000 + link_ns + 50), 1000 + link_ns + 50);
}

TEST(TaskPacing, HoldsNoShorterThanATaskTakes) {
  const plan::PipelineSchedule schedule = small_schedule();
  const auto graph = plan::PipelineGraph::create(schedule);
  plan::PipelineCosts costs = small_costs();
  costs.blocks[0].forward_s = 2e-3;
  TaskPacing pacing(schedule, *graph, costs);
  const int64_t begun_ns = pacing.begin(0, pacing.now_ns());
  pacing.hold(0, begun_ns);
  EXPECT_GE(pacing.now_ns(), begun_ns + 2'000'000);
  EXPECT_GE(pacing.begin(3, begun_ns + 9'000'000'000), begun_ns + 2'000'000);
}

TEST(TimedDevices, RunEveryTaskInOrderForItsTimeAndChangeNothing) {
  const auto architecture = *model::Architecture::create(test_config(6));
  for (const plan::ScheduleKind kind :
       {plan::ScheduleKind::kSPipe, plan::ScheduleKind::kInterleaved}) {
    ScheduleRequest request = plan::natural_request(kind);
    request.devices = 2;
    request.micro_batches = 4;
    request.block_count = 8;
    request.forward_stages = 2;
    request.backward_stages = kind == plan::ScheduleKind::kSPipe ? 4 : 2;
    request.host_parameters = request.recompute = true;
    request.optimizer = OptimizerMode::kAsync;
    request.clip = ClipMode::kSpeculate;
    Rig rig;
    rig.build(*architecture, request, {.timed = true});
    ASSERT_TRUE(rig.executor);
    Trace before, after;
    before.add(*rig.optimizer);
    const auto batches = step_batches(0, request.micro_batches, architecture->config().vocab_size);
    const auto step = rig.executor->run({batches, terms_of(batches), 0.01});
    ASSERT_TRUE(step) << step.error().message;
    EXPECT_EQ(step->loss_sum, 0);
    after.add(*rig.optimizer);
    EXPECT_TRUE(before == after);
    EXPECT_EQ(rig.optimizer->update_count(), 0);

    const plan::PipelineSchedule& schedule = rig.machine->schedule();
    const auto graph = plan::PipelineGraph::create(schedule);
    const auto spans = rig.executor->spans();
    int64_t longest_ns = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(schedule.tasks.size()); ++i) {
      const TaskSpan& span = spans[static_cast<size_t>(i)];
      for (const int32_t p : graph->predecessors(i)) {
        EXPECT_GE(span.start_ns, spans[static_cast<size_t>(p)].end_ns);
      }
      longest_ns = std::max(longest_ns, span.end_ns);
    }
    // Sleeping only ever adds: no run beats the prediction.
    const double predicted_s = plan::time_tasks(schedule, *graph, rig.machine->costs()).step_s;
    EXPECT_GE(static_cast<double>(longest_ns) * 1e-9, predicted_s * (1 - 1e-6));
    for (int32_t d = 0; d < request.devices; ++d) {
      const int64_t peak = rig.machine->device(d).arena().peak_bytes();
      EXPECT_GT(peak, 0);
      EXPECT_LE(peak, rig.planned.devices[static_cast<size_t>(d)].bytes);
    }
  }
}

}  // namespace
}  // namespace jige::train
