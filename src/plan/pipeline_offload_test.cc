// Offloaded training against the cost model: when fetches and the optimizer on the host disappear
// behind the passes, and what each mechanism alone is worth.
//
// phi: parameters of a block, t: tokens of a micro-batch, T = M t tokens of a step, F: operations a
// second, B: bytes a second from the host, R: parameters a second of the host's optimizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "plan/pipeline_test_support.h"

namespace jige::plan {
namespace {

constexpr int32_t kDevices = 4, kMicroBatches = 8, kBlocks = 24;
constexpr double kPhi = 4e8, kFlops = 45e12, kFetchRate = 10e9, kOptimizer = 0.475e9;

PipelineCosts offload_costs(double tokens_per_step) {
  const double forward_s = 2 * kPhi * (tokens_per_step / kMicroBatches) / kFlops;
  PipelineCosts costs;
  costs.blocks.assign(kBlocks, {.forward_s = forward_s,
                                .recompute_s = forward_s,
                                .backward_input_s = forward_s,
                                .backward_weight_s = forward_s,
                                .parameters = static_cast<int64_t>(kPhi),
                                .parameter_bytes = static_cast<int64_t>(2 * kPhi),
                                .gradient_bytes = static_cast<int64_t>(2 * kPhi)});
  costs.rates = {.fetch_bytes_per_s = kFetchRate,
                 .offload_bytes_per_s = kFetchRate,
                 .host_parameters_per_s = kOptimizer};
  return costs;
}

ScheduleRequest offloaded(ScheduleKind kind, OptimizerMode optimizer) {
  ScheduleRequest r = natural_request(kind);
  r.devices = kDevices;
  r.micro_batches = kMicroBatches;
  r.block_count = kBlocks;
  r.forward_stages = 2;
  r.backward_stages = kind == ScheduleKind::kSPipe ? 6 : 2;
  r.host_parameters = r.recompute = true;
  r.resident_stages = kind == ScheduleKind::kInterleaved ? 3 : 2;
  r.optimizer = optimizer;
  return r;
}

struct Outcome {
  double step_s = 0;
  double tail_s = 0;
  double transfer_s = 0;  // of the device that waits longest
};

Outcome run(const ScheduleRequest& request, const PipelineCosts& costs) {
  const PipelineSchedule schedule = generate(request);
  const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
  const PipelineTimes times = time_tasks(schedule, *graph, costs);
  Outcome outcome{times.step_s, tail_seconds(schedule, times), 0};
  for (const DeviceTime& device : split_device_time(schedule, *graph, times)) {
    outcome.transfer_s = std::max(outcome.transfer_s, device.transfer_s);
  }
  return outcome;
}

TEST(PipelineOffload, FetchesDisappearFromFByBTokensOn) {
  const double threshold = kFlops / kFetchRate;
  const double stage_fetch_s = 3 * 2 * kPhi / kFetchRate;  // a forward stage has three blocks
  for (const double factor : {0.5, 0.8, 0.95, 1.05, 1.5, 4.0}) {
    PipelineCosts costs = offload_costs(factor * threshold);
    costs.rates.offload_bytes_per_s = costs.rates.host_parameters_per_s =
        std::numeric_limits<double>::infinity();
    const Outcome outcome = run(offloaded(ScheduleKind::kSPipe, OptimizerMode::kAsync), costs);
    // The first fetch cannot hide; the second hides behind the first stage's passes.
    const double exposed = outcome.transfer_s - stage_fetch_s;
    if (factor > 1) {
      EXPECT_NEAR(exposed, 0, 1e-9) << factor;
    } else {
      EXPECT_GT(exposed, 0.9 * (1 - factor) * stage_fetch_s) << factor;
    }
  }
}

TEST(PipelineOffload, TheExposedOptimizerFollowsTheCostModel) {
  const double parameters = kPhi * kBlocks;
  const double stages = 6;
  for (const double tokens : {4e3, 8e3, 16e3, 24e3, 48e3}) {
    PipelineCosts costs = offload_costs(tokens);
    costs.rates.fetch_bytes_per_s = costs.rates.offload_bytes_per_s =
        std::numeric_limits<double>::infinity();
    const Outcome outcome = run(offloaded(ScheduleKind::kSPipe, OptimizerMode::kAsync), costs);
    // All updates of a device, less what its later backward stages cover; one stage at least.
    const double updates_s = parameters / kDevices / kOptimizer;
    const double backward_s = 6 * parameters * tokens / kDevices / kFlops;
    const double expected =
        std::max(updates_s - backward_s * (stages - 1) / stages, updates_s / stages);
    EXPECT_NEAR(outcome.tail_s, expected, 0.02 * updates_s) << tokens;
    const Outcome sync = run(offloaded(ScheduleKind::kSPipe, OptimizerMode::kSync), costs);
    EXPECT_NEAR(sync.tail_s, updates_s, 1e-9);
  }
}

TEST(PipelineOffload, WhatScheduleAndOptimizerBuyApart) {
  const auto step = [](ScheduleKind kind, OptimizerMode optimizer, double tokens) {
    return run(offloaded(kind, optimizer), offload_costs(tokens)).step_s;
  };
  using enum ScheduleKind;
  using enum OptimizerMode;
  for (const double tokens : {8e3, 16e3, 32e3}) {
    const double spipe = step(kSPipe, kAsync, tokens);
    // Whole systems, as they are compared: an asynchronous optimizer against synchronous ones.
    EXPECT_GE(step(kMobius, kSync, tokens), 1.25 * spipe) << tokens;
    EXPECT_GE(step(kInterleaved, kSync, tokens), 1.25 * spipe) << tokens;
    // The schedule alone.
    EXPECT_GT(step(kMobius, kAsync, tokens), spipe) << tokens;
    EXPECT_GT(step(kInterleaved, kAsync, tokens), spipe) << tokens;
    EXPECT_GT(step(kMobius, kSync, tokens), step(kSPipe, kSync, tokens)) << tokens;
  }
}

TEST(PipelineOffload, InterleavingFetchesStagesAgainForEveryGroupOfMicroBatches) {
  const auto fetches = [](ScheduleKind kind, int32_t micro_batches) {
    ScheduleRequest r = offloaded(kind, OptimizerMode::kAsync);
    r.forward_stages = r.backward_stages = 6;
    r.micro_batches = micro_batches;
    return std::ranges::count(generate(r).tasks, TaskKind::kFetch, &PipelineTask::kind);
  };
  // Breadth-first orders fetch a stage once a pass, less what stays at the turn, whatever M is.
  EXPECT_EQ(fetches(ScheduleKind::kMobius, 8), kDevices * (2 * 6 - 2));
  EXPECT_EQ(fetches(ScheduleKind::kMobius, 32), kDevices * (2 * 6 - 2));
  EXPECT_GE(fetches(ScheduleKind::kInterleaved, 8), 1.5 * kDevices * (2 * 6 - 2));
  EXPECT_GT(fetches(ScheduleKind::kInterleaved, 32), 3 * fetches(ScheduleKind::kInterleaved, 8));
}

TEST(PipelineOffload, ExactClippingCostsWhatTheAsyncOptimizerWon) {
  const PipelineCosts costs = offload_costs(16e3);
  ScheduleRequest r = offloaded(ScheduleKind::kSPipe, OptimizerMode::kAsync);
  const double free = run(r, costs).step_s;
  r.clip = ClipMode::kSpeculate;
  EXPECT_EQ(run(r, costs).step_s, free);
  r.clip = ClipMode::kExact;
  const double exact = run(r, costs).step_s;
  EXPECT_EQ(exact, run(offloaded(ScheduleKind::kSPipe, OptimizerMode::kSync), costs).step_s);
  EXPECT_GT(exact, free);
}

}  // namespace
}  // namespace jige::plan
