// What the tests of guesses share.
#pragma once

#include <cstdint>

#include "base/rng.h"
#include "plan/guess_costs.h"

namespace jige::plan {

// Steps of base + slope a row, as many rows as are drawn below `rows_max`, with noise.
inline StepCost learned_cost(double base, double slope, int64_t rows_max, uint64_t seed = 1) {
  Rng rng(derive_key(seed, "step cost"));
  StepCost cost;
  for (int i = 0; i < 400; ++i) {
    const auto rows = static_cast<int64_t>(1 + rng.below(static_cast<uint64_t>(rows_max)));
    const double noise = 0.95 + 0.1 * rng.uniform();
    cost.add(rows, (base + slope * static_cast<double>(rows)) * noise);
  }
  return cost;
}

}  // namespace jige::plan
