// An all-reduce over two binary trees at once, each with half of the data: sums go up, results
// come down. A message needs 2 log2 n steps instead of the 2 (n - 1) of a ring, so it is faster
// where steps cost more than bytes.
//
//   TreeSearch search(problem, capacity);
//   const DoubleTree trees = search.best({});
//
// The shape is fixed by the number of devices: places 1 to n, in the order of a search tree, whose
// root is the largest power of two. Odd places are leaves. The second tree has the places mirrored
// (n even) or moved on by one (n odd), so that nobody has children in both: a device sends and
// receives at most three halves of the data, most two. Which device has which place, and the way of
// each edge, are searched: all orders up to `exact_nodes_max` devices, otherwise exchanging two
// places at a time.
// Threads: one caller.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/ring_capacity.h"
#include "plan/ring_problem.h"

namespace jige::plan {

struct TreeShape {
  std::vector<int32_t> parent;  // of places from 0; -1: the root
  int32_t depth = 0;            // edges from the root to the farthest leaf

  std::vector<int32_t> children(int32_t place) const;
};

// REQUIRES: at least two places.
std::array<TreeShape, 2> double_tree_shape(int32_t places);

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
