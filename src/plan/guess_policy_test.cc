#include "plan/guess_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "plan/guess_test_support.h"

namespace jige::plan {
namespace {

// So many guesses that are there, each with this chance.
GuessWish copies(double chance, size_t count) { return {.known = std::vector(count, chance)}; }
// So many that the draft model could make.
GuessWish of_model(double chance, int32_t count) {
  return {.model_max = count, .model_chance = chance};
}

int32_t worth(double chance, const StepCost& cost, int64_t room = 100) {
  GuessWish wish = copies(chance, 8);
  share_step(std::span(&wish, 1), cost, 1, room);
  return wish.count();
}

// All of `sequences` have a wish of this chance; guesses in all.
int32_t shared(double chance, const StepCost& cost, int64_t sequences) {
  std::vector<GuessWish> wishes(static_cast<size_t>(sequences), copies(chance, 8));
  share_step(wishes, cost, sequences, 1000);
  int32_t total = 0;
  for (const GuessWish& wish : wishes) total += wish.count();
  return total;
}

TEST(GuessTrust, FollowsWhatCameTrue) {
  using enum GuessSource;
  GuessTrust trust;
  const auto judge = [&trust](GuessSource source, int32_t hits, bool missed) {
    for (int32_t i = 0; i < hits; ++i) trust.judge(source, true);
    if (missed) trust.judge(source, false);
  };
  EXPECT_GT(trust.chance(kLongCopy), trust.chance(kCopy)) << "long matches are better evidence";
  EXPECT_GT(trust.chance(kCopy), trust.chance(kShortCopy));
  for (int i = 0; i < 60; ++i) judge(kShortCopy, 0, true);
  EXPECT_LT(trust.chance(kShortCopy), 0.03);
  EXPECT_EQ(trust.chance(kCopy), GuessTrust().chance(kCopy)) << "sources are judged apart";
  for (int i = 0; i < 10; ++i) judge(kShortCopy, 8, false);
  EXPECT_GT(trust.chance(kShortCopy), 0.9);
  for (int i = 0; i < 60; ++i) judge(kShortCopy, 1, true);
  EXPECT_NEAR(trust.chance(kShortCopy), 0.5, 0.05);
  EXPECT_EQ(trust.chance(kOnly), 1) << "certain";
  EXPECT_EQ(GuessTrust(0.3).chance(kModel), 0.3);
}

TEST(GuessSource, CopiesAreOfThreeLengths) {
  EXPECT_EQ(copy_source(2), GuessSource::kShortCopy);
  EXPECT_EQ(copy_source(4), GuessSource::kCopy);
  EXPECT_EQ(copy_source(7), GuessSource::kCopy);
  EXPECT_EQ(copy_source(8), GuessSource::kLongCopy);
}

TEST(GuessCounts, CountByKind) {
  using enum GuessSource;
  GuessCounts counts;
  counts.add(std::vector{kOnly, kForced, kCopy, kLongCopy, kModel, kModel}, 5);
  counts.add(GuessCounts(counts));
  EXPECT_EQ(counts.guessed, (std::array<int64_t, kGuessKindCount>{4, 4, 4}));
  EXPECT_EQ(counts.right, (std::array<int64_t, kGuessKindCount>{4, 4, 2}));
  const auto rows = counts.by_kind();
  EXPECT_EQ(rows[0].name, "forced");
  EXPECT_EQ(rows[2].name, guess_kind_name(GuessKind::kModel));
  EXPECT_EQ(rows[2].guessed, 4);
  EXPECT_EQ(rows[2].right, 2);
}

TEST(ShareStep, DraftsWhatIsWorthItsRow) {
  const StepCost cheap = learned_cost(0.01, 0.0002, 8);
  const StepCost dear = learned_cost(0.0005, 0.004, 8);
  EXPECT_EQ(worth(0.95, cheap), 8);
  EXPECT_EQ(worth(0.005, cheap), 0);
  EXPECT_EQ(worth(0.19, learned_cost(0.01, 0, 8)), 0) << "too little to be sure of, at any price";
  EXPECT_EQ(worth(1.0, dear), 0) << "a row that costs a step brings at most a step";
  EXPECT_GT(worth(0.6, cheap), worth(0.3, cheap));
  EXPECT_EQ(worth(0.95, cheap, 3), 3) << "no more than there is room for";
  EXPECT_EQ(worth(0.95, cheap, 0), 0);
  EXPECT_EQ(worth(0.95, cheap, -4), 0);
}

TEST(ShareStep, DraftsStopWhereAStepIsBoundByArithmetic) {
  const StepCost cost = learned_cost(0.01, 0.0006, 16);
  EXPECT_EQ(shared(0.9, cost, 1), 8);
  EXPECT_GT(shared(0.9, cost, 4), 8);
  EXPECT_EQ(shared(0.9, cost, 64), 0);
}

TEST(ShareStep, TokensASecondAreWhatIsRaised) {
  // By trying: no other number of guesses for each promises a tenth more.
  const double base = 0.01;
  const double slope = 0.0004;
  const StepCost cost = learned_cost(base, slope, 16);
  for (const double chance : {0.1, 0.6, 0.9}) {
    for (const int64_t sequences : {1, 3, 8, 20}) {
      const auto rate = [&](double guesses) {  // of each sequence
        const auto s = static_cast<double>(sequences);
        const double tokens = (1 - std::pow(chance, guesses + 1)) / (1 - chance);
        return s * tokens / (base + slope * s * (1 + guesses));
      };
      double best = 0;
      for (int guesses = 0; guesses <= 8; ++guesses) best = std::max(best, rate(guesses));
      const double taken =
          static_cast<double>(shared(chance, cost, sequences)) / static_cast<double>(sequences);
      EXPECT_GT(rate(taken), 0.9 * best) << chance << " for " << sequences;
    }
  }
}

TEST(ShareStep, NobodyPaysMoreThanATenthForOthers) {
  const StepCost cost = learned_cost(0.01, 0.0002, 8);
  for (const int64_t sequences : {2, 5}) {  // the others have no wish at all, or an unlikely one
    std::vector<GuessWish> wishes = {copies(0.98, 60)};
    if (sequences == 2) wishes.push_back(copies(0.001, 8));
    share_step(wishes, cost, sequences, 100);
    EXPECT_GT(wishes[0].count(), 1);
    EXPECT_LE(wishes[0].count() * cost.price(sequences), 0.112);
  }
  // Where all gain, all may be lengthened.
  EXPECT_GT(shared(0.98, cost, 5) * cost.price(5), 0.112);
}

TEST(ShareStep, TheLikeliestGuessesComeFirst) {
  const StepCost cost = learned_cost(0.01, 0.00001, 8);
  std::vector<GuessWish> wishes = {copies(0.5, 8), copies(0.9, 3), copies(0.2, 8)};
  share_step(wishes, cost, 3, 5);
  EXPECT_EQ(wishes[1].count(), 3);
  EXPECT_EQ(wishes[0].count(), 2);
  EXPECT_EQ(wishes[2].count(), 0);
}

// All of `sequences` are guessed by the draft model; guesses of each, which are as many for all.
int32_t of_model(double chance, const StepCost& cost, const StepCost& model_cost,
                 int64_t sequences) {
  std::vector<GuessWish> wishes(static_cast<size_t>(sequences), of_model(chance, 8));
  share_step(wishes, cost, sequences, 1000, model_cost);
  for (const GuessWish& wish : wishes) EXPECT_EQ(wish.count(), wishes[0].count());
  return wishes[0].count();
}

TEST(ShareStep, ADraftModelIsRunWhereItsStepsAreWorthIt) {
  const StepCost cost = learned_cost(0.010, 0.0002, 8);
  const StepCost cheap = learned_cost(0.0008, 0.00002, 8);
  EXPECT_GE(of_model(0.9, cost, cheap, 1), 4);
  EXPECT_GT(of_model(0.9, cost, cheap, 1), of_model(0.6, cost, cheap, 1));
  EXPECT_GE(of_model(0.6, cost, cheap, 1), 1);
  EXPECT_EQ(of_model(0.1, cost, cheap, 1), 0);
  EXPECT_EQ(of_model(1.0, cost, cost, 1), 0) << "as slow as what it saves";
  EXPECT_EQ(of_model(0.9, learned_cost(0.010, 0.0006, 16), cheap, 64), 0) << "bound by arithmetic";
  EXPECT_GE(of_model(0.9, cost, {}, 1), 4) << "until it was measured, it is tried";
  // What pays for one guess need not pay for two.
  const StepCost dear = learned_cost(0.006, 0.00002, 8);
  EXPECT_EQ(of_model(0.7, cost, dear, 1), 0);
  const StepCost half = learned_cost(0.0045, 0.00002, 8);
  EXPECT_EQ(of_model(0.7, cost, half, 1), 1);
  EXPECT_GE(of_model(0.95, cost, half, 1), 2) << "the step is longer by the first, too";
}

TEST(ShareStep, TokensASecondAreWhatADraftModelRaises) {
  const double base = 0.01, slope = 0.0004, model_base = 0.0007, model_slope = 0.00005;
  const StepCost cost = learned_cost(base, slope, 16);
  const StepCost model_cost = learned_cost(model_base, model_slope, 16);
  for (const double chance : {0.5, 0.7, 0.9}) {
    for (const int64_t sequences : {1, 3, 8, 20}) {
      const auto rate = [&](double guesses) {  // of each sequence
        const auto s = static_cast<double>(sequences);
        const double tokens = (1 - std::pow(chance, guesses + 1)) / (1 - chance);
        return s * tokens /
               (base + slope * s * (1 + guesses) + guesses * (model_base + model_slope * s));
      };
      double best = 0;
      for (int guesses = 0; guesses <= 8; ++guesses) best = std::max(best, rate(guesses));
      EXPECT_GT(rate(of_model(chance, cost, model_cost, sequences)), 0.87 * best)
          << chance << " for " << sequences;
    }
  }
}

TEST(ShareStep, NobodyWaitsForADraftModelThatIsRunForOthers) {
  const StepCost cost = learned_cost(0.010, 0.0001, 8);
  const StepCost model_cost = learned_cost(0.002, 0.00002, 8);
  const GuessWish eager = of_model(0.95, 8);
  std::vector<GuessWish> wishes = {eager, eager, {}};
  share_step(wishes, cost, 3, 100, model_cost);
  EXPECT_EQ(wishes[0].count(), 0) << "the third would wait a fifth longer";
  wishes[2].invests = true;
  share_step(wishes, cost, 3, 100, model_cost);
  EXPECT_GT(wishes[0].count(), 1) << "the third waits to gain itself";
  // Unlikely ones do not go with the others.
  wishes = {eager, of_model(0.3, 8)};
  share_step(wishes, cost, 2, 100, learned_cost(0.0003, 0.00001, 8));
  EXPECT_GT(wishes[0].count(), wishes[1].count());
}

// A step that can be computed without a policy: times are lines.
struct SmallStep {
  double base, slope, model_base, model_slope;
  int64_t sequences, room;
  std::vector<GuessWish> wishes;

  static StepCost line(double base, double slope) {
    StepCost cost;
    for (int i = 0; i < 200; ++i) {
      cost.add(1 + i % 8, base + slope * static_cast<double>(1 + i % 8));
    }
    return cost;
  }
  explicit SmallStep(Rng& rng)
      : base(0.01),
        slope(rng.below(4) == 0 ? 0.003 : 0.0001 + 0.0005 * rng.uniform()),
        model_base(0.0004 + 0.003 * rng.uniform()),
        model_slope(0.00005),
        sequences(static_cast<int64_t>(1 + rng.below(3))),
        room(static_cast<int64_t>(rng.below(10))) {
    for (int64_t i = 0; i < sequences; ++i) {
      GuessWish wish;
      for (uint64_t k = rng.below(4); k > 0; --k) {
        wish.known.push_back(rng.below(3) == 0 ? 1 : rng.uniform());
      }
      wish.model_max = static_cast<int32_t>(rng.below(4));
      wish.model_chance = rng.uniform();
      wishes.push_back(wish);
    }
  }

  int64_t rows() const {
    int64_t count = 0;
    for (const GuessWish& wish : wishes) count += wish.count();
    return count;
  }
  double seconds() const {
    double all = base + slope * static_cast<double>(sequences + rows());
    for (int32_t step = 0;; ++step) {
      const auto count = std::ranges::count_if(
          wishes, [step](const GuessWish& wish) { return wish.model_count > step; });
      if (count == 0) return all;
      all += model_base + model_slope * static_cast<double>(count);
    }
  }
  double rate() const {
    auto tokens = static_cast<double>(sequences);
    for (const GuessWish& wish : wishes) tokens += wish.gain_of(wish.count());
    return tokens / seconds();
  }
  bool may_be() const {
    for (const GuessWish& wish : wishes) {
      if (wish.model_count > 0 && wish.known_count < std::ssize(wish.known)) return false;
    }
    return rows() <= room;
  }
  // Nobody is slower by more than a tenth.
  bool is_fair() const {
    double least = 100;
    for (const GuessWish& wish : wishes) least = std::min(least, wish.gain_of(wish.count()));
    const double alone = base + slope * static_cast<double>(sequences);
    return (1 + least) / seconds() >= 0.895 / alone;
  }
  // The most tokens a second of all numbers of guesses that there could be.
  double best_rate(size_t wish = 0) {
    if (wish == wishes.size()) return may_be() && is_fair() ? rate() : 0;
    double best = 0;
    GuessWish& one = wishes[wish];
    for (one.known_count = 0; one.known_count <= std::ssize(one.known); ++one.known_count) {
      for (one.model_count = 0; one.model_count <= one.model_max; ++one.model_count) {
        best = std::max(best, best_rate(wish + 1));
      }
    }
    return best;
  }
};

// By trying all.
TEST(ShareStep, ComesNearTheBestOfAllNumbersOfGuesses) {
  Rng rng(derive_key(5, "small steps"));
  double shares = 0;
  int far_off = 0;
  int guessed = 0;
  int by_model = 0;
  constexpr int kSteps = 1500;
  for (int i = 0; i < kSteps; ++i) {
    SmallStep step(rng);
    share_step(step.wishes, SmallStep::line(step.base, step.slope), step.sequences, step.room,
               SmallStep::line(step.model_base, step.model_slope));
    ASSERT_TRUE(step.may_be()) << i;
    ASSERT_TRUE(step.is_fair()) << i;
    const double rate = step.rate();
    guessed += step.rows() > 0 ? 1 : 0;
    for (const GuessWish& wish : step.wishes) by_model += wish.model_count > 0 ? 1 : 0;
    SmallStep none = step;
    for (GuessWish& wish : none.wishes) wish.known_count = wish.model_count = 0;
    EXPECT_GE(rate, 0.999 * none.rate()) << i;
    const double share = rate / step.best_rate();
    // Where guesses of one could be made fair by those of another, all may be dropped.
    EXPECT_GT(share, 0.55) << i;
    far_off += share < 0.8 ? 1 : 0;
    shares += share;
  }
  EXPECT_GT(shares / kSteps, 0.975);
  EXPECT_LT(far_off, kSteps / 40);
  EXPECT_GT(guessed, kSteps / 2);
  EXPECT_GT(by_model, kSteps / 10);
}

TEST(ShareStep, TheDraftModelGoesOnBehindWhatIsKnown) {
  const StepCost cost = learned_cost(0.01, 0.0001, 8);
  const StepCost model_cost = learned_cost(0.0005, 0.00001, 8);
  GuessWish wish{.known = {1, 1, 0.9}, .model_max = 4, .model_chance = 0.8};
  share_step(std::span(&wish, 1), cost, 1, 100, model_cost);
  EXPECT_EQ(wish.known_count, 3);
  EXPECT_GE(wish.model_count, 2);
  wish.known[1] = 0.1;
  share_step(std::span(&wish, 1), cost, 1, 100, model_cost);
  EXPECT_EQ(wish.known_count, 1);
  EXPECT_EQ(wish.model_count, 0) << "not behind what was not taken";
  wish.known[1] = 1;
  fill_step(std::span(&wish, 1), 5);
  EXPECT_EQ(wish.known_count, 3);
  EXPECT_EQ(wish.model_count, 2);
  fill_step(std::span(&wish, 1), 2);
  EXPECT_EQ(wish.count(), 2);
  EXPECT_EQ(wish.model_count, 0);
}

// Whose guesses are not worth a step of the draft model may be in one that is made anyway.
TEST(ShareStep, OthersJoinAStepOfTheDraftModel) {
  const StepCost cost = learned_cost(0.01, 0.0001, 8);
  const StepCost model_cost = learned_cost(0.0045, 0.00001, 8);
  const GuessWish behind{.known = {0.5}, .model_max = 1, .model_chance = 0.9};
  std::vector<GuessWish> wishes = {behind, behind};
  share_step(wishes, cost, 2, 100, model_cost);
  EXPECT_EQ(wishes[0].model_count + wishes[1].model_count, 0);
  wishes.assign(2, of_model(0.98, 1));
  wishes.push_back(behind);
  share_step(wishes, cost, 3, 100, model_cost);
  EXPECT_EQ(wishes[0].model_count, 1);
  EXPECT_EQ(wishes[2].model_count, 1);
}

TEST(ShareStep, AStateIsKeptWhereAllGuessesTogetherMakeUpForIt) {
  const StepCost cost = learned_cost(0.01, 0.0001, 8);
  const auto taken = [&](GuessWish wish, const StateCosts& states, int64_t sequences = 1) {
    share_step(std::span(&wish, 1), cost, sequences, 100, {}, states);
    return wish.count();
  };
  EXPECT_EQ(taken(copies(0.9, 7), {.there = true, .spare_price = 0.03}), 7);
  // What one guess does not make up for, seven do; of certain ones no state is kept.
  EXPECT_EQ(taken(copies(0.9, 1), {.there = true, .spare_price = 0.9}), 0);
  EXPECT_GE(taken(copies(0.9, 7), {.there = true, .spare_price = 0.9}), 2);
  EXPECT_EQ(taken(copies(0.5, 7), {.there = true, .spare_price = 0.9}), 0);
  GuessWish certain{.known = {1, 1, 1}, .certain_count = 3};
  EXPECT_EQ(taken(certain, {.there = true, .spare_price = 5}), 3);
  certain.known.push_back(0.9);
  EXPECT_EQ(taken(certain, {.there = true, .spare_price = 5}), 3);
  // All wait for it.
  EXPECT_GE(taken(copies(0.9, 7), {.there = true, .spare_price = 0.2}, 1), 5);
  EXPECT_EQ(taken(copies(0.9, 7), {.there = true, .spare_price = 0.2}, 20), 0);
}

TEST(ShareStep, OnlySoManySequencesHaveGuessesAsStatesCanBeKept) {
  const StepCost cost = learned_cost(0.01, 0.0001, 8);
  const StateCosts two{.there = true, .spare_price = 0.01, .spare_count = 2};
  for (const bool fills : {false, true}) {
    std::vector<GuessWish> wishes = {copies(0.7, 2), copies(0.9, 2), copies(0.8, 2)};
    wishes.push_back({.known = {1, 1, 0.5}, .certain_count = 2});
    fills ? fill_step(wishes, 100, two) : share_step(wishes, cost, 4, 100, {}, two);
    EXPECT_EQ(wishes[0].count(), fills ? 2 : 0);
    EXPECT_EQ(wishes[1].count(), 2) << "the likeliest have them";
    EXPECT_EQ(wishes[2].count(), fills ? 0 : 2);
    EXPECT_EQ(wishes[3].count(), 2) << "what is certain needs none";
  }
  std::vector<GuessWish> wishes(3, of_model(0.9, 3));
  share_step(wishes, cost, 3, 100, learned_cost(0.0004, 0.00001, 8), two);
  EXPECT_EQ(std::ranges::count_if(wishes, [](const GuessWish& one) { return one.count() > 0; }), 2);
}

// Rows that may run again are rows, too.
TEST(ShareStep, WhatRunsAgainHasAPrice) {
  const StepCost cost = learned_cost(0.01, 0.0012, 16);
  int64_t with = 0, without = 0;
  for (const double chance : {0.5, 0.6, 0.7, 0.8, 0.9}) {
    GuessWish wish = copies(chance, 8);
    share_step(std::span(&wish, 1), cost, 1, 100, {}, {.there = true});
    with += wish.count();
    share_step(std::span(&wish, 1), cost, 1, 100);
    without += wish.count();
  }
  EXPECT_LT(with, without);
  EXPECT_GT(with, 0);
  const StateCosts states{.there = true};
  const GuessWish wish = copies(0.5, 8);
  EXPECT_EQ(states.rows_again(wish, 0, 0.5), 0) << "the state stands in front of the first";
  EXPECT_NEAR(states.rows_again(wish, 2, 0.125), 2 * 0.25 * 0.5, 1e-12);
  EXPECT_EQ(StateCosts{}.rows_again(wish, 2, 0.125), 0);
}

TEST(BestSpeedup, SaysWhichOfTwoPromisesMore) {
  const StepCost cost = learned_cost(0.01, 0.0002, 8);
  const StepCost cheap = learned_cost(0.0008, 0.00002, 8);
  const StepCost dear = learned_cost(0.006, 0.00002, 8);
  const auto speedup = [&](const GuessWish& wish, const StepCost& model_cost) {
    return best_speedup(wish, cost, 1, model_cost);
  };
  EXPECT_EQ(speedup({}, cheap), 1);
  EXPECT_EQ(speedup(copies(0.001, 4), cheap), 1);
  EXPECT_NEAR(speedup(copies(1, 1), cheap), 2 / 1.02, 0.02);
  EXPECT_GT(speedup(copies(0.9, 7), cheap), speedup(of_model(0.9, 7), cheap));
  EXPECT_LT(speedup(copies(0.5, 7), cheap), speedup(of_model(0.9, 7), cheap));
  EXPECT_GT(speedup(copies(0.5, 7), dear), speedup(of_model(0.9, 7), dear));
  // By a line: three guesses of the model behind one that is certain.
  const GuessWish wish{.known = {1}, .model_max = 3, .model_chance = 0.9};
  const double tokens = 1 + 1 + 0.9 + 0.81 + 0.729;
  EXPECT_NEAR(speedup(wish, cheap), tokens / ((0.01 + 0.0002 * 5 + 3 * 0.00082) / 0.0102), 0.1);
}

TEST(WorthReading, WhatTheRestOfAnAnswerMakesUpFor) {
  EXPECT_TRUE(worth_reading(990, 0.0001, 0.01, 40)) << "0.1 s, of 0.4 s";
  EXPECT_FALSE(worth_reading(1010, 0.0001, 0.01, 40));
  EXPECT_FALSE(worth_reading(990, 0.0001, 0.01, 39));
  EXPECT_TRUE(worth_reading(1 << 20, 0, 0.01, 1)) << "not measured";
  EXPECT_TRUE(worth_reading(1 << 20, 0.0001, 0, 1));
}

}  // namespace
}  // namespace jige::plan
