// The loads of a benchmark that repeats them in rounds, with everything that is compared in turns
// within each, so that a slow minute of the machine falls on all of it.
//
//   LoadRounds rounds(bounds);
//   rounds.add(round, {.subject = "orca", .rate = 4}, run.outcomes);
//   print(points_table(rounds.points()));
//
// Threads: one caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cli/load_view.h"
#include "sim/load_report.h"

namespace jige::cli {

class LoadRounds {
 public:
  explicit LoadRounds(sim::GoodputBounds bounds) : bounds_(bounds) {}

  // The load's point of this round alone. REQUIRES: rounds come in order, from 0.
  const LoadPoint& add(int64_t round, LoadPoint point,
                       std::span<const sim::RequestOutcome> outcomes);

  // A point for each subject and load over the requests of all rounds; subjects by their first
  // appearance, then in the order in which loads were added.
  std::vector<LoadPoint> points() const;
  // By round, in the order in which they were added.
  const std::vector<std::vector<LoadPoint>>& rounds() const { return rounds_; }

 private:
  struct Load {
    LoadPoint point;
    std::vector<sim::RequestOutcome> outcomes;
  };

  sim::GoodputBounds bounds_;
  std::vector<Load> loads_;
  std::vector<std::vector<LoadPoint>> rounds_;
};

}  // namespace jige::cli
