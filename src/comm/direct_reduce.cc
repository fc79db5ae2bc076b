#include "comm/direct_reduce.h"

#include <cstring>
#include <optional>
#include <vector>

#include "comm/reduce.h"

namespace jige::comm {
namespace {

class Reduction {
 public:
  Reduction(const RingPlan& plan, const Operation& operation, const Contributions& all)
      : plan_(plan), op_(operation), all_(all) {}

  bool on_trees() const { return plan_.takes_trees(op_.collective, op_.bytes()); }
  void like_rings() const;
  void ring_parts(int owner) const;
  void like_trees(std::optional<int> root) const;

 private:
  void reduce_range(const Ring& ring, int64_t first, Range range) const;
  void add_subtree(size_t tree, int rank, int from, Range range, std::byte* out) const;

  const RingPlan& plan_;
  const Operation& op_;
  const Contributions& all_;
};

// dst[range], beginning at position `first` of the ring.
void Reduction::reduce_range(const Ring& ring, int64_t first, Range range) const {
  if (range.count == 0) return;
  const int64_t at = range.begin * op_.element_bytes();
  std::byte* out = op_.dst + at;
  auto place = static_cast<size_t>(first);
  const auto next = [&] {
    if (place >= ring.order.size()) place = 0;
    return all_.of(ring.order[place++]) + at;
  };
  const std::byte* left = next();
  for (int i = 1; i < all_.size; ++i, left = out) {
    combine(op_.dtype, op_.redop, left, next(), out, range.count);
  }
  if (op_.redop == RedOp::kAvg) divide(op_.dtype, out, range.count, all_.size);
}

// Every ring's part as a whole, from the position behind the owner's.
void Reduction::ring_parts(int owner) const {
  const auto parts = split_by_weight(plan_, op_.count, op_.element_bytes());
  for (size_t r = 0; r < parts.size(); ++r) {
    const Ring& ring = plan_.rings[r];
    reduce_range(ring, ring.position_of(owner) + 1, parts[r]);
  }
}

// Every segment from the position of its number, as the ring path of an all-reduce does.
void Reduction::like_rings() const {
  if (op_.bytes() < kUnitBytes) {
    // Less than a unit is the last ring's, as its first segment.
    return reduce_range(plan_.rings.back(), 0, {0, op_.count});
  }
  const auto parts = split_by_weight(plan_, op_.count, op_.element_bytes());
  const int64_t piece = std::max<int64_t>(1, plan_.piece_bytes / op_.element_bytes());
  for (size_t r = 0; r < parts.size(); ++r) {
    const Blocks blocks(parts[r], all_.size, piece, kUnitBytes / op_.element_bytes());
    for (int64_t b = 0; b < blocks.block_count(); ++b) {
      for (int s = 0; s < all_.size; ++s) reduce_range(plan_.rings[r], s, blocks.segment(b, s));
    }
  }
}

// out = what a rank sends on, coming from `from`: its own and then its other neighbours', each as
// a whole (tree_pair.h).
void Reduction::add_subtree(size_t tree, int rank, int from, Range range, std::byte* out) const {
  const int64_t bytes = range.count * op_.element_bytes();
  std::memcpy(out, all_.of(rank) + range.begin * op_.element_bytes(), static_cast<size_t>(bytes));
  for (const int next : plan_.trees->neighbours(tree, rank)) {
    if (next == from) continue;
    std::vector<std::byte> below(static_cast<size_t>(bytes));
    add_subtree(tree, next, rank, range, below.data());
    combine(op_.dtype, op_.redop, below.data(), out, out, range.count);
  }
}

// Both halves, each with its tree's root or the one given.
void Reduction::like_trees(std::optional<int> root) const {
  const auto halves = split_in_halves(op_.count, op_.element_bytes());
  for (size_t t = 0; t < halves.size(); ++t) {
    if (halves[t].count == 0) continue;
    std::byte* out = op_.dst + halves[t].begin * op_.element_bytes();
    add_subtree(t, root.value_or(plan_.trees->root(t)), -1, halves[t], out);
    if (op_.redop == RedOp::kAvg) divide(op_.dtype, out, halves[t].count, all_.size);
  }
}

}  // namespace

void reduce_contributions(const RingPlan& plan, const Operation& operation,
                          const Contributions& all) {
  const Reduction reduction(plan, operation, all);
  reduction.on_trees() ? reduction.like_trees(std::nullopt) : reduction.like_rings();
}

void reduce_for_owner(const RingPlan& plan, const Operation& operation, const Contributions& all,
                      int owner) {
  const Reduction reduction(plan, operation, all);
  reduction.on_trees() ? reduction.like_trees(owner) : reduction.ring_parts(owner);
}

}  // namespace jige::comm
