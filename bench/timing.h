// What benchmarks measure with and how they sum it up.
//
// Threads: pure functions.
#pragma once

#include <vector>

namespace jige::bench {

// The time that all threads of this process have had of the processors so far. Other programs take
// nothing of it, so it is steadier than a clock.
double processor_seconds();

// The value at a share of the sorted ones, the nearest. REQUIRES: there are some, and the share is
// within 0 to 1.
double quantile(std::vector<double> values, double share);
inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }

}  // namespace jige::bench
