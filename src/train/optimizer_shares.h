// OptimizerShares: which part of the trained parameters' optimizer state each of several ranks
// holds (ZeRO stage 1: Rajbhandari et al., 2020).
//
// The parameters of a node stand one behind the other in its gradient memory (weights.h), each at a
// whole cache line. This line of numbers, without the gradient of a tied head, is cut into as many
// parts as there are ranks, at whole cache lines; part r, which may be empty, begins at
//   ceil(lines * r / ranks)
// or, inside a parameter whose moments stand in blocks (ops/moments.h), at the next border of one,
// at most at the parameter's end. So a rank's share of a node is one piece of memory, to send and
// to receive, whatever the borders of parameters; and no rank holds more than rank 0, but for parts
// of a block. Threads: a value; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/weights.h"
#include "ops/moments.h"

namespace jige::train {

// Elements [begin, begin + count).
struct ElementRange {
  int64_t begin = 0;
  int64_t count = 0;

  int64_t end() const { return begin + count; }
  bool operator==(const ElementRange&) const = default;
};

ElementRange overlap(const ElementRange& a, const ElementRange& b);

class OptimizerShares {
 public:
  // `params` in graph order, with or without memory. REQUIRES: 1 <= ranks.
  OptimizerShares(std::span<const model::NamedParam> params, int ranks,
                  ops::MomentFormat moments = ops::MomentFormat::kF32);

  int ranks() const { return ranks_; }
  // Where params[i] begins in its node's gradient memory, in elements.
  int64_t begin_of(size_t i) const { return begins_[i]; }
  // A rank's elements of a node's gradient memory; those of all ranks follow one another.
  ElementRange of_node(size_t node, int rank) const;
  // A rank's elements of params[i].
  ElementRange of_param(size_t i, int rank) const;

 private:
  // Where a rank's elements of a node begin.
  int64_t border(size_t node, int64_t rank) const;

  int ranks_;
  std::vector<size_t> nodes_;           // by parameter
  std::vector<int64_t> begins_;         // the same
  std::vector<int64_t> counts_;         // the same
  std::vector<int64_t> cuts_;           // the same
  std::vector<int64_t> node_elements_;  // by node
  std::vector<size_t> node_first_;      // its first parameter
};

// Exact bytes of an arena in which a rank holds its share of the optimizer's state.
struct ShareMemory {
  int64_t moments_bytes = 0;
  int64_t masters_bytes = 0;  // of values that stand in gradients
  int64_t total_bytes() const { return moments_bytes + masters_bytes; }
};
struct ShareRequest {
  int rank = 0;
  int ranks = 1;
  ops::MomentFormat moments = ops::MomentFormat::kF32;
};
ShareMemory share_memory(const model::Architecture& architecture,
                         const model::WeightsOptions& options, const ShareRequest& request);
// Of the rank whose share takes the most; the request's rank counts for nothing.
ShareMemory largest_share_memory(const model::Architecture& architecture,
                                 const model::WeightsOptions& options, ShareRequest request);

}  // namespace jige::train
