// Sequences as the kernels of recurrent layers have them: where their states stand aside, and how a
// GPU gets them. Threads: one at a time a stream.
#pragma once

#include <vector>

#include "kernels/cuda/recurrent_spans.h"
#include "ops/attention.h"
#include "tensor/device.h"

namespace jige::ops {

// REQUIRES, with a spare row: one of `slots` rows, not the sequence's own, behind some of its rows.
void check_spare(const SequenceSpan& sequence, int64_t slots);
// The same sequence up to the place that its spare row keeps, and from there on.
inline SequenceSpan up_to_spare(SequenceSpan sequence) {
  sequence.row_count = sequence.spare_rows;
  return sequence;
}
inline SequenceSpan behind_spare(SequenceSpan sequence) {
  sequence.row_begin += sequence.spare_rows;
  sequence.row_count -= sequence.spare_rows;
  sequence.context_count += sequence.spare_rows;
  return sequence;
}

// Sends the sequences that have rows; ops of one step that have the same send them once.
cuda::RecurrentSpans send_recurrent_spans(Stream& stream,
                                          const std::vector<SequenceSpan>& sequences);

}  // namespace jige::ops
