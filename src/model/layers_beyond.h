// LayersBeyond: layers of a model that are computed elsewhere, behind those that are held here.
//
//   per forward: start() for every piece of its rows, as soon as the layers here are done with it;
//   finish() waits until all of them have come back. Other forwards may be started meanwhile.
//
// Pieces go through the layers in the order in which they were started, so a piece may hold rows of
// a sequence whose earlier rows are in the piece before, and come back in this order.
// Invariant: once a call has failed, layers are lost and every later one fails, until restore() has
// brought them back.
// Threads: one thread calls; the rows of a piece are read and written by others from start() until
// finish() has waited for it.
#pragma once

#include <span>

#include "base/result.h"
#include "ops/attention.h"
#include "tensor/view.h"

namespace jige::model {

class LayersBeyond {
 public:
  virtual ~LayersBeyond() = default;

  // Of how many rows the pieces are best that a forward of so many rows is cut into: with fewer,
  // those who hold layers work at once; with more, each reads its weights less often.
  virtual int64_t piece_rows(int64_t rows) const = 0;
  // Takes rows [n, stream columns] f32 in host memory through the layers, in place. `sequences`
  // cover the rows from row 0 on; they are not needed behind the call.
  virtual Status start(std::span<const ops::SequenceSpan> sequences, const TensorView& rows) = 0;
  // Waits until the first `count` of all pieces that were ever started have come back. Fails where
  // layers are lost, with 0 too. REQUIRES: so many were started.
  virtual Status finish(int64_t count) = 0;
  // As InferenceModel's, for the layers there: in front of pieces that are started later. REQUIRES:
  // those under way do not write `src` and do not use `dst`.
  virtual Status copy_block(int32_t src, int32_t dst) = 0;
  virtual Status copy_state(int32_t src, int32_t dst) = 0;
  virtual bool lost() const = 0;
  // Brings lost layers back, with nothing in their caches: begins to, or goes on with it; false: to
  // be asked again soon. Fails, with why they were lost, where they will not come back. REQUIRES:
  // lost(), and nobody waits for pieces any more.
  virtual Result<bool> restore() = 0;
};

}  // namespace jige::model
