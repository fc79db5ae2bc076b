// Orders found by playing the step forward in time: whenever a device is free it takes the best
// task that can start. Used where no closed form of the order is known, and to move W into waits.
//
// Greedy is not optimal in general. What is known of it, and tested: with equal F, X and W, P <= 8
// and P <= M <= 3P the best of three rules meets the lower bound of the V-shaped placement for 74
// of 77 sizes and misses it by at most two F on the rest (plan/pipeline_formula_test.cc). Threads:
// pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/pipeline_order.h"

namespace jige::plan {

// Seconds, or any unit, of one micro-batch in each stage.
struct StageTimes {
  std::vector<double> forward;          // of forward stages
  std::vector<double> backward_input;   // of backward stages; recomputation is part of it
  std::vector<double> backward_weight;  // of backward stages
  double link = 0;                      // of a message to another device
};

// The same time for every task of every stage.
StageTimes uniform_times(const PipelineOrder& stages, double seconds);

struct GreedyRule {
  // Of (stage, micro-batch) between F and W on a device, as large as its memory allows.
  int32_t in_flight_max = 1;
  bool forward_first = false;  // F before X, else X before F; W is last in any case
  bool keep_place = false;     // only the device's last stage may take the last place in flight
};

// F of late stages before F of early ones. Empty where the rule comes to a standstill, which
// `keep_place` prevents with two stages a device, and any rule with one.
// REQUIRES: forward and backward stages agree.
struct GreedyOrders {
  std::vector<DeviceOrder> devices;
  double step = 0;
};
std::optional<GreedyOrders> greedy_orders(const PipelineOrder& stages, DevicesAndMicroBatches size,
                                          const StageTimes& times, const GreedyRule& rule);

// The V shape: stages k and 2P-1-k on device k, so that the loss is where the first F began, under
// the activation memory of 1F1B (Qi et al., ZB-V). The best of three rules for equal times.
std::vector<DeviceOrder> zb_v_orders(const PipelineOrder& stages, DevicesAndMicroBatches size);

// Keeps each device's order of F and X, and runs W only where the device would wait, or at its end.
std::vector<DeviceOrder> fill_waits_with_weights(const PipelineOrder& order,
                                                 DevicesAndMicroBatches size,
                                                 const StageTimes& times);

// Keeps each device's order of F and X, and runs W of a micro-batch as late as possible before the
// device's next X: at most one is deferred.
std::vector<DeviceOrder> defer_weights_by_one(const std::vector<DeviceOrder>& devices);

}  // namespace jige::plan
