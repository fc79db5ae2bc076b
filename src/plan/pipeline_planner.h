// Chooses how to train: schedule, stages of each device, micro-batches, where parameters and the
// optimizer are, recomputation, out-of-order backward, partition. A pure function of costs, devices
// and budgets.
//
//   TrainPlanRequest request{.costs = …, .devices = 4, .micro_batches = {8},
//                            .budget = {.device_bytes = 8 << 30, .host_bytes = 64 << 30}};
//   JIGE_TRY(const TrainPlan plan, plan_train(request));
//
// Exhaustive: every combination that the request allows is timed; the fastest per micro-batch whose
// peak (plan/pipeline_peak.h) fits the budgets wins, the first in the order of train_candidates()
// on a tie. Where devices have unequal memory, a candidate that asks too much of one is cut again
// (plan/pipeline_cuts.h), and counts with what it takes then; what is chosen for unequal devices is
// cut as is fastest near by. Peaks are worst cases over all
// timings, so a plan that is accepted runs within its budgets. Predicted times are simulated, never
// measured. Threads: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/pipeline_costs.h"
#include "plan/pipeline_generate.h"
#include "plan/pipeline_peak.h"
#include "plan/pipeline_schedule.h"
#include "plan/pipeline_simulate.h"

namespace jige::plan {

// An empty list allows everything.
struct TrainPlanRequest {
  PipelineCosts costs;
  int32_t devices = 1;
  std::vector<int32_t> micro_batches;  // at least one; the costs are those of one micro-batch
  MemoryBudget budget;
  // Without a choice an asynchronous optimizer speculates and the others wait for the norm, so that
  // every plan can take back a step whose gradients are not finite.
  std::optional<ClipMode> clip;
  std::vector<ScheduleKind> kinds;
  std::vector<OptimizerMode> optimizers;  // everything: device and async; sync is never faster
  std::vector<bool> recompute;
  std::vector<bool> host_parameters;
  std::vector<int32_t> forward_stages;   // of a device; everything: 1 to stages_max
  std::vector<int32_t> backward_stages;  // spipe's
  int32_t stages_max = 8;
};

// All combinations, with partitions, in a fixed order. Requests that contradict themselves are left
// out. Fails with kInvalidArgument when nothing is left, with the reason of the first.
Result<std::vector<ScheduleRequest>> train_candidates(const TrainPlanRequest& request);

// A candidate's predictions.
struct TrainPrediction {
  double step_s = 0;
  double seconds_per_micro_batch = 0;
  double bubble = 0;  // idle part of all devices' time
  double tail_s = 0;  // behind the last pass: exposed optimizer and transfers
  std::vector<DeviceTime> devices;
  std::vector<int64_t> bytes_of_devices;
  int64_t device_bytes = 0;  // of the fullest device
  int64_t host_bytes = 0;
  int64_t total_bytes = 0;  // of all devices and the host
};

// Generates, times and measures the worst-case memory of one candidate.
Result<TrainPrediction> predict_candidate(const TrainPlanRequest& request,
                                          const ScheduleRequest& candidate);

// The best of one kind of schedule, or why it does not run.
struct KindOutcome {
  ScheduleKind kind = ScheduleKind::kGPipe;
  std::optional<ScheduleRequest> best;
  TrainPrediction prediction;  // of `best`
  std::string refusal;         // without `best`
};

struct TrainPlan {
  ScheduleRequest choice;
  PipelineSchedule schedule;  // verified
  TrainPrediction prediction;
  std::string binding;  // what keeps the step from being shorter
  size_t candidate_count = 0;
};

// How far a search is, called behind each of its parts: every candidate is timed, then, the fastest
// first, its memory is looked at until one fits. So it may end before `total`.
using PlanListener = std::function<void(int64_t done, int64_t total)>;

// Fails with kInvalidArgument on costs, counts or budgets that make no sense, and with kExhausted
// when no candidate fits the budgets: the message names the one that comes closest and says which
// budget to raise to how many bytes.
Result<TrainPlan> plan_train(const TrainPlanRequest& request, const PlanListener& listener = {});

// plan_train for each kind alone, for tables. Fails with kInvalidArgument as plan_train.
Result<std::vector<KindOutcome>> plan_each_kind(const TrainPlanRequest& request,
                                                const PlanListener& listener = {});

}  // namespace jige::plan
