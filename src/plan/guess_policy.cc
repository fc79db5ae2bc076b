#include "plan/guess_policy.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace jige::plan {
namespace {

// Guesses must promise this much more than they cost: both are estimates.
constexpr double kGuessMargin = 1.25;
// By how much a sequence may be slower for the guesses of others.
constexpr double kSlowerMax = 0.1;
constexpr double kSavedMost = 0.25;  // of an answer's steps, by a draft model, for its reading
constexpr size_t kLongCopyTokens = 8;
constexpr size_t kCopyTokens = 4;
// Before anything was seen, by source: as if so many had been judged, of which this share was
// right.
constexpr double kFirstChance[kGuessSourceCount] = {1, 0.9, 0.85, 0.7, 0.3, kModelChance};
constexpr double kFirstTrials[kGuessSourceCount] = {1, 4, 1, 1, 1, 4};

}  // namespace

GuessSource copy_source(size_t equal_tokens) {
  if (equal_tokens >= kLongCopyTokens) return GuessSource::kLongCopy;
  return equal_tokens >= kCopyTokens ? GuessSource::kCopy : GuessSource::kShortCopy;
}

GuessKind kind_of(GuessSource source) {
  if (source == GuessSource::kModel) return GuessKind::kModel;
  return is_copy(source) ? GuessKind::kCopied : GuessKind::kForced;
}

void GuessCounts::add(std::span<const GuessSource> sources, int64_t right_count) {
  for (int64_t i = 0; i < std::ssize(sources); ++i) {
    const auto kind = static_cast<size_t>(kind_of(sources[static_cast<size_t>(i)]));
    ++guessed[kind];
    if (i < right_count) ++right[kind];
  }
}

void GuessCounts::add(const GuessCounts& other) {
  for (size_t kind = 0; kind < kGuessKindCount; ++kind) {
    guessed[kind] += other.guessed[kind];
    right[kind] += other.right[kind];
  }
}

std::array<GuessKindCounts, kGuessKindCount> GuessCounts::by_kind() const {
  std::array<GuessKindCounts, kGuessKindCount> rows;
  for (size_t kind = 0; kind < kGuessKindCount; ++kind) {
    rows[kind] = {kGuessKindNames[kind], guessed[kind], right[kind]};
  }
  return rows;
}

GuessTrust::GuessTrust(double model_chance) {
  for (size_t i = 0; i < rates_.size(); ++i) {
    const bool of_model = static_cast<GuessSource>(i) == GuessSource::kModel;
    rates_[i] = HitRate(of_model ? model_chance : kFirstChance[i], kFirstTrials[i]);
  }
}

void GuessTrust::judge(GuessSource source, bool right) {
  if (source == GuessSource::kOnly) return;
  rates_[static_cast<size_t>(source)].judge(right ? 1 : 0, !right);
}

double GuessWish::gain_of(int32_t guesses) const {
  double gain = 0;
  double value = 1;
  for (int32_t i = 0; i < guesses; ++i) gain += value *= chance(i);
  return gain;
}

namespace {

// A step that takes guesses in.
class SharedStep {
 public:
  SharedStep(std::span<GuessWish> wishes, const StepCost& cost, const StepCost& model_cost,
             int64_t sequences)
      : wishes_(wishes),
        cost_(cost),
        model_cost_(model_cost),
        sequences_(sequences),
        tokens_(static_cast<double>(sequences)) {
    for (GuessWish& wish : wishes) {
      wish.known_count = wish.model_count = 0;
      values_.push_back(wish.chance(0));
    }
  }

  // Takes the next guess, or the draft model's next of several sequences, where they are worth it.
  bool take(int64_t room) {
    if (room <= rows_) return false;
    Guesses best = best_known();
    for (Guesses& other : std::array{best_joining(), best_of_model(room - rows_)}) {
      if (mean(other) > mean(best)) best = std::move(other);
    }
    if (best.wishes.empty()) return false;
    for (const size_t i : best.wishes) {
      ++(best.by_model ? wishes_[i].model_count : wishes_[i].known_count);
      values_[i] *= wishes_[i].chance(wishes_[i].count());
    }
    const auto count = std::ssize(best.wishes);
    rows_ += count;
    tokens_ += best.gain;
    model_seconds_ += best.model_seconds;
    if (best.by_model) {
      if (best.model_step == model_rows_.size()) model_rows_.push_back(0);
      model_rows_[best.model_step] += count;
    }
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
      for (const size_t i : last.wishes) {
        --(last.by_model ? wishes_[i].model_count : wishes_[i].known_count);
      }
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
    size_t model_step = 0;
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
  bool is_worth(double gain, int64_t rows, double model_seconds) const {
    return gain >= kGuessMargin * tokens_ * longer(rows, model_seconds);
  }
  bool may_ask_model(const GuessWish& wish) const {
    return wish.known_count == std::ssize(wish.known) && wish.model_count < wish.model_max;
  }

  Guesses best_known() const {
    size_t best = wishes_.size();
    for (size_t i = 0; i < wishes_.size(); ++i) {
      if (wishes_[i].known_count == std::ssize(wishes_[i].known)) continue;
      if (best == wishes_.size() || values_[i] > values_[best]) best = i;
    }
    if (best == wishes_.size() || values_[best] < kGuessChanceLeast) return {};
    if (!is_worth(values_[best], 1, 0)) return {};
    return {.wishes = {best}, .gain = values_[best]};
  }

  // The likeliest guess of a step of the draft model that is made for others.
  Guesses best_joining() const {
    Guesses best;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      const auto step = static_cast<size_t>(wishes_[i].model_count);
      if (!may_ask_model(wishes_[i]) || step >= model_rows_.size()) continue;
      if (values_[i] < kGuessChanceLeast || values_[i] <= best.gain) continue;
      const int64_t rows = model_rows_[step];
      const double seconds = model_cost_.seconds(rows + 1) - model_cost_.seconds(rows);
      if (!is_worth(values_[i], 1, seconds)) continue;
      best = {.wishes = {i},
              .gain = values_[i],
              .by_model = true,
              .model_step = step,
              .model_seconds = seconds};
    }
    return best;
  }

  // The likeliest of those whose guesses go as far as the draft model's steps so far.
  Guesses best_of_model(int64_t room) const {
    std::vector<size_t> order;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      const GuessWish& wish = wishes_[i];
      if (!may_ask_model(wish) || wish.model_count < std::ssize(model_rows_)) continue;
      if (values_[i] >= kGuessChanceLeast) order.push_back(i);
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
      const double left = gain - kGuessMargin * tokens_ * longer(rows, seconds);
      if (left < best_left) continue;
      best_left = left;
      best = {.wishes = {order.begin(), order.begin() + rows},
              .gain = gain,
              .by_model = true,
              .model_step = model_rows_.size(),
              .model_seconds = seconds};
    }
    return best;
  }

  // Of the sequence that gets least, but for those that wait for their own good.
  double least_gain() const {
    if (std::ssize(wishes_) < sequences_) return 0;
    double least = std::numeric_limits<double>::infinity();
    for (const GuessWish& wish : wishes_) {
      if (!wish.invests || wish.count() > 0) least = std::min(least, wish.gain_of(wish.count()));
    }
    return least;
  }

  std::span<GuessWish> wishes_;
  const StepCost& cost_;
  const StepCost& model_cost_;
  const int64_t sequences_;
  std::vector<double> values_;  // of the next guess of each
  std::vector<Guesses> taken_;
  int64_t rows_ = 0;  // taken
  double tokens_;     // that the step brings
  double model_seconds_ = 0;
  std::vector<int64_t> model_rows_;  // of the draft model's steps, one a guess
};

}  // namespace

void share_step(std::span<GuessWish> wishes, const StepCost& cost, int64_t sequences, int64_t room,
                const StepCost& model_cost) {
  SharedStep step(wishes, cost, model_cost, sequences);
  while (step.take(room)) {
  }
  step.be_fair();
}

void fill_step(std::span<GuessWish> wishes, int64_t room) {
  int64_t left = std::max<int64_t>(room, 0);
  const auto take = [&left](int64_t wanted) {
    const int64_t taken = std::min(left, wanted);
    left -= taken;
    return static_cast<int32_t>(taken);
  };
  for (GuessWish& wish : wishes) {
    wish.known_count = take(std::ssize(wish.known));
    wish.model_count = take(wish.model_max);
  }
}

double best_speedup(const GuessWish& wish, const StepCost& cost, int64_t sequences,
                    const StepCost& model_cost) {
  const auto before = static_cast<double>(sequences);
  const double step = cost.seconds(sequences);
  const double of_model = step > 0 ? model_cost.seconds(sequences) / before / step : 0;
  double best = 1;
  double gain = 0;
  double value = 1;
  double time = 1;
  for (int32_t i = 0; i < wish.count_max(); ++i) {
    gain += value *= wish.chance(i);
    const int64_t rows = sequences + i;
    time += step > 0 ? cost.price(rows) * cost.seconds(rows) / step : cost.price(rows);
    if (i >= std::ssize(wish.known)) time += of_model;
    best = std::max(best, (before + gain) / before / time);
  }
  return best;
}

bool worth_reading(int64_t missing, double row_seconds, double token_seconds, int64_t tokens_left) {
  if (row_seconds == 0 || token_seconds == 0) return true;
  const double saved = kSavedMost * token_seconds * static_cast<double>(tokens_left);
  return static_cast<double>(missing) * row_seconds <= saved;
}

}  // namespace jige::plan
