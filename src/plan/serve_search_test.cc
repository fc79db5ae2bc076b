#include "plan/serve_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/rng.h"

namespace jige::plan {
namespace {

// A grid of scores that only grow along every variable, by random steps, many of them 0; some of
// the highest cannot run. With `noise` each is off by up to that share.
class RandomGrid {
 public:
  RandomGrid(std::vector<int32_t> sizes, uint64_t seed, double noise = 0)
      : sizes_(std::move(sizes)), rng_(derive_key(seed, "grid")), noise_(noise) {
    size_t count = 1;
    for (const int32_t size : sizes_) count *= static_cast<size_t>(size);
    scores_.resize(count);
    const double limit = rng_.below(2) == 0 ? INFINITY : 40 + 40 * rng_.uniform();
    for (size_t i = 0; i < count; ++i) {
      SettingScore before{.throughput = 1, .latency = 1};
      size_t stride = 1;
      for (size_t axis = sizes_.size(); axis > 0; --axis) {
        const auto size = static_cast<size_t>(sizes_[axis - 1]);
        if (i / stride % size > 0) {
          before.throughput = std::max(before.throughput, scores_[i - stride].throughput);
          before.latency = std::max(before.latency, scores_[i - stride].latency);
        }
        stride *= size;
      }
      scores_[i] = {.throughput = before.throughput + step(), .latency = before.latency + step()};
      if (scores_[i].latency > limit) scores_[i].latency = INFINITY;
    }
    for (SettingScore& score : scores_) {
      score.throughput *= 1 + noise * (2 * rng_.uniform() - 1);
      score.latency *= 1 + noise * (2 * rng_.uniform() - 1);
    }
  }

  const std::vector<int32_t>& sizes() const { return sizes_; }
  EvaluateSetting evaluate() {
    return [this](const Setting& at) {
      EXPECT_TRUE(asked_.insert(at).second) << "asked twice";
      size_t index = 0;
      for (size_t axis = 0; axis < at.size(); ++axis) {
        EXPECT_TRUE(at[axis] >= 0 && at[axis] < sizes_[axis]);
        index = index * static_cast<size_t>(sizes_[axis]) + static_cast<size_t>(at[axis]);
      }
      return scores_[index];
    };
  }
  void forget() { asked_.clear(); }
  double random_bound() { return 1 + 30 * rng_.uniform() * rng_.uniform(); }

 private:
  double step() { return rng_.below(3) == 0 ? 0 : 4 * rng_.uniform(); }

  std::vector<int32_t> sizes_;
  Rng rng_;
  const double noise_;
  std::vector<SettingScore> scores_;
  std::set<Setting> asked_;
};

struct Compared {
  SearchResult box, all;
};

Compared compare(RandomGrid& grid, const SearchOptions& options) {
  Compared found;
  grid.forget();
  found.box = search_settings(grid.sizes(), grid.evaluate(), options);
  grid.forget();
  found.all = search_all_settings(grid.sizes(), grid.evaluate(), options);
  EXPECT_LE(found.box.evaluations, found.all.evaluations);
  EXPECT_EQ(found.box.best.has_value(), found.all.best.has_value());
  return found;
}

std::vector<int32_t> random_sizes(uint64_t seed) {
  Rng rng(derive_key(seed, "sizes"));
  std::vector<int32_t> sizes(1 + rng.below(4));
  for (int32_t& size : sizes) size = static_cast<int32_t>(1 + rng.below(sizes.size() < 3 ? 16 : 6));
  return sizes;
}

TEST(ServeSearch, FindsWhatLookingAtAllSettingsDoes) {
  int found = 0, none = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    RandomGrid grid(random_sizes(seed), seed);
    const SearchOptions options{.latency_max = grid.random_bound()};
    const auto [box, all] = compare(grid, options);
    if (!all.best) {
      ++none;
      continue;
    }
    ++found;
    EXPECT_EQ(box.best->score.throughput, all.best->score.throughput) << "seed " << seed;
    EXPECT_LE(box.best->score.latency, options.latency_max);
  }
  EXPECT_GT(found, 300);
  EXPECT_GT(none, 20);
}

TEST(ServeSearch, LosesNoMoreThanTheToleranceWhereSettingsAreNearlyMonotone) {
  constexpr double kNoise = 0.02;
  // Of two scores each is off by the noise.
  constexpr double kTolerance = (1 + kNoise) / (1 - kNoise) - 1;
  double worst = 1;
  int worse = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    RandomGrid grid(random_sizes(seed), seed, kNoise);
    const auto [box, all] = compare(grid, {.latency_max = grid.random_bound(),
                                           .throughput_tolerance = kTolerance,
                                           .latency_tolerance = kTolerance});
    if (!all.best) continue;
    const double share = box.best->score.throughput / all.best->score.throughput;
    EXPECT_GE(share * (1 + kTolerance), 1) << "seed " << seed;
    worst = std::min(worst, share);
    worse += share < 1;
  }
  EXPECT_GT(worse, 0) << "the noise is too small to matter";
  EXPECT_LT(worst, 1);
}

TEST(ServeSearch, LooksAtFewOfManySettings) {
  int64_t seen = 0, all = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    RandomGrid grid({24, 24}, seed);
    const auto found = compare(grid, {.latency_max = 12});
    seen += found.box.evaluations;
    all += found.all.evaluations;
  }
  RecordProperty("evaluations", static_cast<int>(seen));
  EXPECT_LT(seen, all / 10) << seen << " of " << all;
}

TEST(ServeSearch, TheEndsOfTheGrid) {
  const std::vector<int32_t> sizes = {5, 7};
  const EvaluateSetting sum = [](const Setting& at) {
    const double both = 1 + at[0] + at[1];
    return SettingScore{both, both};
  };
  // All keep the bound: the highest corner is looked at, and the lowest before it.
  SearchResult found = search_settings(sizes, sum, {.latency_max = 11});
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->at, (Setting{4, 6}));
  EXPECT_EQ(found.evaluations, 2);
  // None does: the least latency says how far off they are.
  found = search_settings(sizes, sum, {.latency_max = 0.5});
  EXPECT_FALSE(found.best);
  ASSERT_TRUE(found.lowest);
  EXPECT_EQ(found.lowest->at, (Setting{0, 0}));
  EXPECT_EQ(found.lowest->score.latency, 1);
  EXPECT_EQ(found.evaluations, 1);
  found = search_settings(sizes, sum, {.latency_max = 1});
  EXPECT_EQ(found.best->at, (Setting{0, 0}));
  // One setting in all.
  found = search_settings(std::vector<int32_t>{1, 1, 1},
                          [](const Setting&) {
                            return SettingScore{2, 3};
                          },
                          {.latency_max = 3});
  EXPECT_EQ(found.best->score.throughput, 2);
  EXPECT_EQ(found.evaluations, 1);
}

TEST(ServeSearch, WhatCannotRunIsNeverChosen) {
  const EvaluateSetting evaluate = [](const Setting& at) {
    SettingScore score{.throughput = 1.0 + at[0]};
    if (at[0] < 3) score.latency = 1.0 + at[0];
    return score;
  };
  const std::vector<int32_t> sizes = {9};
  EXPECT_EQ(search_settings(sizes, evaluate, {}).best->at, (Setting{2}));
  EXPECT_EQ(search_all_settings(sizes, evaluate, {}).best->at, (Setting{2}));
  const EvaluateSetting never = [](const Setting&) { return SettingScore{.throughput = 1}; };
  EXPECT_FALSE(search_settings(sizes, never, {}).best);
  EXPECT_FALSE(search_all_settings(sizes, never, {}).lowest);
}

}  // namespace
}  // namespace jige::plan
