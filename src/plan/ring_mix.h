// Several rings at once, the data split between them by weight: which rings, and how much each.
//
//   MixSearch search(problem, capacity);
//   const RingMix mix = search.best(4);      // at most four rings
//
// By the rows of RingCapacity the best weights are a linear program with a column for every ring.
// Columns are made as they are needed: at the prices of the rows, the ring that costs least is
// found (cheapest_ring.h: up to a dozen devices exactly), since the transfers of an edge do not
// depend on one another.
// Where the optimum has more rings than allowed, the best few are chosen: of all rings of a small
// problem exactly, otherwise from the columns made, by exchanging one at a time.
// Threads: one caller.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ring_capacity.h"
#include "plan/ring_problem.h"

namespace jige::plan {

struct WeightedRing {
  Ring ring;
  double weight = 1;
};

struct RingMix {
  std::vector<WeightedRing> rings;  // weights add up to 1, the heaviest first
  double predicted = 0;             // GB/s of all together
};

// The transfers of all rings, each once, with the sum of the weights of the rings that it serves.
std::vector<TransferShare> mix_shares(const RingMix& mix);

class MixSearch {
 public:
  // Both outlive the search; `capacity` may learn between calls of best().
  MixSearch(const RingProblem& problem, const RingCapacity& capacity)
      : problem_(problem), capacity_(capacity) {}

  // A ring to begin with.
  void add(const Ring& ring);
  // REQUIRES: rings_max >= 1.
  RingMix best(int32_t rings_max);
  // No mixture of any number of rings is promised more; from the last call of best(). For more
  // devices than kExactCheapestNodes from a bound on the cheapest ring (ring_cost_bound.h), so that
  // it may be higher than it need be, infinite where that bound is none.
  double bound() const { return bound_; }
  // Whether the last best() is the best of all mixtures of so many rings, by the rows.
  bool exact() const { return exact_; }

 private:
  std::vector<double> make_columns();
  RingMix mix_of(const std::vector<size_t>& columns) const;
  RingMix best_of_few(const std::vector<double>& weights, int32_t rings_max);
  RingMix exchange(std::vector<size_t> chosen) const;
  bool add_all_rings();

  const RingProblem& problem_;
  const RingCapacity& capacity_;
  std::vector<Ring> seeds_;
  std::vector<Ring> columns_;  // of the last best()
  double bound_ = 0;
  bool exact_ = false;
};

}  // namespace jige::plan
