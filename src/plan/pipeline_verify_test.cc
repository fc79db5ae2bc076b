// The verifier against an engine that runs schedules with symbols instead of numbers, in random
// orders that queues and dependencies allow: what is accepted computes a step, and what a mutation
// breaks is found.
#include "plan/pipeline_verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/rng.h"
#include "plan/pipeline_peak.h"
#include "plan/pipeline_symbol_engine.h"
#include "plan/pipeline_test_support.h"

namespace jige::plan {
namespace {

using enum TaskKind;

std::string random_run(const PipelineSchedule& schedule, Rng& rng) {
  return SymbolEngine(schedule).run(rng);
}

TEST(PipelineVerify, AcceptsEveryGeneratedScheduleAndTheyRunInAnyOrder) {
  Rng rng(derive_key(1, "runs"));
  size_t count = 0, first = 0;
  for (const auto& [devices, micro_batches, blocks] :
       {std::tuple{1, 3, 1}, {2, 2, 1}, {2, 4, 2}, {3, 3, 1}, {3, 6, 2}, {4, 4, 1}}) {
    // Every sixth, so that one of the six sizes has each.
    const std::vector<ScheduleRequest> requests = all_requests(devices, micro_batches, blocks);
    for (size_t i = first++; i < requests.size(); i += 6) {
      const ScheduleRequest& request = requests[i];
      const PipelineSchedule schedule = generate(request);
      const Status verified = verify_pipeline(schedule);
      ASSERT_TRUE(verified) << request_name(request) << ": " << verified.error().message;
      ++count;
      EXPECT_EQ(random_run(schedule, rng), "") << request_name(request);
    }
  }
  EXPECT_GT(count, 150u);
}

TEST(PipelineVerify, AcceptsBackwardStagesThatDoNotNestInForwardStages) {
  Rng rng(derive_key(2, "runs"));
  for (const auto& [forward, backward] : {std::pair{3, 2}, {2, 3}, {1, 4}, {4, 1}, {5, 3}}) {
    for (const int32_t devices : {1, 2, 3}) {
      ScheduleRequest r = natural_request(ScheduleKind::kSPipe);
      r.devices = devices;
      r.micro_batches = 4;
      r.forward_stages = forward;
      r.backward_stages = backward;
      r.block_count = 17;
      const PipelineSchedule schedule = generate(r);
      const Status verified = verify_pipeline(schedule);
      ASSERT_TRUE(verified) << request_name(r) << ": " << verified.error().message;
      for (int i = 0; i < 5; ++i) EXPECT_EQ(random_run(schedule, rng), "") << request_name(r);
    }
  }
}

// Takes a task out; later indices move up, dependencies on it go.
PipelineSchedule without_task(const PipelineSchedule& schedule, int32_t gone) {
  PipelineSchedule out = schedule;
  out.tasks.erase(out.tasks.begin() + gone);
  for (PipelineTask& task : out.tasks) {
    std::erase(task.after, gone);
    for (int32_t& id : task.after) id -= id > gone;
  }
  return out;
}

PipelineSchedule with_copy(const PipelineSchedule& schedule, int32_t twice, int32_t place) {
  PipelineSchedule out = schedule;
  for (PipelineTask& task : out.tasks) {
    for (int32_t& id : task.after) id += id >= place;
  }
  PipelineTask copy = schedule.tasks[static_cast<size_t>(twice)];
  for (int32_t& id : copy.after) id += id >= place;
  out.tasks.insert(out.tasks.begin() + place, copy);
  return out;
}

const std::vector<PipelineSchedule>& specimens() {
  static const std::vector<PipelineSchedule> made = [] {
    std::vector<PipelineSchedule> list;
    const std::vector<ScheduleRequest> requests = all_requests(2, 2, 1);
    // A prime step keeps a mixture of generators and options.
    for (size_t i = 0; i < requests.size(); i += 13) list.push_back(generate(requests[i]));
    return list;
  }();
  return made;
}

TEST(PipelineVerify, AcceptsBaselinesWithoutPrefetchAndInLockstep) {
  Rng rng(derive_key(3, "runs"));
  for (const ScheduleKind kind : {ScheduleKind::kMobius, ScheduleKind::kSPipe}) {
    for (const int32_t devices : {1, 2, 3, 4}) {
      for (const int32_t backward : {2, 5}) {
        for (const WeightDefer defer : {WeightDefer::kNone, WeightDefer::kUnbounded}) {
          for (const bool lockstep : {false, true}) {
            const bool spipe = kind == ScheduleKind::kSPipe;
            if (!spipe && (lockstep || backward != 2)) continue;
            ScheduleRequest r = natural_request(kind);
            r.devices = devices;
            r.micro_batches = 2 * devices;
            r.block_count = 23;
            r.forward_stages = 2;
            r.backward_stages = backward;
            r.optimizer = OptimizerMode::kSync;
            r.resident_stages = 1;
            r.lockstep = lockstep;
            r.defer = defer;
            const PipelineSchedule schedule = generate(r);
            const Status verified = verify_pipeline(schedule);
            ASSERT_TRUE(verified) << request_name(r) << ": " << verified.error().message;
            EXPECT_EQ(random_run(schedule, rng), "");
          }
        }
      }
    }
  }
}

TEST(PipelineVerify, FindsEveryMissingTask) {
  for (const PipelineSchedule& schedule : specimens()) {
    for (int32_t i = 0; i < static_cast<int32_t>(schedule.tasks.size()); ++i) {
      EXPECT_FALSE(verify_pipeline(without_task(schedule, i)))
          << schedule.name << " without " << describe_task(schedule, i);
    }
  }
}

TEST(PipelineVerify, FindsEveryDoubledTask) {
  Rng rng(derive_key(3, "places"));
  for (const PipelineSchedule& schedule : specimens()) {
    const auto count = static_cast<int32_t>(schedule.tasks.size());
    for (int32_t i = 0; i < count; ++i) {
      const auto place = static_cast<int32_t>(rng.below(static_cast<uint64_t>(count) + 1));
      EXPECT_FALSE(verify_pipeline(with_copy(schedule, i, place)))
          << schedule.name << " with twice " << describe_task(schedule, i);
    }
  }
}

// The most stages whose parameters, or gradients, a device may hold at once.
int64_t stages_held(const PipelineSchedule& schedule, int64_t BlockCost::*what) {
  PipelineCosts costs;
  BlockCost cost;
  cost.*what = 1;
  costs.blocks.assign(static_cast<size_t>(schedule.block_count), cost);
  const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
  const HappensBefore order(*graph);
  std::vector<PipelineBuffer> buffers = pipeline_buffers(schedule, costs);
  for (PipelineBuffer& buffer : buffers) buffer.bytes = 1;
  return pipeline_peaks(schedule, *graph, order, buffers)->device_bytes_max();
}

TEST(PipelineVerify, FindsEveryMissingDependencyThatNothingElseImplies) {
  Rng rng(derive_key(4, "runs"));
  int32_t found = 0, room = 0, gradient_room = 0;
  for (const PipelineSchedule& schedule : specimens()) {
    PipelineSchedule mutant = schedule;
    for (size_t i = 0; i < schedule.tasks.size(); ++i) {
      for (size_t k = 0; k < schedule.tasks[i].after.size(); ++k) {
        auto& after = mutant.tasks[i].after;
        after = schedule.tasks[i].after;
        const int32_t on = after[k];
        after.erase(after.begin() + static_cast<int64_t>(k));
        if (!verify_pipeline(mutant)) {
          ++found;
          continue;
        }
        EXPECT_EQ(random_run(mutant, rng), "");
        const Result<PipelineGraph> graph = PipelineGraph::create(mutant);
        ASSERT_TRUE(graph);
        if (HappensBefore(*graph).before(on, static_cast<int32_t>(i))) continue;
        // What is left keeps room in memory, which budgets watch over.
        const TaskKind held_by = mutant.tasks[static_cast<size_t>(on)].kind;
        const bool gradients = mutant.tasks[i].kind == kBackwardInput;
        EXPECT_TRUE(gradients ? held_by == kGradientOffload
                              : mutant.tasks[i].kind == kFetch && held_by == kRelease)
            << describe_task(schedule, static_cast<int32_t>(i)) << " without #" << on;
        const auto what = gradients ? &BlockCost::gradient_bytes : &BlockCost::parameter_bytes;
        EXPECT_GT(stages_held(mutant, what), stages_held(schedule, what));
        ++(gradients ? gradient_room : room);
      }
      mutant.tasks[i].after = schedule.tasks[i].after;
    }
  }
  EXPECT_GT(found, 500);
  EXPECT_GT(room, 5);
  EXPECT_GT(gradient_room, 0);
}

TEST(PipelineVerify, WhatItAcceptsAfterRandomChangesStillRuns) {
  Rng rng(derive_key(5, "changes"));
  const std::vector<PipelineSchedule>& list = specimens();
  int32_t accepted = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    PipelineSchedule mutant = list[rng.below(list.size())];
    const auto pick = [&] { return static_cast<size_t>(rng.below(mutant.tasks.size())); };
    switch (rng.below(4)) {
      case 0:  // two tasks change places, with their dependencies or without
        std::swap(mutant.tasks[pick()], mutant.tasks[pick()]);
        break;
      case 1: {  // neighbours change places
        const size_t i = pick();
        if (i > 0) std::swap(mutant.tasks[i], mutant.tasks[i - 1]);
        break;
      }
      case 2:  // two change dependencies
        std::swap(mutant.tasks[pick()].after, mutant.tasks[pick()].after);
        break;
      default: {  // a field changes
        PipelineTask& task = mutant.tasks[pick()];
        if (rng.below(2) == 0 && task.micro_batch >= 0) {
          task.micro_batch = 1 - task.micro_batch;
        } else if (task.device >= 0 && mutant.device_count > 1) {
          task.device = 1 - task.device;
        }
      }
    }
    if (!verify_pipeline(mutant)) {
      ++refused;
      continue;
    }
    ++accepted;
    for (int run = 0; run < 3; ++run) ASSERT_EQ(random_run(mutant, rng), "") << to_text(mutant);
  }
  EXPECT_GT(accepted, 25);
  EXPECT_GT(refused, 1500);
}

TEST(PipelineVerify, ShowsTheTasksOfACircle) {
  ScheduleRequest r{
      .kind = ScheduleKind::kGPipe, .devices = 2, .micro_batches = 2, .block_count = 2};
  PipelineSchedule schedule = generate(r);
  const auto task_of = [&](TaskKind kind, int32_t device, int32_t m) {
    const auto found = std::ranges::find_if(schedule.tasks, [&](const PipelineTask& task) {
      return task.kind == kind && task.device == device && task.micro_batch == m;
    });
    return static_cast<int32_t>(found - schedule.tasks.begin());
  };
  schedule.tasks[static_cast<size_t>(task_of(kForward, 0, 1))].after.push_back(
      task_of(kBackwardWeight, 1, 0));
  const Status verified = verify_pipeline(schedule);
  ASSERT_FALSE(verified);
  EXPECT_EQ(verified.error().code, Code::kCorrupt);
  for (const char* part : {"F block 0, micro-batch 1 on device 0", "W block 1, micro-batch 0",
                           "send-activation boundary 1, micro-batch 1, to device 1"}) {
    EXPECT_NE(verified.error().message.find(part), std::string::npos) << verified.error().message;
  }
}

// A file may hold a circle of any length: it is found in time, and its beginning is shown.
TEST(PipelineVerify, ShowsTheBeginningOfALongCircle) {
  PipelineSchedule schedule{.micro_batch_count = 200'000};
  for (int32_t m = 0; m < schedule.micro_batch_count; ++m) {
    schedule.tasks.push_back({.kind = kForward, .device = 0, .blocks = {0, 1}, .micro_batch = m});
  }
  schedule.tasks.front().after = {schedule.micro_batch_count - 1};
  const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
  ASSERT_FALSE(graph);
  EXPECT_LT(graph.error().message.size(), 10'000u);
  EXPECT_NE(graph.error().message.find("199960 others"), std::string::npos);
}

TEST(PipelineVerify, NamesWhatIsMissing) {
  ScheduleRequest r = natural_request(ScheduleKind::kSPipe);
  r.devices = 2;
  r.micro_batches = 2;
  r.backward_stages = 2;
  r.block_count = 4;
  const PipelineSchedule schedule = generate(r);
  std::map<TaskKind, std::string> message;
  for (int32_t i = 0; i < static_cast<int32_t>(schedule.tasks.size()); ++i) {
    const Status verified = verify_pipeline(without_task(schedule, i));
    ASSERT_FALSE(verified);
    message.try_emplace(schedule.tasks[static_cast<size_t>(i)].kind, verified.error().message);
  }
  EXPECT_EQ(message[kForward], "no task runs F of block 0 for micro-batch 0");
  EXPECT_NE(message[kCheckpointSend].find("no task is send-checkpoint"), std::string::npos);
  EXPECT_NE(message[kFetch].find("gives back what was not fetched"), std::string::npos)
      << message[kFetch];
  EXPECT_NE(message[kGradientOffload].find("takes the gradient of block"), std::string::npos);
  EXPECT_NE(message[kOptimizerStep].find("no optimizer step updates block"), std::string::npos);
}

}  // namespace
}  // namespace jige::plan
