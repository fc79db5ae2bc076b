// What the tasks of a training step take on this machine, measured: a few blocks of a model run by
// a real schedule, one block a stage, on as many logical devices as the run will have, so that
// devices which share processors and memory slow one another down as they will then.
//
//   JIGE_TRY(costs, measure_costs(architecture, counted, {.devices = 2, .micro_batch_tokens =
//   2048}));
//
// Bytes stay as they were counted. The embedding and the head have times of their own; a layer has
// its operations times the median seconds an operation took in the layers that ran. Several GPUs
// have a pace each: what its layers took beside that median; less than a tenth between the fastest
// and the slowest is taken for chance. Fetches, gradient offloads, messages and updates become
// rates: all bytes or parameters over all time.
// Updates on a device are taken to be as fast as on the host, as both are this machine's
// processors; on a GPU as was assumed. Threads: one; the schedule has its own.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/architecture.h"
#include "plan/pipeline_costs.h"
#include "plan/pipeline_schedule.h"
#include "tensor/dtype.h"
#include "train/queue_runner.h"

namespace jige::train {

struct MeasureOptions {
  int32_t devices = 1;
  int64_t micro_batch_tokens = 2048;
  int64_t context = 2048;  // length of a sequence
  DType compute = DType::kF32;
  // Of which the devices are parts, in turns; none: they are this processor's.
  std::vector<Device*> gpus;
  std::vector<int64_t> device_bytes = {};  // what each device may take; empty: no limit
  int compute_threads = 1;                 // of each device
  int optimizer_threads = 1;
  int steps = 3;  // that count, after one that warms up
  // In steps; returns whether to go on.
  std::function<bool(int64_t done, int64_t total)> progress = {};
};

// The schedule that is measured: of at most three blocks a device, each a stage, the embedding
// first and the head last. Parameters are on the host, so that everything is moved that can be.
// REQUIRES: counted has at least three blocks.
Result<plan::PipelineSchedule> measuring_schedule(const plan::PipelineCosts& counted,
                                                  int32_t devices);

// Whose devices were measured: those of a run, which may have more than the schedule.
struct MeasuredDevices {
  int32_t devices = 1;
  size_t gpu_count = 0;  // of which they are parts, in turns
};
// `counted` with the times that the tasks of such a schedule took, in each of `steps`; the rate of
// updates on devices is that of the host's.
// REQUIRES: every stage is one block; the schedule's first blocks and its last one are the model's.
plan::PipelineCosts costs_from_spans(plan::PipelineCosts counted,
                                     const plan::PipelineSchedule& schedule,
                                     std::span<const std::vector<TaskSpan>> steps,
                                     const MeasuredDevices& measured = {});

// Counts stay when the model has adapters: what a random model would measure is not what they cost.
// Fails with kExhausted, with kCancelled where the listener says so, and as the executor does.
Result<plan::PipelineCosts> measure_costs(const model::Architecture& architecture,
                                          const plan::PipelineCosts& counted,
                                          const MeasureOptions& options);

}  // namespace jige::train
