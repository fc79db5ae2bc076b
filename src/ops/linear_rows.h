// The weight gradient of a linear layer, of some of the weight's rows alone: what a training step
// computes where it leaves out others.
//
// A product takes the part of the work that its rows are of all. Bits: those of the same rows of
// linear_backward_weight().
// On CPUs. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/linear.h"
#include "tensor/device.h"

namespace jige::ops {

// Rows [begin, end).
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t count() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

// Adds a range that begins no earlier than those before it; to the last one where they meet.
void append_rows(std::vector<RowRange>& rows, const RowRange& range);

// linear_backward_weight() of these rows of grad_weight, which are ascending and apart; the others
// stay as they are.
void linear_backward_weight_rows(Stream& stream, const LinearBackwardWeight& args,
                                 std::vector<RowRange> rows);

}  // namespace jige::ops
