// Causal convolution over each sequence, every column by itself: see ops/causal_conv.h.
//
// A thread has one or two columns of a tile of rows (recurrent_spans.h), all of whose inputs are on
// the way at once. The thread of a sequence's first tile renews its state, which no other reads.
// Products are the CPU's chain to the bit; sums of weight gradients are those of parts of the
// tiles, as many as fill the GPU. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/causal_conv.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/recurrent_spans.h"

namespace jige::cuda {

// The CPU's arguments, but for spans, which are not read.
void causal_conv_forward(const LaunchStream& stream, const cpu::CausalConvForwardArgs& args,
                         const RecurrentSpans& spans);
void causal_conv_backward_input(const LaunchStream& stream, const cpu::CausalConvBackwardArgs& args,
                                const RecurrentSpans& spans);
int64_t causal_conv_backward_weight_scratch(const LaunchStream& stream,
                                            const cpu::CausalConvWeightArgs& args,
                                            const RecurrentSpans& spans);
// `scratch`: device memory of that many bytes.
void causal_conv_backward_weight(const LaunchStream& stream, const cpu::CausalConvWeightArgs& args,
                                 const RecurrentSpans& spans, void* scratch);

}  // namespace jige::cuda
