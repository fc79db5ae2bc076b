#include "profile/repeats.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace jige::profile {
namespace {

constexpr size_t kHalfMin = 3;  // values on either side of a change

// Student's 97.5 % quantile for `freedom` degrees.
double student(size_t freedom) {
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                               2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                               2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
  if (freedom <= std::size(kTable)) return kTable[freedom - 1];
  return 1.96 + 2.4 / static_cast<double>(freedom);
}

}  // namespace

SeriesSummary summarise(std::span<const double> values) {
  SeriesSummary s;
  if (values.empty()) return s;
  const auto count = static_cast<double>(values.size());
  for (const double v : values) s.mean += v / count;
  if (values.size() < 2) {
    s.half_width = std::numeric_limits<double>::infinity();
    return s;
  }
  double squares = 0;
  for (const double v : values) squares += (v - s.mean) * (v - s.mean);
  s.deviation = std::sqrt(squares / (count - 1)) / s.mean;
  s.half_width = student(values.size() - 1) * s.deviation / std::sqrt(count);
  return s;
}

void Repeats::add(double value) {
  values_.push_back(value);
  if (values_.size() < 2 * kHalfMin || changes_ >= limits_.changes_max) return;
  const size_t middle = values_.size() - kHalfMin;
  const std::span<const double> all(values_);
  const auto before = all.first(middle), after = all.subspan(middle);
  const auto [low_before, high_before] = std::ranges::minmax(before);
  const auto [low_after, high_after] = std::ranges::minmax(after);
  const double gap = std::max(low_after - high_before, low_before - high_after);
  if (gap <= limits_.gap_min * std::max(high_before, high_after)) return;
  values_.erase(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(middle));
  dropped_ += middle;
  ++changes_;
}

bool Repeats::done(double seconds) const {
  const auto count = static_cast<int32_t>(values_.size());
  if (count < limits_.count_min) return false;
  if (count >= limits_.count_max || seconds >= limits_.seconds_max) return true;
  return summary().half_width <= limits_.half_width_max;
}

}  // namespace jige::profile
