// An all-reduce over two binary trees at once, each with half of the data: sums go up, results
// come down. A message needs 2 log2 n steps instead of the 2 (n - 1) of a ring, so it is faster
// where steps cost more than bytes.
//
//   TreeSearch search(problem, capacity);
//   const DoubleTree trees = search.best({});
//
// The shape is that of comm/tree_pair.h, fixed by the number of devices: nobody has children in
// both trees, so a device sends and receives at most three halves of the data, most two. Which
// device has which place, and the way of each edge, are searched: all orders up to
// `exact_nodes_max` devices, otherwise exchanging two places at a time.
// Threads: one caller.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "comm/tree_pair.h"
#include "plan/ring_capacity.h"
#include "plan/ring_problem.h"

namespace jige::plan {

using comm::double_tree_shape;
using comm::TreeShape;

struct DoubleTree {
  std::vector<int32_t> nodes;  // by place
  // Candidates by place: to the parent, and from it; -1 for the root.
  std::array<std::vector<int32_t>, 2> up, down;
  double predicted = 0;  // GB/s of the whole, by the rows
  bool exact = false;    // no other order is faster, by the rows
};

// Every transfer once, with the part of the data it carries.
std::vector<TransferShare> tree_shares(const DoubleTree& trees);

struct TreeLimits {
  int32_t exact_nodes_max = 7;
  int32_t moves = 3000;  // beyond
  int32_t refined = 40;  // orders for which other ways are tried
  uint64_t seed = 1;
};

class TreeSearch {
 public:
  // Both outlive the search. REQUIRES: no chain.
  TreeSearch(const RingProblem& problem, const RingCapacity& capacity)
      : problem_(problem), capacity_(capacity) {}

  DoubleTree best(const TreeLimits& limits);
  // Nodes at the places given, every edge by the usual transport.
  DoubleTree usual(std::vector<int32_t> nodes) const;

 private:
  void refine(DoubleTree& trees) const;

  const RingProblem& problem_;
  const RingCapacity& capacity_;
};

}  // namespace jige::plan
