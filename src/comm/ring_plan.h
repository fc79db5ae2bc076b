// RingPlan: the rings that collectives run on, how data is divided among them, and the trees that
// small messages take instead, if there are any.
//
// A ring is an order of all ranks; each sends to the one after it. With several rings the data is
// split by their weights, in the order of the rings.
//
// The order of reduction follows from the plan alone, whatever transport or path carries the data:
// an element of segment s of a block is x[o(s)] + x[o(s+1)] + … + x[o(s+n-1)], added from the left,
// where o(i) is the rank at position i (modulo n) of the ring whose part the element lies in. An
// all-reduce cuts each ring's part into blocks of n pieces and each block into n equal segments
// (rounded up to whole units of 64 bytes; later ones may be empty). In a reduce-scatter the block
// of the rank at position p starts at position p + 1; in a reduce the whole starts after the root.
// All-reduces and reductions of up to trees->bytes_max bytes add in the order of tree_pair.h
// instead, on every path.
//
// An all-to-all goes in rounds: in each, every rank sends a block to one rank and receives one.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tree_pair.h"
#include "comm/types.h"

namespace jige::comm {

inline constexpr int kRingsMax = 16;

struct Ring {
  std::vector<int> order;  // a permutation of the ranks
  double weight = 1;

  int size() const { return static_cast<int>(order.size()); }
  int position_of(int rank) const;
  // The rank at a position, counted modulo the size, negative ones too.
  int at(int64_t position) const;
};

// Fails with kInvalidArgument for pieces that no ring can move.
Status check_piece_bytes(int64_t bytes);

struct RingPlan {
  std::vector<Ring> rings;
  int64_t piece_bytes = 256 << 10;  // what moves as one step; a multiple of kUnitBytes
  // Of an all-to-all: to whom each rank sends in every round. None: in round k the ranks whose
  // numbers add up to k exchange blocks.
  std::vector<std::vector<int>> rounds;
  std::optional<TreePair> trees;

  // One ring in rank order.
  static RingPlan in_rank_order(int size);
  // At least one ring and kRingsMax at most, each a permutation of 0 … size - 1 with a weight
  // above 0, up to 1e9; rounds, if any, by which every rank sends to every other once; trees, if
  // any, as TreePair::check(). Fails with kInvalidArgument.
  Status check(int size) const;
  // Whether an operation on so many bytes adds, and goes where it is not sent directly, by the
  // trees.
  bool takes_trees(Collective collective, int64_t bytes) const;
  // Equal for equal plans.
  uint32_t hash() const;
};

// Fails with kInvalidArgument, calling them `what`, unless each rank from 0 to size - 1 is named
// once.
Status check_permutation(const std::vector<int>& ranks, int size, std::string_view what);

// Reads "0,2,1,3" or "0,2,1,3@0.5" (a weight). Fails with kInvalidArgument. check() looks further.
Result<Ring> parse_ring(std::string_view text);

// Elements [begin, begin + count).
struct Range {
  int64_t begin = 0;
  int64_t count = 0;

  int64_t end() const { return begin + count; }
  bool operator==(const Range&) const = default;
};

// The part of each ring of `count` elements. Together they cover all, in order.
std::vector<Range> split_by_weight(const RingPlan& plan, int64_t count, int64_t element_bytes);

// The part of each tree, the first half rounded up to whole units.
std::array<Range, 2> split_in_halves(int64_t count, int64_t element_bytes);

// One ring's part of an all-reduce: blocks of n segments.
class Blocks {
 public:
  Blocks(Range part, int size, int64_t piece_elements, int64_t unit_elements);

  int64_t block_count() const { return block_count_; }
  // Segment `index` in [0, n) of a block; empty where nothing is left.
  Range segment(int64_t block, int index) const;

 private:
  Range part_;
  int size_;
  int64_t piece_;
  int64_t unit_;
  int64_t block_count_;
};

}  // namespace jige::comm
