// What the pipeline tests share: costs with round numbers, generated and timed schedules, a list of
// requests that covers every generator and option.
//
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/pipeline_costs.h"
#include "plan/pipeline_generate.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_schedule.h"
#include "plan/pipeline_simulate.h"
#include "plan/pipeline_verify.h"

namespace jige::plan {

struct UnitCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double recompute = 0;
};

// Every block costs the same time; transfers and optimizers are free; bytes are small and distinct.
inline PipelineCosts unit_costs(int32_t block_count, const UnitCosts& unit = {}) {
  PipelineCosts costs;
  for (int32_t b = 0; b < block_count; ++b) {
    costs.blocks.push_back({.forward_s = unit.forward,
                            .recompute_s = unit.recompute,
                            .backward_input_s = unit.backward_input,
                            .backward_weight_s = unit.backward_weight,
                            .parameters = 10 + b,
                            .parameter_bytes = 2 * (10 + b),
                            .gradient_bytes = 2 * (10 + b),
                            .input_bytes = b == 0 ? 0 : 7,
                            .saved_bytes = 31,
                            .pending_bytes = 5});
  }
  return costs;
}

inline PipelineSchedule generate(const ScheduleRequest& request) {
  Result<PipelineSchedule> schedule = generate_pipeline(request);
  EXPECT_TRUE(schedule) << (schedule ? "" : schedule.error().message);
  return schedule ? std::move(*schedule) : PipelineSchedule{};
}

inline double step_seconds(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
  EXPECT_TRUE(graph) << (graph ? "" : graph.error().message);
  return graph ? time_tasks(schedule, *graph, costs).step_s : -1;
}

inline std::string request_name(const ScheduleRequest& r) {
  return fmt::format(
      "{} P={} M={} blocks={} V={}/{} host={} R={} optimizer={} clip={} tied={} ff={} defer={}",
      schedule_name(r.kind), r.devices, r.micro_batches, r.block_count, r.forward_stages,
      r.backward_stages, r.host_parameters, r.recompute, optimizer_name(r.optimizer),
      clip_name(r.clip), r.tied, r.fast_forward, defer_name(r.defer));
}

// Every generator with every option that it takes, at small sizes. `blocks_per_stage` > 1 gives
// stages of several blocks.
inline std::vector<ScheduleRequest> all_requests(int32_t devices, int32_t micro_batches,
                                                 int32_t blocks_per_stage = 1) {
  std::vector<ScheduleRequest> requests;
  for (int k = 0; k < kScheduleKindCount; ++k) {
    ScheduleRequest base = natural_request(static_cast<ScheduleKind>(k));
    base.devices = base.kind == ScheduleKind::kZeroOffload ? 1 : devices;
    base.micro_batches = micro_batches;
    if (base.kind == ScheduleKind::kSPipe) base.backward_stages = 3;
    base.block_count =
        base.devices * std::max(base.forward_stages, base.backward_stages) * blocks_per_stage +
        blocks_per_stage - 1;
    for (const OptimizerMode optimizer :
         {OptimizerMode::kDevice, OptimizerMode::kSync, OptimizerMode::kAsync}) {
      for (const ClipMode clip : {ClipMode::kNone, ClipMode::kExact, ClipMode::kSpeculate}) {
        for (const bool host : {false, true}) {
          for (const bool recompute : {false, true}) {
            for (int order = 0; order < 4; ++order) {
              ScheduleRequest r = base;
              r.optimizer = optimizer;
              r.clip = clip;
              r.host_parameters = host;
              r.recompute = recompute;
              r.resident_stages = r.kind == ScheduleKind::kInterleaved ? 3 : 2;
              r.fast_forward = order == 1;
              r.defer = order == 2   ? WeightDefer::kOne
                        : order == 3 ? WeightDefer::kUnbounded
                                     : WeightDefer::kNone;
              if (pipeline_stages(r)) requests.push_back(r);
            }
          }
        }
      }
    }
  }
  // Every third also with a tied head, where that can be.
  for (size_t i = 0, count = requests.size(); i < count; i += 3) {
    ScheduleRequest tied = requests[i];
    tied.tied = true;
    if (generate_pipeline(tied)) requests.push_back(tied);
  }
  return requests;
}

}  // namespace jige::plan
