// Sequences as the kernels of recurrent layers have them on a GPU. Threads: one at a time a stream.
#pragma once

#include <vector>

#include "kernels/cuda/recurrent_spans.h"
#include "ops/attention.h"
#include "tensor/device.h"

namespace jige::ops {

// Sends the sequences that have rows; ops of one step that have the same send them once.
cuda::RecurrentSpans send_recurrent_spans(Stream& stream,
                                          const std::vector<SequenceSpan>& sequences);

}  // namespace jige::ops
