// How much load each policy carries at the same latency: what Orca's figure shows, as numbers.
//
// A subject carries the throughput at which its curve of normalised latency reaches the bound: its
// fastest load within the bound, and on the straight line from there to the next faster load,
// which is beyond it. A curve that begins beyond the bound, or ends within it, says only that the
// load is less than its slowest or more than its fastest.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/load_view.h"

namespace jige::cli {

enum class Known : uint8_t { kExactly, kLess, kMore };

struct CarriedLoad {
  double requests_per_s = 0;  // of the curve's end where the load is less or more
  Known known = Known::kExactly;
};

struct LoadsAtLatency {
  std::string_view statistic;        // "p50", "mean" or "p99" of the normalised latency
  double bound_s = 0;                // seconds a token
  std::vector<CarriedLoad> carried;  // by subject
  // By subject: its multiple of the first subject's load in each round that tells both exactly.
  std::vector<std::vector<double>> round_multiples;
};

struct EqualLatency {
  std::vector<std::string> subjects;  // in the order of the points
  std::vector<LoadsAtLatency> rows;   // bounds of 1.5, 2 and 4 times the lowest latency measured
};

// Nothing where there are fewer than two subjects or a closed loop. `rounds`: the points of each
// round alone, for the spread.
std::optional<EqualLatency> equal_latency(std::span<const LoadPoint> points,
                                          std::span<const std::vector<LoadPoint>> rounds = {});

// Each with its multiple of the first subject.
std::string equal_latency_table(const EqualLatency& loads);
Json equal_latency_json(const EqualLatency& loads);

}  // namespace jige::cli
