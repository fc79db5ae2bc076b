// What measurement has shown about a ring problem: the rate of every transfer alone, and sets
// ("conflicts") of several that run slower together. Adding transfers to a set never makes it
// faster, so each fact bounds every ring that contains it.
//
// Threads: one caller.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ring_problem.h"

namespace jige::plan {

class RingFacts {
 public:
  explicit RingFacts(std::vector<double> solo)
      : solo_(std::move(solo)), conflicts_of_(solo_.size()) {}

  double solo(int32_t candidate) const { return solo_[static_cast<size_t>(candidate)]; }
  // The members together reach `rate`.
  void add_conflict(std::vector<int32_t> members, double rate);
  // What a set is bound by once `candidate` joins the members that `chosen` marks, alone or with
  // them.
  double bound(int32_t candidate, const std::vector<char>& chosen) const;
  // No ring is faster: every node is left by one transfer and reached by one.
  double ring_bound(const RingProblem& problem) const;
  size_t conflict_count() const { return conflicts_.size(); }

  struct Conflict {
    std::vector<int32_t> members;
    double rate;
  };
  const std::vector<Conflict>& conflicts() const { return conflicts_; }

 private:
  std::vector<double> solo_;
  std::vector<Conflict> conflicts_;
  std::vector<std::vector<int32_t>> conflicts_of_;  // by member
};

}  // namespace jige::plan
