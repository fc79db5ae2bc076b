// What the blocks of a model cost in training, for the planner: exact bytes from the model's own
// size functions, times from operation counts and an assumed rate. Nothing is measured.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "formats/model_config.h"
#include "plan/pipeline_costs.h"
#include "tensor/dtype.h"

namespace jige::cli {

struct ModelCostOptions {
  int64_t micro_batch_tokens = 2048;
  int64_t context = 0;  // length of a sequence; 0: the model's, but the micro-batch at most
  DType compute = DType::kBF16;
  double device_flops = 4e13;  // operations per second that a device achieves
};

// Block by block: embedding, layers, head. Parameters in the type of the matrix products, gradients
// in f32, boundaries in f32. X and W each count as many operations as F. Parameters that two blocks
// share are updated once, with the first. Fails as model::Architecture::create.
Result<plan::PipelineCosts> model_costs(const formats::ModelConfig& config,
                                        const ModelCostOptions& options);

}  // namespace jige::cli
