// ContextSplit: which rows of a micro-batch each of several ranks has where sequences are divided
// among them.
//
// The R rows of a micro-batch, sequences one behind the other, are steps of so many rows each (the
// last may have fewer), and the S steps are cut into 2 N chunks for N ranks; chunk c is steps
// [S c / 2N, S (c + 1) / 2N), and rank r has chunks r and 2N - 1 - r, in this order (zig-zag): of
// one long sequence, whose last tokens see most, all ranks have about the same work.
// Chunks know nothing of where sequences end: one may have parts of several.
//   rank            0  1  2  2  1  0        N = 3
//   chunk           0  1  2  3  4  5
// Threads: values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention.h"
#include "ops/linear_rows.h"

namespace jige::model {

using ops::RowRange;

// What passes of attention need of other ranks' rows.
enum class ContextNeed : uint8_t {
  kKeys,     // keys and values that own queries see
  kQueries,  // queries that see own keys, and what belongs to them
};

class ContextSplit {
 public:
  ContextSplit() = default;
  // Of sequences with so many rows each. REQUIRES: ranks >= 1, step >= 1.
  ContextSplit(std::span<const int32_t> counts, int ranks, int64_t step = 1);

  // The step with which sums over rows that are cut at chunks have the bits of those that are not:
  // one row with f32, in bf16 those that an instruction may take at once (ops/linear.h).
  static int64_t step_of(DType compute) { return compute == DType::kF32 ? 1 : 32; }
  // The most rows that a rank has of up to so many.
  static int64_t rows_max(int64_t row_count, int ranks, int64_t step = 1);
  // Whose chunk it is; chunks of further micro-batches are counted on.
  static int owner(int64_t chunk, int ranks);

  int ranks() const { return ranks_; }
  int64_t row_count() const { return row_count_; }
  int64_t chunk_count() const { return 2 * int64_t{ranks_}; }
  RowRange chunk(int64_t index) const;
  // Where a chunk's rows lie among its owner's.
  RowRange local_chunk(int64_t index) const;
  // The rows of the rank, two ranges; either may be empty.
  std::vector<RowRange> rows(int rank) const;
  // The parts of sequences that a rank has.
  std::vector<ops::SequencePiece> pieces(int rank) const;
  // The rows of all that a rank needs, its own ones among them: ascending, apart from one another.
  std::vector<RowRange> needed(int rank, ContextNeed need) const;
  // Those of them that are another rank's.
  std::vector<RowRange> given(int from, int to, ContextNeed need) const;

 private:
  int ranks_ = 1;
  int64_t step_ = 1;
  int64_t row_count_ = 0;
  std::vector<int32_t> counts_;
};

}  // namespace jige::model
