// ContextExchange: how attention gets rows of other ranks where sequences are divided among them
// (context_split.h). What moves them is not the model's.
//
// Threads: one thread at a time; all ranks call the same in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/context_split.h"
#include "ops/attention.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::model {

// A tensor of this rank's rows, and the memory of the same of all rows, which is contiguous.
struct DividedRows {
  TensorView own;    // [T, C]
  TensorView whole;  // [R, C]
};

class ContextExchange {
 public:
  virtual ~ContextExchange() = default;
  virtual int64_t row_count() const = 0;  // R
  // Of this rank, in ascending order of its rows.
  virtual const std::vector<ops::SequencePiece>& pieces() const = 0;
  // Puts own rows where they belong among all, and beside them those of other ranks that are
  // needed; the rest stays as it is. Waits for the stream and for other ranks. After an error
  // (which who made the exchange knows) rows are whatever they are.
  virtual void bring(Stream& stream, ContextNeed need, std::span<const DividedRows> tensors) = 0;
};

}  // namespace jige::model
