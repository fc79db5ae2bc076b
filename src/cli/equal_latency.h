// How much load each policy carries at the same latency: what Orca's figure shows, as numbers.
//
// A subject carries the throughput at which its curve of normalised latency reaches the bound: its
// fastest load within the bound, and on the straight line from there to the next faster load,
// which is beyond it.
// Threads: pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/load_view.h"

namespace jige::cli {

struct CarriedLoad {
  std::string_view statistic;          // "p50", "mean" or "p99" of the normalised latency
  double bound_s = 0;                  // seconds a token
  std::vector<double> requests_per_s;  // by subject; below its slowest load: that load's throughput
  std::vector<bool> below;             // by subject: carries less than requests_per_s
  // By subject: its multiple of the first subject's load in each round in which both carry one.
  std::vector<std::vector<double>> round_multiples;
};

struct EqualLatency {
  std::vector<std::string> subjects;  // in the order of the points
  std::vector<CarriedLoad> rows;      // bounds of 1.5, 2 and 4 times the lowest latency measured
};

// Nothing where there are fewer than two subjects or a closed loop. `rounds`: the points of each
// round alone, for the spread.
std::optional<EqualLatency> equal_latency(std::span<const LoadPoint> points,
                                          std::span<const std::vector<LoadPoint>> rounds = {});

// Each with its multiple of the first subject.
std::string equal_latency_table(const EqualLatency& loads);
Json equal_latency_json(const EqualLatency& loads);

}  // namespace jige::cli
