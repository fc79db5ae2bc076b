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

// What guesses take of a step, and of the next one.
struct GuessLoad {
  int64_t rows = 0;
  double rows_again = 0;  // that are likely to run again
  int64_t spares = 0;     // states that are kept
  double model_seconds = 0;

  void add(const GuessLoad& other, int sign) {
    rows += sign * other.rows;
    rows_again += sign * other.rows_again;
    spares += sign * other.spares;
    model_seconds += sign * other.model_seconds;
  }
};

// A step that takes guesses in.
class SharedStep {
 public:
  SharedStep(std::span<GuessWish> wishes, const StepCost& cost, const StepCost& model_cost,
             const StateCosts& states, int64_t sequences)
      : wishes_(wishes),
        cost_(cost),
        model_cost_(model_cost),
        states_(states),
        sequences_(sequences),
        rows_before_(sequences),
        tokens_(static_cast<double>(sequences)) {
    for (GuessWish& wish : wishes) {
      wish.known_count = wish.model_count = 0;
      values_.push_back(wish.chance(0));
      rows_before_ += wish.again_count;
    }
  }

  // Takes the next guess, or some at once, or the draft model's next of several sequences, where
  // they are worth it.
  bool take(int64_t room) {
    room -= load_.rows;
    if (room <= 0) return false;
    Guesses best = best_known(room);
    for (Guesses& other : std::array{best_joining(), best_of_model(room)}) {
      if (mean(other) > mean(best)) best = std::move(other);
    }
    if (best.wishes.empty()) return false;
    for (const size_t i : best.wishes) {
      ++(best.by_model ? wishes_[i].model_count : wishes_[i].known_count);
      values_[i] *= wishes_[i].chance(wishes_[i].count());
    }
    load_.add(best.load, 1);
    tokens_ += best.gain;
    if (best.by_model) {
      if (best.model_step == model_rows_.size()) model_rows_.push_back(0);
      model_rows_[best.model_step] += best.load.rows;
    }
    taken_.push_back(std::move(best));
    return true;
  }

  // Drops what was taken last until no sequence is much slower for it.
  void be_fair() {
    while (!taken_.empty()) {
      if (longer({}, load_) <= (1 + least_gain()) / (1 - kSlowerMax) - 1) return;
      const Guesses& last = taken_.back();
      for (const size_t i : last.wishes) {
        --(last.by_model ? wishes_[i].model_count : wishes_[i].known_count);
      }
      load_.add(last.load, -1);
      taken_.pop_back();
    }
  }

 private:
  // The next guesses of these, at once.
  struct Guesses {
    std::vector<size_t> wishes;
    double gain = 0;
    GuessLoad load = {};
    bool by_model = false;
    size_t model_step = 0;
  };

  static double mean(const Guesses& guesses) {
    return guesses.wishes.empty() ? -1 : guesses.gain / static_cast<double>(guesses.wishes.size());
  }

  // By what share a step with one load is lengthened by another.
  double longer(const GuessLoad& there, const GuessLoad& more) const {
    const int64_t before = rows_before_ + there.rows;
    const double price = cost_.price(before);
    const double seconds = cost_.seconds(before);
    const double rows = static_cast<double>(more.rows) + more.rows_again;
    const auto spares = static_cast<double>(more.spares);
    if (seconds <= 0) return price * rows + states_.spare_price * spares;
    const double spare_seconds = states_.spare_price * cost_.seconds(1);
    const double all = seconds * (1 + price * there.rows_again) + there.model_seconds +
                       spare_seconds * static_cast<double>(there.spares);
    return (seconds * price * rows + more.model_seconds + spare_seconds * spares) / all;
  }
  bool is_worth(double gain, const GuessLoad& load) const {
    return gain >= kGuessMargin * tokens_ * longer(load_, load);
  }
  bool may_ask_model(const GuessWish& wish) const {
    return wish.known_count == std::ssize(wish.known) && wish.model_count < wish.model_max;
  }
  // Whether the next guess is the first that its state is kept for.
  bool takes_spare(const GuessWish& wish) const {
    return states_.there && !wish.needs_spare(wish.count()) && wish.needs_spare(wish.count() + 1);
  }
  int64_t spares_left() const { return states_.spare_count - load_.spares; }

  // The next known guess of a sequence; where its state is to be kept, as many as make up for that.
  Guesses next_known(size_t i, int64_t room) const {
    const GuessWish& wish = wishes_[i];
    const bool takes = takes_spare(wish);
    if (takes && spares_left() <= 0) return {};
    Guesses some{.load = {.spares = takes ? 1 : 0}};
    double value = values_[i];
    for (int32_t at = wish.known_count; at < std::ssize(wish.known); value *= wish.chance(++at)) {
      if (value < kGuessChanceLeast || some.load.rows == room) return {};
      some.wishes.push_back(i);
      some.gain += value;
      ++some.load.rows;
      some.load.rows_again += states_.rows_again(wish, at, value);
      if (is_worth(some.gain, some.load)) return some;
      if (!takes) return {};
    }
    return {};
  }

  Guesses best_known(int64_t room) const {
    Guesses best;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      Guesses next = next_known(i, room);
      if (mean(next) > mean(best)) best = std::move(next);
    }
    return best;
  }

  // Of a guess of the draft model.
  GuessLoad load_of_model(size_t i, double model_seconds) const {
    const GuessWish& wish = wishes_[i];
    return {.rows = 1,
            .rows_again = states_.rows_again(wish, wish.count(), values_[i]),
            .spares = takes_spare(wish) ? 1 : 0,
            .model_seconds = model_seconds};
  }

  // The likeliest guess of a step of the draft model that is made for others.
  Guesses best_joining() const {
    Guesses best;
    for (size_t i = 0; i < wishes_.size(); ++i) {
      const auto step = static_cast<size_t>(wishes_[i].model_count);
      if (!may_ask_model(wishes_[i]) || step >= model_rows_.size()) continue;
      if (values_[i] < kGuessChanceLeast || values_[i] <= best.gain) continue;
      const int64_t rows = model_rows_[step];
      const GuessLoad load =
          load_of_model(i, model_cost_.seconds(rows + 1) - model_cost_.seconds(rows));
      if (load.spares > spares_left() || !is_worth(values_[i], load)) continue;
      best = {
          .wishes = {i}, .gain = values_[i], .load = load, .by_model = true, .model_step = step};
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
    Guesses some{.by_model = true, .model_step = model_rows_.size()};
    Guesses best;
    double best_left = 0;
    for (const size_t i : order) {
      if (some.load.rows == room) break;
      const GuessLoad one = load_of_model(i, 0);
      if (some.load.spares + one.spares > spares_left()) continue;
      some.wishes.push_back(i);
      some.gain += values_[i];
      some.load.add(one, 1);
      some.load.model_seconds = model_cost_.seconds(some.load.rows);
      const double left = some.gain - kGuessMargin * tokens_ * longer(load_, some.load);
      if (left < best_left) continue;
      best_left = left;
      best = some;
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
  const StateCosts& states_;
  const int64_t sequences_;
  int64_t rows_before_;         // of the step without guesses
  std::vector<double> values_;  // of the next guess of each
  std::vector<Guesses> taken_;
  GuessLoad load_;                   // of those taken
  double tokens_;                    // that the step brings
  std::vector<int64_t> model_rows_;  // of the draft model's steps, one a guess
};

}  // namespace

void share_step(std::span<GuessWish> wishes, const StepCost& cost, int64_t sequences, int64_t room,
                const StepCost& model_cost, const StateCosts& states) {
  SharedStep step(wishes, cost, model_cost, states, sequences);
  while (step.take(room)) {
  }
  step.be_fair();
}

void fill_step(std::span<GuessWish> wishes, int64_t room, const StateCosts& states) {
  int64_t left = std::max<int64_t>(room, 0);
  int64_t spares_left = states.there ? states.spare_count : std::ssize(wishes);
  const auto take = [&left](int64_t wanted) {
    const int64_t taken = std::min(left, wanted);
    left -= taken;
    return static_cast<int32_t>(taken);
  };
  for (GuessWish& wish : wishes) {
    const bool whole = spares_left > 0;
    wish.known_count = take(whole ? std::ssize(wish.known) : wish.certain_count);
    wish.model_count = take(whole ? wish.model_max : 0);
    if (wish.needs_spare(wish.count())) --spares_left;
  }
}

double best_speedup(const GuessWish& wish, const StepCost& cost, int64_t sequences,
                    const StepCost& model_cost, const StateCosts& states) {
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
    const double price = step > 0 ? cost.price(rows) * cost.seconds(rows) / step : cost.price(rows);
    time += price * (1 + states.rows_again(wish, i, value));
    if (states.there && wish.needs_spare(i + 1) && !wish.needs_spare(i)) time += states.spare_price;
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
