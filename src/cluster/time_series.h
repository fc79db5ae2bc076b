// TimeSeries: an amount over time in equal buckets, whatever the span turns out to be: when it runs
// out of buckets their width doubles. Threads: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace jige::cluster {

class TimeSeries {
 public:
  explicit TimeSeries(int64_t width_ns = 1'000'000'000, size_t buckets_max = 240);

  // Spreads `amount` evenly over [from, to). REQUIRES: 0 <= from <= to.
  void add(int64_t from_ns, int64_t to_ns, double amount);

  int64_t width_ns() const { return width_ns_; }
  const std::vector<double>& amounts() const { return amounts_; }
  double total() const;
  // The same amounts in buckets of `width_ns`. REQUIRES: a power of two times the present width.
  std::vector<double> at_width(int64_t width_ns) const;

 private:
  void widen();

  int64_t width_ns_;
  size_t buckets_max_;
  std::vector<double> amounts_;
};

}  // namespace jige::cluster
