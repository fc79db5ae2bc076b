// When a repeated timing can be trusted: mean, deviation and interval of a series, and how long to
// go on.
//
//   Repeats repeats({.half_width_max = 0.03});
//   while (!repeats.done(clock.seconds())) repeats.add(time_once());
//
// A rate that changes while it is timed shows as a series whose later half lies wholly apart from
// its earlier one; then the earlier half goes and timing continues.
// Invariants: intervals are 95 %, by Student's distribution. Threads: values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace jige::profile {

struct SeriesSummary {
  double mean = 0;
  double deviation = 0;   // of the sample, relative to the mean
  double half_width = 0;  // of the mean's interval, relative; infinite for fewer than two values
};

SeriesSummary summarise(std::span<const double> values);

struct RepeatLimits {
  int32_t count_min = 4;
  int32_t count_max = 30;
  double half_width_max = 0.03;
  double seconds_max = 5;   // afterwards `count_min` values are enough
  double gap_min = 0.1;     // between the values before and after a change, relative
  int32_t changes_max = 3;  // series begun anew
};

class Repeats {
 public:
  explicit Repeats(const RepeatLimits& limits) : limits_(limits) {}

  void add(double value);
  // `seconds` is the time spent so far.
  bool done(double seconds) const;
  // How many of the oldest values were given up, so that what belongs to them can go as well.
  size_t dropped() const { return dropped_; }
  int32_t changes() const { return changes_; }
  const std::vector<double>& values() const { return values_; }
  SeriesSummary summary() const { return summarise(values_); }

 private:
  RepeatLimits limits_;
  std::vector<double> values_;
  size_t dropped_ = 0;
  int32_t changes_ = 0;
};

}  // namespace jige::profile
