#include "cluster/time_series.h"

#include <algorithm>
#include <numeric>

namespace jige::cluster {

TimeSeries::TimeSeries(int64_t width_ns, size_t buckets_max)
    : width_ns_(width_ns), buckets_max_(buckets_max) {}

void TimeSeries::widen() {
  width_ns_ *= 2;
  const size_t count = (amounts_.size() + 1) / 2;
  for (size_t i = 0; i < count; ++i) {
    amounts_[i] = amounts_[2 * i] + (2 * i + 1 < amounts_.size() ? amounts_[2 * i + 1] : 0);
  }
  amounts_.resize(count);
}

void TimeSeries::add(int64_t from_ns, int64_t to_ns, double amount) {
  if (from_ns >= to_ns) return;
  while (static_cast<size_t>((to_ns - 1) / width_ns_) >= buckets_max_) widen();
  const auto first = static_cast<size_t>(from_ns / width_ns_);
  const auto last = static_cast<size_t>((to_ns - 1) / width_ns_);
  if (amounts_.size() <= last) amounts_.resize(last + 1);
  const double per_ns = amount / static_cast<double>(to_ns - from_ns);
  for (size_t i = first; i <= last; ++i) {
    const int64_t begin_ns = std::max(from_ns, static_cast<int64_t>(i) * width_ns_);
    const int64_t end_ns = std::min(to_ns, static_cast<int64_t>(i + 1) * width_ns_);
    amounts_[i] += per_ns * static_cast<double>(end_ns - begin_ns);
  }
}

double TimeSeries::total() const { return std::accumulate(amounts_.begin(), amounts_.end(), 0.0); }

std::vector<double> TimeSeries::at_width(int64_t width_ns) const {
  TimeSeries wider = *this;
  while (wider.width_ns_ < width_ns) wider.widen();
  return wider.amounts_;
}

}  // namespace jige::cluster
