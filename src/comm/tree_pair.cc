#include "comm/tree_pair.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace jige::comm {
namespace {

// Gives the places after `before`, `count` of them, the parent of their root; the depth below it.
int32_t build(std::vector<int32_t>& parent, int32_t before, int32_t count, int32_t above) {
  if (count == 0) return -1;
  const auto half = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(count)));
  const int32_t root = before + half;  // counted from 1
  parent[static_cast<size_t>(root - 1)] = above;
  const int32_t left = build(parent, before, half - 1, root - 1);
  const int32_t right = build(parent, root, count - half, root - 1);
  return 1 + std::max(left, right);
}

// Whether every rank reaches one that has no parent, and that there is one such rank alone.
bool is_tree(const std::vector<int>& parent) {
  const auto n = static_cast<int>(parent.size());
  if (std::ranges::count(parent, -1) != 1) return false;
  for (int rank = 0; rank < n; ++rank) {
    int at = rank;
    for (int steps = 0; at >= 0; ++steps) {
      if (steps >= n) return false;  // a circle
      at = parent[static_cast<size_t>(at)];
      if (at < -1 || at >= n) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<int32_t> TreeShape::children(int32_t place) const {
  std::vector<int32_t> list;
  for (size_t p = 0; p < parent.size(); ++p) {
    if (parent[p] == place) list.push_back(static_cast<int32_t>(p));
  }
  return list;
}

std::array<TreeShape, 2> double_tree_shape(int32_t places) {
  JIGE_CHECK(places >= 2, "a tree over {} places", places);
  const auto n = static_cast<size_t>(places);
  std::array<TreeShape, 2> shapes;
  shapes[0].parent.assign(n, -1);
  shapes[0].depth = build(shapes[0].parent, 0, places, -1);
  // Where a place of the first tree lies in the second.
  const auto moved = [&](int32_t place) {
    return places % 2 == 0 ? places - 1 - place : (place + 1) % places;
  };
  shapes[1].parent.assign(n, -1);
  shapes[1].depth = shapes[0].depth;
  for (int32_t p = 0; p < places; ++p) {
    const int32_t above = shapes[0].parent[static_cast<size_t>(p)];
    shapes[1].parent[static_cast<size_t>(moved(p))] = above < 0 ? -1 : moved(above);
  }
  return shapes;
}

TreePair TreePair::over(const std::vector<int>& order) {
  const std::array<TreeShape, 2> shapes = double_tree_shape(static_cast<int32_t>(order.size()));
  TreePair pair;
  for (size_t t = 0; t < shapes.size(); ++t) {
    pair.parent[t].assign(order.size(), -1);
    for (size_t place = 0; place < order.size(); ++place) {
      const int32_t above = shapes[t].parent[place];
      if (above < 0) continue;
      pair.parent[t][static_cast<size_t>(order[place])] = order[static_cast<size_t>(above)];
    }
  }
  return pair;
}

Status TreePair::check(int size) const {
  for (const std::vector<int>& tree : parent) {
    if (static_cast<int>(tree.size()) == size && is_tree(tree)) continue;
    return fail(Code::kInvalidArgument,
                "parents {} are no tree over ranks 0 to {}: one rank has the parent -1, and all "
                "others descend from it",
                fmt::join(tree, ","), size - 1);
  }
  if (bytes_max >= kTreesUnmeasured) return {};
  return fail(Code::kInvalidArgument, "trees for messages of up to {} bytes", bytes_max);
}

int TreePair::root(size_t tree) const {
  return static_cast<int>(std::ranges::find(parent[tree], -1) - parent[tree].begin());
}

bool TreePair::linked(size_t tree, int rank, int other) const {
  return parent[tree][static_cast<size_t>(rank)] == other ||
         parent[tree][static_cast<size_t>(other)] == rank;
}

std::vector<int> TreePair::neighbours(size_t tree, int rank) const {
  std::vector<int> list;
  for (int other = 0; other < static_cast<int>(parent[tree].size()); ++other) {
    if (linked(tree, rank, other)) list.push_back(other);
  }
  return list;
}

int TreePair::towards(size_t tree, int rank, int target) const {
  // Up from the target: who meets `rank` on the way came from that side.
  for (int at = target; at >= 0;) {
    const int above = parent[tree][static_cast<size_t>(at)];
    if (above == rank) return at;
    at = above;
  }
  return parent[tree][static_cast<size_t>(rank)];
}

}  // namespace jige::comm
