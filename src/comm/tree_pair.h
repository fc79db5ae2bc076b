// TreePair: two binary trees over all ranks, each with half of the data. An all-reduce takes twice
// their depth in steps instead of the 2 (n - 1) of a ring, so it is faster where steps cost more
// than bytes. What `jige plan rings --message SIZE` proposes, and what tree_path.cc runs.
//
//   TreePair trees = TreePair::over({2, 0, 1, 3});     // ranks by place
//   trees.bytes_max = 64 << 10;
//
// The usual shape (double_tree_shape) has places 1 to n in the order of a search tree, whose root
// is the largest power of two; odd places are leaves. The second tree has the places mirrored
// (n even) or moved on by one (n odd), so that nobody has children in both. Any two trees do.
//
// The order of additions in a tree: with one rank as the root, v(r) = x[r] + v(c1) + v(c2) + …,
// added from the left, where the c are the neighbours of r away from the root, by ascending rank.
// The result is v(root): in an all-reduce of the tree's own root, in a reduction of the
// operation's. The first half of the elements (rounded up to whole units of 64 bytes) belongs to
// the first tree. This is another order than that of the rings (ring_plan.h), so where the trees
// end is part of the plan: `bytes_max` decides it for every path and transport alike.
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "comm/types.h"

namespace jige::comm {

struct TreeShape {
  std::vector<int32_t> parent;  // of places from 0; -1: the root
  int32_t depth = 0;            // edges from the root to the farthest leaf

  std::vector<int32_t> children(int32_t place) const;
};

// REQUIRES: at least two places.
std::array<TreeShape, 2> double_tree_shape(int32_t places);

inline constexpr int64_t kTreesUnmeasured = -1;

struct TreePair {
  std::array<std::vector<int>, 2> parent;  // of each rank; -1: the root
  // All-reduces, broadcasts and reductions of up to so many bytes are the trees'.
  // kTreesUnmeasured: none, until somebody measures where rings are faster (tuning.h).
  int64_t bytes_max = kTreesUnmeasured;

  // The usual shape with the ranks at its places. REQUIRES: two ranks or more, each once.
  static TreePair over(const std::vector<int>& order);
  // Each names a parent for every rank but one, from whom all others descend; bytes_max from
  // kTreesUnmeasured on. Fails with kInvalidArgument.
  Status check(int size) const;

  int root(size_t tree) const;
  bool linked(size_t tree, int rank, int other) const;
  // Parent and children, by ascending rank.
  std::vector<int> neighbours(size_t tree, int rank) const;
  // The one of them on the way to `target`, which is another rank.
  int towards(size_t tree, int rank, int target) const;
};

}  // namespace jige::comm
