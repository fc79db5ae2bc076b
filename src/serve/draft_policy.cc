#include "serve/draft_policy.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace jige::serve {
namespace {

// Guesses must promise this much more than they cost: both are estimates.
constexpr double kMargin = 1.25;
// Less likely guesses bring little even where rows cost nothing, and what they cost is an estimate.
constexpr double kValueLeast = 0.2;
// By how much a sequence may be slower for the drafts of others.
constexpr double kSlowerMax = 0.1;
// What a step of one row is taken for until steps of several were seen: rows of it that cost as
// much as reading the weights.
constexpr double kRowsOfBase = 16;
constexpr double kStepsKept = 64;      // about so many of the last count
constexpr double kRowsSpread = 0.5;    // variance of rows from which on a slope is believed
constexpr double kSecondsOutlier = 3;  // times the mean
constexpr double kTrialsKept = 20;
constexpr double kTrust[kDraftLevelCount] = {0.7, 0.3};  // before anything was seen

}  // namespace

Status validate(const DraftOptions& options) {
  if (options.tokens_max >= 0 && options.tokens_max <= kDraftTokensMax) return {};
  return fail(Code::kInvalidArgument, "tokens of a draft are {}; they must be in 0..{}",
              options.tokens_max, kDraftTokensMax);
}

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

double StepCost::price(int64_t rows) const {
  const auto x = static_cast<double>(rows);
  if (weight_ == 0 || slope_ < 0) return 1 / (kRowsOfBase + x);
  const double step = seconds_ / weight_ + slope_ * (x - rows_ / weight_);
  return step > 0 ? std::min(slope_ / step, 1.0) : 1.0;
}

DraftTrust::DraftTrust() {
  for (size_t i = 0; i < records_.size(); ++i) records_[i] = {.hits = kTrust[i], .trials = 1};
}

void DraftTrust::judge(int32_t level, int32_t hits, bool missed) {
  Record& record = records_[static_cast<size_t>(level)];
  const double kept = 1 - 1 / kTrialsKept;
  for (int32_t i = 0; i < hits + (missed ? 1 : 0); ++i) {
    record.hits = record.hits * kept + (i < hits ? 1 : 0);
    record.trials = record.trials * kept + 1;
  }
}

double DraftTrust::chance(int32_t level) const {
  const Record& record = records_[static_cast<size_t>(level)];
  return record.hits / record.trials;
}

namespace {

// What the first `count` of a wish's guesses bring.
double gain_of(const DraftWish& wish) {
  double gain = 0;
  double value = 1;
  for (int32_t i = 0; i < wish.count; ++i) gain += value *= wish.chance;
  return gain;
}

// Of the sequence that gets least.
double least_gain(std::span<const DraftWish> wishes, int64_t sequences) {
  if (std::ssize(wishes) < sequences) return 0;
  double least = gain_of(wishes[0]);
  for (const DraftWish& wish : wishes) least = std::min(least, gain_of(wish));
  return least;
}

}  // namespace

void share_step(std::span<DraftWish> wishes, const StepCost& cost, int64_t sequences,
                int64_t room) {
  std::vector<double> values;  // of the next guess of each
  for (DraftWish& wish : wishes) {
    wish.count = 0;
    values.push_back(wish.chance);
  }
  std::vector<size_t> taken;
  for (auto tokens = static_cast<double>(sequences); std::ssize(taken) < room;) {
    size_t best = wishes.size();
    for (size_t i = 0; i < wishes.size(); ++i) {
      if (wishes[i].count >= wishes[i].count_max) continue;
      if (best == wishes.size() || values[i] > values[best]) best = i;
    }
    if (best == wishes.size()) break;
    const double price = cost.price(sequences + std::ssize(taken));
    if (values[best] < std::max(kMargin * tokens * price, kValueLeast)) break;
    tokens += values[best];
    values[best] *= wishes[best].chance;
    ++wishes[best].count;
    taken.push_back(best);
  }
  const double price = cost.price(sequences);
  while (!taken.empty()) {
    const double longer = price * static_cast<double>(taken.size());
    if (longer <= (1 + least_gain(wishes, sequences)) / (1 - kSlowerMax) - 1) return;
    --wishes[taken.back()].count;
    taken.pop_back();
  }
}

}  // namespace jige::serve
