#include "plan/guess_costs.h"

#include <algorithm>

namespace jige::plan {
namespace {

// What a step of one row is taken for until steps of several were seen: rows of it that cost as
// much as reading the weights.
constexpr double kRowsOfBase = 16;
constexpr double kStepsKept = 64;      // about so many of the last count
constexpr double kRowsSpread = 0.5;    // variance of rows from which on a slope is believed
constexpr double kSecondsOutlier = 3;  // times the mean

}  // namespace

void StepCost::add(int64_t rows, double seconds) {
  const auto x = static_cast<double>(rows);
  // A step that something else held up says little about its rows.
  const double y = weight_ > 4 ? std::min(seconds, kSecondsOutlier * seconds_ / weight_) : seconds;
  const double kept = 1 - 1 / kStepsKept;
  weight_ = weight_ * kept + 1;
  rows_ = rows_ * kept + x;
  seconds_ = seconds_ * kept + y;
  rows_rows_ = rows_rows_ * kept + x * x;
  rows_seconds_ = rows_seconds_ * kept + x * y;
  const double variance = rows_rows_ / weight_ - rows_ / weight_ * (rows_ / weight_);
  if (weight_ < 4 || variance < kRowsSpread) return;
  const double covariance = rows_seconds_ / weight_ - rows_ / weight_ * (seconds_ / weight_);
  slope_ = std::clamp(covariance / variance, 0.0, seconds_ / rows_);
}

// Until steps of several sizes were seen, as of a step that costs so many rows besides its own.
double StepCost::slope() const {
  return slope_ >= 0 ? slope_ : seconds_ / (kRowsOfBase * weight_ + rows_);
}

double StepCost::seconds(int64_t rows) const {
  if (weight_ == 0) return 0;
  const double more = static_cast<double>(rows) - rows_ / weight_;
  return std::max(seconds_ / weight_ + slope() * more, 0.0);
}

double StepCost::price(int64_t rows) const {
  if (weight_ == 0 || slope_ < 0) return 1 / (kRowsOfBase + static_cast<double>(rows));
  const double step = seconds(rows);
  return step > 0 ? std::min(slope_ / step, 1.0) : 1.0;
}

void HitRate::judge(int32_t hits, bool missed) {
  const double kept = 1 - 1 / trials_kept_;
  for (int32_t i = 0; i < hits + (missed ? 1 : 0); ++i) {
    hits_ = hits_ * kept + (i < hits ? 1 : 0);
    trials_ = trials_ * kept + 1;
  }
}

}  // namespace jige::plan
