#include "serve/draft_policy.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/check.h"

namespace jige::serve {
namespace {

// Guesses must promise this much more than they cost: both are estimates.
constexpr double kMargin = 1.25;
// By how much a sequence may be slower for the drafts of others.
constexpr double kSlowerMax = 0.1;
// What a step of one row is taken for until steps of several were seen: rows of it that cost as
// much as reading the weights.
constexpr double kRowsOfBase = 16;
constexpr double kStepsKept = 64;      // about so many of the last count
constexpr double kRowsSpread = 0.5;    // variance of rows from which on a slope is believed
constexpr double kSecondsOutlier = 3;  // times the mean
constexpr double kSavedMost = 0.25;    // of an answer's steps, by a draft model, for its reading
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

DraftTrust::DraftTrust() {
  for (size_t i = 0; i < rates_.size(); ++i) rates_[i] = HitRate(kTrust[i]);
}

void DraftTrust::judge(int32_t level, int32_t hits, bool missed) {
  rates_[static_cast<size_t>(level)].judge(hits, missed);
}

double DraftWish::gain_of(int32_t guesses) const {
  double gain = 0;
  double value = 1;
  for (int32_t i = 0; i < guesses; ++i) gain += value *= chance;
  return gain;
}

namespace {

// A step that takes guesses in.
class SharedStep {
 public:
  SharedStep(std::span<DraftWish> wishes, const StepCost& cost, const StepCost& model_cost,
             int64_t sequences)
      : wishes_(wishes),
        cost_(cost),
        model_cost_(model_cost),
        sequences_(sequences),
        tokens_(static_cast<double>(sequences)) {
    for (DraftWish& wish : wishes) {
      wish.count = 0;
      values_.push_back(wish.chance);
    }
  }

  // Takes the next guess, or the draft model's next of several sequences, where they are worth it.
  bool take(int64_t room) {
    if (room <= rows_) return false;
    Guesses best = best_of_text();
    if (Guesses other = best_of_model(room - rows_); mean(other) > mean(best)) {
      best = std::move(other);
    }
    if (best.wishes.empty()) return false;
    for (const size_t i : best.wishes) {
      values_[i] *= wishes_[i].chance;
      ++wishes_[i].count;
    }
    rows_ += std::ssize(best.wishes);
    tokens_ += best.gain;
    model_seconds_ += best.model_seconds;
    model_depth_ += best.by_model ? 1 : 0;
    taken_.push_back(std::move(best));
    return true;
  }

  // Drops what was taken last until no sequence is much slower for it.
  void be_fair() {
    const double step = cost_.seconds(sequences_);
    while (!taken_.empty()) {
      double longer = cost_.price(sequences_) * static_cast<double>(rows_);
      if (step > 0) longer += model_seconds_ / step;
      if (longer <= (1 + least_gain()) / (1 - kSlowerMax) - 1) return;
      const Guesses& last = taken_.back();
      for (const size_t i : last.wishes) --wishes_[i].count;
      rows_ -= std::ssize(last.wishes);
      model_seconds_ -= last.model_seconds;
      taken_.pop_back();
    }
  }

 private:
  // The next guesses of these, at once.
  struct Guesses {
    std::vector<size_t> wishes;
    double gain = 0;
    bool by_model = false;
    double model_seconds = 0;
  };

  static double mean(const Guesses& guesses) {
    return guesses.wishes.empty() ? -1 : guesses.gain / static_cast<double>(guesses.wishes.size());
  }

  // By what share so many rows lengthen the step as it is, and a step of the draft model.
  double longer(int64_t rows, double model_seconds) const {
    const int64_t before = sequences_ + rows_;
    const double price = cost_.price(before) * static_cast<double>(rows);
    const double seconds = cost_.seconds(before);
    if (seconds <= 0) return price;
    return (price * seconds + model_seconds) / (seconds + model_seconds_);
  }

  Guesses best_of_text() const {
    size_t best = wishes_.size();
    for (size_t i = 0; i < wishes_.size(); ++i) {
      if (wishes_[i].by_model || wishes_[i].count >= wishes_[i].count_max) continue;
      if (best == wishes_.size() || values_[i] > values_[best]) best = i;
    }
    if (best == wishes_.size() || values_[best] < kDraftChanceLeast) return {};
    if (values_[best] < kMargin * tokens_ * longer(1, 0)) return {};
    return {.wishes = {best}, .gain = values_[best]};
  }

  // The likeliest of those whose guesses go as far as the draft model's steps so far.
  Guesses best_of_model(int64_t room) const {
    std::vector<size_t> order;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      const DraftWish& wish = wishes_[i];
      if (!wish.by_model || wish.count < model_depth_ || wish.count >= wish.count_max) continue;
      if (values_[i] >= kDraftChanceLeast) order.push_back(i);
    }
    std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return values_[i]; });
    if (std::ssize(order) > room) order.resize(static_cast<size_t>(room));
    Guesses best;
    double best_left = 0;
    double gain = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      gain += values_[order[i]];
      const auto rows = static_cast<int64_t>(i) + 1;
      const double seconds = model_cost_.seconds(rows);
      const double left = gain - kMargin * tokens_ * longer(rows, seconds);
      if (left < best_left) continue;
      best_left = left;
      best = {.wishes = {order.begin(), order.begin() + rows},
              .gain = gain,
              .by_model = true,
              .model_seconds = seconds};
    }
    return best;
  }

  // Of the sequence that gets least, but for those that wait for their own good.
  double least_gain() const {
    if (std::ssize(wishes_) < sequences_) return 0;
    double least = std::numeric_limits<double>::infinity();
    for (const DraftWish& wish : wishes_) {
      if (!wish.invests || wish.count > 0) least = std::min(least, wish.gain_of(wish.count));
    }
    return least;
  }

  std::span<DraftWish> wishes_;
  const StepCost& cost_;
  const StepCost& model_cost_;
  const int64_t sequences_;
  std::vector<double> values_;  // of the next guess of each
  std::vector<Guesses> taken_;
  int64_t rows_ = 0;  // taken
  double tokens_;     // that the step brings
  double model_seconds_ = 0;
  int32_t model_depth_ = 0;  // steps of the draft model
};

}  // namespace

void share_step(std::span<DraftWish> wishes, const StepCost& cost, int64_t sequences, int64_t room,
                const StepCost& model_cost) {
  SharedStep step(wishes, cost, model_cost, sequences);
  while (step.take(room)) {
  }
  step.be_fair();
}

bool worth_reading(int64_t missing, double row_seconds, double token_seconds, int64_t tokens_left) {
  if (row_seconds == 0 || token_seconds == 0) return true;
  const double saved = kSavedMost * token_seconds * static_cast<double>(tokens_left);
  return static_cast<double>(missing) * row_seconds <= saved;
}

}  // namespace jige::serve
