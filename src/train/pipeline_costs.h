// What a model's blocks cost on the pipeline executor: exact bytes, from the functions that size
// its buffers, and times from operation counts and an assumed rate.
//
// Bytes are those of train/pipeline_executor.h: a device's copy of a block (model/weights_copy.h),
// f32 gradients and boundaries, what passes keep, and as workspace of a device the largest scratch
// of a task, the rope table and the ids of all micro-batches; for messages between GPUs, what
// train/boundary_carrier.h takes.
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "model/architecture.h"
#include "model/weights.h"
#include "plan/pipeline_costs.h"

namespace jige::train {

struct PipelineCostOptions {
  int64_t micro_batch_tokens = 2048;
  int32_t micro_batches = 1;
  int64_t context = 0;         // length of a sequence; 0: the model's, the micro-batch at most
  double device_flops = 1e11;  // operations per second that a device achieves, assumed
  plan::PipelineRates rates;
  bool several_gpus = false;  // between which messages pass through the host
};

// X and W each count as many operations as F. Parameters that two blocks share are updated once,
// with the first.
plan::PipelineCosts pipeline_costs(const model::Architecture& architecture,
                                   const model::WeightsOptions& weights,
                                   const PipelineCostOptions& options);

}  // namespace jige::train
