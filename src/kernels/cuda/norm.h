// RMSNorm and LayerNorm as ops/norm.h says. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/norm.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

void norm_forward(const LaunchStream& stream, const cpu::NormForwardArgs& args, int64_t rows,
                  bool layer);
void norm_backward_input(const LaunchStream& stream, const cpu::NormBackwardInputArgs& args,
                         int64_t rows, bool layer);
// Sums of parts of the tokens go to `scratch`, of as many bytes as the former function says; a
// second kernel adds them in ascending order.
int64_t norm_backward_weight_scratch(const LaunchStream& stream,
                                     const cpu::NormBackwardWeightArgs& args, bool layer);
void norm_backward_weight(const LaunchStream& stream, const cpu::NormBackwardWeightArgs& args,
                          bool layer, void* scratch);

}  // namespace jige::cuda
