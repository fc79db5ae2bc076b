// What several rings may take together, as rows that each hold 1 altogether: every resource of the
// description, every transfer that alone was slower than these say, and every conflict that
// measurement showed (its members together carry what they carried when they were measured).
//
//   RingCapacity capacity(problem, facts);
//   capacity.rate(shares)      // GB/s of all rings together, by these rows
//
// A promise, not a bound: it takes for granted that what is full is shared without loss. A resource
// described with a rate lower than was seen on it is given the one seen. Where the description has
// no resource for a transfer, the ways out of a node and into it are taken to be one link each, as
// fast as the fastest transfer over it.
// Threads: one caller.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/ring_facts.h"
#include "plan/ring_problem.h"

namespace jige::plan {

// How much a transfer carries of what all rings carry: above 0.
struct TransferShare {
  int32_t candidate;
  double share;
};

class RingCapacity {
 public:
  RingCapacity(const RingProblem& problem, const RingFacts& facts);

  size_t row_count() const { return row_count_; }
  // The part of each row that a candidate takes at 1 GB/s; rows it does not touch are absent.
  const std::vector<std::pair<size_t, double>>& loads(int32_t candidate) const {
    return loads_[static_cast<size_t>(candidate)];
  }
  // The parts of all rows that a ring takes at 1 GB/s.
  std::vector<double> load_of(const Ring& ring) const;
  // GB/s of the whole when every candidate carries its share.
  double rate(const std::vector<TransferShare>& shares) const;
  // The same for a set whose members carry the whole each.
  double rate(const std::vector<int32_t>& set) const;
  // The members together reached `rate` each, less than the rows said.
  void add_conflict(const std::vector<int32_t>& members, double rate);

 private:
  void add_ends(const RingProblem& problem, const RingFacts& facts);

  size_t row_count_ = 0;
  std::vector<std::vector<std::pair<size_t, double>>> loads_;  // by candidate
};

// Those of an edge's ways that no other of its ways beats: that take of some row less than each of
// the others. Of equal ones the first.
std::vector<int32_t> useful_ways(const RingCapacity& capacity, const std::vector<int32_t>& ways);

}  // namespace jige::plan
