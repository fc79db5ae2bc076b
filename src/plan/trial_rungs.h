// Successive halving: trials are compared behind a few steps (rungs), and only the best part of
// them goes on from each (Jamieson and Talwalkar, AISTATS 2016; Hyperband's inner loop).
//
//   9 trials, factor 3, 900 steps:   9 run 100 steps, the best 3 go on to 300, the best of these to
//                                    900: 900 + 600 + 600 of 8100 steps
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace jige::plan {

inline constexpr int64_t kHalvingFactorMax = 1000;

struct RungRequest {
  int64_t trials = 0;
  int64_t factor = 0;  // one of so many goes on
  int64_t steps = 0;   // of the longest trial
  int64_t first = 0;   // 0: where the last one, of steps / factor, leaves one trial
  int64_t every = 1;   // rungs are multiples of it
};

// The steps of the rungs, ascending, all before the last step, each `factor` times the one before
// but for rounding up; no more than leave one trial. Empty where none fits. REQUIRES: 2 <= factor
// <= kHalvingFactorMax, every >= 1, and first is 0 or a multiple of it.
std::vector<int64_t> rung_steps(const RungRequest& request);

// How many of so many trials go on.
inline int64_t count_going_on(int64_t trials, int64_t factor) {
  return (trials + factor - 1) / factor;
}

// Which of the trials with these losses go on, ascending: the least ones, of equals the first; what
// is no number is beyond all others.
std::vector<size_t> trials_going_on(std::span<const double> losses, int64_t factor);

}  // namespace jige::plan
