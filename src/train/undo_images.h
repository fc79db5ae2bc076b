// Copies of parameters and moments as they were before an update that may have to be taken back: 12
// bytes a parameter. Nothing is computed backwards, so what comes back has the bits it had.
//
// Threads: save() and restore() of different parameters may run at once.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/arena.h"
#include "train/optimizer.h"

namespace jige::train {

class UndoImages {
 public:
  // Room for all parameters, each in the arena of its node. Fails with kExhausted.
  static Result<UndoImages> create(std::span<Arena* const> arenas, const Optimizer& optimizer);

  // Of optimizer.params()[i].
  void save(Stream& stream, const Optimizer& optimizer, size_t i);
  void restore(Stream& stream, const Optimizer& optimizer, size_t i);

 private:
  std::vector<Tensor> images_;  // [3, count] f32: value, first and second moment
};

}  // namespace jige::train
