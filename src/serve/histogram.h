// Histogram: counts of observed values in fixed buckets, as Prometheus shows them.
//
//   Histogram seconds(latency_bounds());
//   seconds.observe(0.12);
//   const Histogram::Snapshot s = seconds.snapshot();   // s.counts[i]: values <= s.bounds[i]
//
// Threads: any number may observe and take snapshots. A snapshot taken meanwhile may have a value's
// bucket but not yet its sum; its count is the sum of its buckets in any case.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace jige::serve {

class Histogram {
 public:
  struct Snapshot {
    std::vector<double> bounds;    // ascending upper bounds, inclusive
    std::vector<uint64_t> counts;  // of each bucket alone; one more than bounds: the rest
    uint64_t count = 0;
    double sum = 0;
    // The bound below which `share` of the values lie, interpolated within its bucket; 0 when
    // empty, the largest bound where the value lies above it.
    double quantile(double share) const;
  };

  // REQUIRES: bounds ascend strictly and are not empty.
  explicit Histogram(std::vector<double> bounds);

  // Not-a-number values are passed over.
  void observe(double value);
  Snapshot snapshot() const;

 private:
  const std::vector<double> bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_{0};
};

// 1 ms to 10 minutes, four or five a decade.
std::vector<double> latency_bounds();
// 1 to 2^20, powers of two.
std::vector<double> token_count_bounds();

}  // namespace jige::serve
