// Softmax cross-entropy of rows of logits with its gradient: kernels/cpu/cross_entropy.h on a GPU.
//
// A block takes a row. It reads the row once for the largest logit and the sum of exponentials,
// each thread for elements of its own, in f32, and their results in a fixed order; then again for
// the gradient, what fits from shared memory and the rest backwards, as it is in the cache.
// Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/cross_entropy.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

// `exponentials` and `capped` are not used. A target that is not of the vocabulary makes the loss
// and the gradient of its row NaN.
void cross_entropy(const LaunchStream& stream, const cpu::CrossEntropyArgs& args, int64_t rows);

}  // namespace jige::cuda
