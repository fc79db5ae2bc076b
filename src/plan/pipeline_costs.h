// What a training step costs: times and bytes of each block for one micro-batch, rates of links and
// optimizers. Measured or assumed; the planner, simulator and memory model read nothing else.
//
// A rate of infinity makes its transfers free. Times are seconds, or any one unit.
// Threads: values.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_order_greedy.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

struct BlockCost {
  double forward_s = 0;
  double recompute_s = 0;  // F again in the backward pass
  double backward_input_s = 0;
  double backward_weight_s = 0;
  int64_t parameters = 0;
  int64_t parameter_bytes = 0;  // as passes read them
  int64_t master_bytes = 0;     // of these, what they read as the optimizer keeps it
  int64_t gradient_bytes = 0;
  int64_t input_bytes = 0;    // the boundary before the block; 0 where it is token ids
  int64_t saved_bytes = 0;    // kept from F, or R, to W, beside the input
  int64_t pending_bytes = 0;  // kept from X to W
};

struct PipelineRates {
  double fetch_bytes_per_s = std::numeric_limits<double>::infinity();        // host to device
  double offload_bytes_per_s = std::numeric_limits<double>::infinity();      // device to host
  double link_bytes_per_s = std::numeric_limits<double>::infinity();         // device to device
  double link_latency_s = 0;                                                 // of every message
  double host_parameters_per_s = std::numeric_limits<double>::infinity();    // optimizer, a device
  double device_parameters_per_s = std::numeric_limits<double>::infinity();  // optimizer
};

struct PipelineCosts {
  std::vector<BlockCost> blocks;
  PipelineRates rates;
  int64_t state_bytes_per_parameter = 12;  // master and two moments in f32
  int64_t undo_bytes_per_parameter = 12;   // images of the state, for speculative clipping
  int64_t workspace_bytes = 0;             // of every device, always there
  int64_t staging_bytes = 0;  // of the host for every device, always there: its messages' way
  bool tied = false;  // the last block reads parameters of the first (plan/pipeline_schedule.h)
  // How much longer passes, and updates there, take on each device than said above: 2 is half as
  // fast. Empty: devices are alike.
  std::vector<double> device_paces;

  // REQUIRES: check_paces().
  double pace(int32_t device) const {
    return device_paces.empty() ? 1 : device_paces[static_cast<size_t>(device)];
  }
};

// Fails with kInvalidArgument when block counts differ or a number is negative or not finite where
// it must be, naming the field.
Status check_costs(const PipelineCosts& costs, int32_t block_count);
// Fails with kInvalidArgument where there are paces, but not one for each device.
Status check_paces(const PipelineCosts& costs, int32_t device_count);

// Sums over a range of blocks.
template <typename T>
T sum_blocks(const PipelineCosts& costs, BlockRange range, T BlockCost::*field) {
  T sum{};
  for (int32_t b = range.begin; b < range.end; ++b) {
    sum += costs.blocks[static_cast<size_t>(b)].*field;
  }
  return sum;
}

// Of the largest message between devices.
int64_t message_bytes_max(const PipelineCosts& costs);

// How long a task takes. REQUIRES: check_costs() and check_paces().
double task_seconds(const PipelineSchedule& schedule, const PipelineCosts& costs,
                    const PipelineTask& task);

// What generators reckon with when they move W into waits.
StageTimes stage_times(const PipelineOrder& stages, const PipelineCosts& costs, bool recompute);

// {"blocks": [{"forward_s": 0.01, …, "count": 24}, …], "rates": {"fetch_bytes_per_s": 5e10, …},
//  "state_bytes_per_parameter": 12, "workspace_bytes": 0, "staging_bytes": 0, "tied": false,
//  "device_paces": [1, 2.5]}; "count" repeats a block, absent rates are free, absent numbers of a
//  block are 0, and names that are not known are refused.
// Fails with kInvalidArgument or kCorrupt.
Result<PipelineCosts> costs_from_json(const Json& json, std::string_view where);
Json costs_to_json(const PipelineCosts& costs);

}  // namespace jige::plan
