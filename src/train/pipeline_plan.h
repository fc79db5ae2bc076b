// From what a run asks of its pipeline to a schedule that fits: costs of the model, budgets, and
// the planner's choice, or a schedule that was given.
//
// Times are measured on a few of the model's blocks (train/measured_costs.h), or counted operations
// at an assumed rate; results do not depend on them, only how soon they come.
// Clipping: every schedule of a run can take a step back as a whole (gradients that are not
// finite), so updates either wait for the norm (`exact`) or keep images (`speculate`). Where it is
// left open, an asynchronous optimizer speculates and the others wait. Threads: one; measuring has
// its own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/architecture.h"
#include "model/weights.h"
#include "plan/pipeline_planner.h"
#include "tensor/device.h"

namespace jige::train {

// Where the times come from that a plan is made by: counted operations at an assumed rate, measured
// here beforehand, or measured before and kept in a plan.
enum class TimesSource : uint8_t { kAssumed, kMeasured, kGiven };

// Empty lists allow everything.
struct PipelineOptions {
  int32_t devices = 1;
  int64_t device_bytes = 0;        // memory of each device; 0: no limit
  std::vector<int64_t> own_bytes;  // of each device, where they are unequal; else empty
  int64_t host_bytes = 0;          // of the host; 0: no limit
  int64_t total_bytes = 0;         // of all devices and the host, which share it; 0: no limit
  std::vector<plan::ScheduleKind> kinds;
  std::vector<plan::OptimizerMode> optimizers;
  std::vector<bool> recompute;
  std::vector<bool> host_parameters;
  std::vector<int32_t> forward_stages, backward_stages;
  std::optional<plan::ClipMode> clip;
  // A schedule made before (`jige plan train -o`), instead of all the choices above; `source` names
  // its file.
  std::optional<plan::PipelineSchedule> schedule;
  std::string source;
  TimesSource times = TimesSource::kAssumed;
  // Of the given schedule, which must be of the same model; with kGiven its times count.
  std::optional<plan::PipelineCosts> costs;
  std::string trace_path;  // a Chrome trace of the first steps; empty: none
  int64_t trace_steps = 10;
  // Called in a queue's thread before a task of a step runs; a failure is the task's. For tests of
  // devices that fail: no flag leads here.
  std::function<Status(int64_t step, int32_t task)> before_task;

  // Of a device; 0: no limit.
  int64_t budget_of(int32_t device) const {
    return own_bytes.empty() ? device_bytes : own_bytes[static_cast<size_t>(device)];
  }
};

// What decides a plan besides the options.
struct PipelineDemand {
  const model::Architecture& architecture;
  const model::WeightsOptions& weights;
  int64_t micro_batch_tokens = 0;
  int32_t micro_batches = 1;  // of the fullest step
  double device_flops = 0;    // known beforehand, for where tasks are not measured; 0: assumed
  // Of which the devices are parts, in turns; none: they are this processor's.
  std::vector<Device*> gpus = {};
  std::vector<int64_t> device_bytes = {};  // what each device has of its GPU; empty: no limit
  int compute_threads = 1;                 // of each device
  int optimizer_threads = 1;
  // Where tasks are measured, in steps; returns whether to go on.
  std::function<bool(int64_t done, int64_t total)> measure_progress = {};
};

struct PipelinePlan {
  plan::PipelineSchedule schedule;  // verified, within the budgets
  plan::PipelineCosts costs;
  TimesSource times = TimesSource::kAssumed;
  double step_s = 0;  // predicted
  double bubble = 0;
  std::string binding;  // what keeps the step from being shorter; empty for a given schedule
  std::vector<int64_t> device_bytes;  // planned peak of each device
  int64_t host_bytes = 0;
  std::vector<int> gpus;  // of which the devices are parts, in turns; none: the processor's
  int64_t total_bytes() const;
};

// Fails with kInvalidArgument on demands that contradict themselves (more stages than blocks, fewer
// micro-batches than devices, a schedule or costs of another model), with kExhausted when nothing
// fits the budgets, saying which one to raise to what.
Result<PipelinePlan> plan_pipeline(const PipelineOptions& options, const PipelineDemand& demand);

}  // namespace jige::train
