// Several trainings that begin alike: a plan in which what they share is run once.
//
// A trial has a number of steps, a text that decides all of them and, for each, a value that
// decides it. The state behind step t is the same for trials whose texts and whose values of the
// steps 1 to t agree, so those steps are run once. The last step of a trial is its own, whatever
// others do: what is done behind it is that of a trial that ends.
//
//   steps of A  1 1 1 1 5 6            A runs them all and keeps a branch behind step 4 on its way,
//   steps of B  1 1 1 1 1 7 8          B begins there: 13 steps, of which 9 are run
//
// The plan is a list of runs, one for each trial, to be made one after another. A run begins anew
// or from a branch, which is what an earlier run has kept behind one of its steps. A branch is
// given up when the last run that begins there has begun.
//
// Where trials part, the part of the tree that keeps most branches at once comes last, for then the
// branch before it is gone; of equals the longest comes first. So no more than log2(trials)
// branches are there at once, and no order has fewer (trial_tree_test.cc). To be on one machine,
// all orders take as long.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace jige::plan {

struct TrialSteps {
  std::string common;  // what decides every step
  int64_t steps = 0;
};

// What else decides a step, from 1, of a trial, by its place in the list.
using TrialStepValue = std::function<uint64_t(size_t trial, int64_t step)>;

struct TrialRun {
  size_t trial = 0;
  std::optional<size_t> from;    // the branch it begins from; none: it begins anew
  int64_t begin = 0;             // steps that are done there
  std::vector<size_t> branches;  // that it keeps on its way, by ascending step
};

struct TrialBranch {
  size_t run = 0;  // that keeps it
  int64_t step = 0;
  size_t last_run = 0;  // when it has begun, the branch is given up
};

struct TrialTree {
  std::vector<TrialRun> runs;  // in their order
  std::vector<TrialBranch> branches;
  int64_t steps_all = 0;         // of all trials
  int64_t steps_run = 0;         // of all runs
  int64_t branches_at_once = 0;  // at most
};

// REQUIRES: every trial has at least one step. Asks for values of a step only where those of all
// steps before it agree with another trial's.
TrialTree plan_trials(std::span<const TrialSteps> trials, const TrialStepValue& value);

}  // namespace jige::plan
