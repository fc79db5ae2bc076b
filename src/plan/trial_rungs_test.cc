#include "plan/trial_rungs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"

namespace jige::plan {
namespace {

using Steps = std::vector<int64_t>;

TEST(TrialRungs, LeaveOneTrialForTheLastPart) {
  EXPECT_EQ(rung_steps({.trials = 9, .factor = 3, .steps = 900}), (Steps{100, 300}));
  EXPECT_EQ(rung_steps({.trials = 12, .factor = 3, .steps = 900}), (Steps{34, 100, 300}));
  EXPECT_EQ(rung_steps({.trials = 2, .factor = 2, .steps = 7}), (Steps{4}));
  EXPECT_EQ(rung_steps({.trials = 1, .factor = 2, .steps = 900}), Steps{});
  EXPECT_EQ(rung_steps({.trials = 9, .factor = 3, .steps = 1}), Steps{});
}

TEST(TrialRungs, StandWhereLossesAreMeasured) {
  EXPECT_EQ(rung_steps({.trials = 9, .factor = 3, .steps = 900, .every = 40}), (Steps{120, 320}));
  EXPECT_EQ(rung_steps({.trials = 9, .factor = 3, .steps = 900, .every = 300}), (Steps{300}));
  EXPECT_EQ(rung_steps({.trials = 9, .factor = 3, .steps = 900, .every = 900}), Steps{});
}

TEST(TrialRungs, BeginWhereTheyAreToldTo) {
  EXPECT_EQ(rung_steps({.trials = 9, .factor = 3, .steps = 900, .first = 20}), (Steps{20, 60}));
  EXPECT_EQ(rung_steps({.trials = 27, .factor = 3, .steps = 900, .first = 300}), (Steps{300}));
  EXPECT_EQ(rung_steps({.trials = 27, .factor = 3, .steps = 900, .first = 900}), Steps{});
}

// Whatever is asked: ascending multiples before the end, no more than are needed.
TEST(TrialRungs, HoldToWhatTheyPromise) {
  Rng rng(derive_key(7, "rungs"));
  const auto up_to = [&](uint64_t top) { return static_cast<int64_t>(1 + rng.below(top)); };
  for (int round = 0; round < 2000; ++round) {
    const int64_t every = up_to(30);
    const RungRequest request{.trials = up_to(300),
                              .factor = 1 + up_to(round % 2 == 0 ? 4 : 999),
                              .steps = round % 50 == 0 ? INT64_MAX / 2 : up_to(2000),
                              .first = rng.below(2) == 0 ? 0 : every * up_to(20),
                              .every = every};
    const Steps steps = rung_steps(request);
    int64_t left = request.trials;
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_GT(left, 1);
      left = count_going_on(left, request.factor);
      EXPECT_GT(steps[i], i == 0 ? 0 : steps[i - 1]);
      EXPECT_LT(steps[i], request.steps);
      EXPECT_EQ(steps[i] % every, 0);
    }
    if (!steps.empty() && request.first > 0) {
      EXPECT_EQ(steps[0], request.first);
    }
  }
}

// Beside the definition: a trial goes on where fewer than the count are better or as good and
// ahead.
TEST(TrialRungs, LetTheBestGoOn) {
  Rng rng(derive_key(8, "rungs"));
  for (int round = 0; round < 500; ++round) {
    std::vector<double> losses(rng.below(20));
    for (double& loss : losses) loss = static_cast<double>(rng.below(6));
    for (double& loss : losses) {
      if (loss == 5) loss = NAN;
    }
    const int64_t factor = 2 + static_cast<int64_t>(rng.below(4));
    std::vector<size_t> expected;
    for (size_t i = 0; i < losses.size(); ++i) {
      int64_t ahead = 0;
      for (size_t j = 0; j < losses.size(); ++j) {
        const bool better =
            losses[j] < losses[i] || (!std::isnan(losses[j]) && std::isnan(losses[i]));
        const bool worse =
            losses[i] < losses[j] || (!std::isnan(losses[i]) && std::isnan(losses[j]));
        if (better || (!worse && j < i)) ++ahead;
      }
      if (ahead * factor < std::ssize(losses)) expected.push_back(i);
    }
    EXPECT_EQ(trials_going_on(losses, factor), expected);
  }
}

}  // namespace
}  // namespace jige::plan
