// Attention over flat sequences on a GPU: the arguments of ops/attention.h for kernels/cuda, and
// the sequences cut into tiles there. Threads: asynchronous on the stream, which is a GPU's.
#pragma once

#include "ops/attention.h"

namespace jige::ops {

// REQUIRES: the arguments are checked.
void attention_forward_on_gpu(Stream& stream, const AttentionForward& args);
void attention_backward_on_gpu(Stream& stream, const AttentionBackward& args);

}  // namespace jige::ops
