#include "serve/histogram.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace jige::serve {

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds_.size() + 1)) {
  JIGE_CHECK(!bounds_.empty() && std::ranges::is_sorted(bounds_, std::ranges::less_equal{}),
             "{} histogram bounds must ascend", bounds_.size());
}

void Histogram::observe(double value) {
  if (std::isnan(value)) return;
  const auto bucket = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Histogram::Snapshot Histogram::snapshot() const {
  Snapshot snapshot;
  snapshot.bounds = bounds_;
  for (size_t i = 0; i <= bounds_.size(); ++i) {
    snapshot.counts.push_back(counts_[i].load(std::memory_order_relaxed));
    snapshot.count += snapshot.counts.back();
  }
  snapshot.sum = sum_.load(std::memory_order_relaxed);
  return snapshot;
}

double Histogram::Snapshot::quantile(double share) const {
  const double wanted = share * static_cast<double>(count);
  double below = 0;
  for (size_t i = 0; i < bounds.size(); ++i) {
    const auto here = static_cast<double>(counts[i]);
    if (here > 0 && below + here >= wanted) {
      const double low = i > 0 ? bounds[i - 1] : 0;
      return low + (bounds[i] - low) * std::clamp((wanted - below) / here, 0.0, 1.0);
    }
    below += here;
  }
  return count > 0 ? bounds.back() : 0;
}

std::vector<double> latency_bounds() {
  return {0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5,
          0.75,  1,     2,     3,     5,      7.5,  10,   20,   30,   60,    120, 300, 600};
}

std::vector<double> token_count_bounds() {
  std::vector<double> bounds;
  for (int power = 0; power <= 20; ++power) bounds.push_back(std::ldexp(1.0, power));
  return bounds;
}

}  // namespace jige::serve
