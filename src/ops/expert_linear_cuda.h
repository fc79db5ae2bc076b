// The ops of expert_linear.h on a GPU, which call these once they checked their arguments.
//
// How many rows an expert has is never asked for: it stays on the GPU, so nothing waits.
// Threads: asynchronous on the stream, which is that of a GPU.
#pragma once

#include "ops/expert_linear.h"

namespace jige::ops {

void cuda_expert_product(Stream& stream, const ExpertProduct& args);
bool cuda_expert_gated_forward(Stream& stream, const ExpertGated& args);
void cuda_expert_weight_gradient(Stream& stream, const ExpertWeightGradient& args);

}  // namespace jige::ops
