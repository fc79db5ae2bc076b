#include "plan/trial_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "base/rng.h"

namespace jige::plan {
namespace {

struct Case {
  std::vector<TrialSteps> trials;
  std::vector<std::vector<uint64_t>> values;  // of each trial, by step

  void add(std::vector<uint64_t> steps, std::string common = "") {
    trials.push_back({.common = std::move(common), .steps = std::ssize(steps)});
    values.push_back(std::move(steps));
  }
  TrialTree plan() const {
    return plan_trials(trials, [this](size_t trial, int64_t step) {
      return values[trial].at(static_cast<size_t>(step - 1));
    });
  }
  // What decides the state behind a step.
  std::pair<std::string, std::vector<uint64_t>> prefix(size_t trial, int64_t step) const {
    return {trials[trial].common, {values[trial].begin(), values[trial].begin() + step}};
  }
};

// Every state behind a step that is no trial's last, once, and the last steps.
int64_t least_steps(const Case& of) {
  std::set<std::pair<std::string, std::vector<uint64_t>>> states;
  for (size_t trial = 0; trial < of.trials.size(); ++trial) {
    for (int64_t step = 1; step < of.trials[trial].steps; ++step) {
      states.insert(of.prefix(trial, step));
    }
  }
  return std::ssize(states) + std::ssize(of.trials);
}

// Makes the runs as a machine would, and checks that each finds the state it needs.
void check_runs(const Case& of, const TrialTree& tree) {
  ASSERT_EQ(tree.runs.size(), of.trials.size());
  std::set<size_t> trials, kept;
  int64_t steps_run = 0, at_once = 0;
  for (size_t r = 0; r < tree.runs.size(); ++r) {
    const TrialRun& run = tree.runs[r];
    EXPECT_TRUE(trials.insert(run.trial).second);
    if (run.from) {
      const TrialBranch& branch = tree.branches[*run.from];
      EXPECT_TRUE(kept.contains(*run.from)) << "run " << r << " begins from nothing";
      EXPECT_EQ(branch.step, run.begin);
      EXPECT_GE(branch.last_run, r);
      EXPECT_EQ(of.prefix(tree.runs[branch.run].trial, branch.step),
                of.prefix(run.trial, run.begin));
      if (branch.last_run == r) kept.erase(*run.from);
    } else {
      EXPECT_EQ(run.begin, 0);
    }
    int64_t step = run.begin;
    for (const size_t branch : run.branches) {
      EXPECT_EQ(tree.branches[branch].run, r);
      EXPECT_GT(tree.branches[branch].step, step);
      EXPECT_GT(tree.branches[branch].last_run, r);
      step = tree.branches[branch].step;
      kept.insert(branch);
    }
    EXPECT_LT(step, of.trials[run.trial].steps) << "the last step is a trial's own";
    at_once = std::max(at_once, std::ssize(kept));
    steps_run += of.trials[run.trial].steps - run.begin;
  }
  EXPECT_TRUE(kept.empty());
  EXPECT_EQ(at_once, tree.branches_at_once);
  EXPECT_EQ(steps_run, tree.steps_run);
}

TEST(TrialTree, RunsTheExampleOfItsHeader) {
  Case example;
  example.add({1, 1, 1, 1, 5, 6});
  example.add({1, 1, 1, 1, 1, 7, 8});
  const TrialTree tree = example.plan();
  EXPECT_EQ(tree.steps_all, 13);
  EXPECT_EQ(tree.steps_run, 9);
  EXPECT_EQ(tree.branches_at_once, 1);
  check_runs(example, tree);
}

TEST(TrialTree, SharesNothingAcrossWhatDecidesAllSteps) {
  Case two;
  two.add({1, 1, 1}, "seed 1");
  two.add({1, 1, 1}, "seed 2");
  EXPECT_EQ(two.plan().steps_run, 6);
  two.add({1, 1, 1}, "seed 2");
  EXPECT_EQ(two.plan().steps_run, 7) << "all but the last step of equals";
}

// A constant rate and several lengths: each but the longest is a branch of the longest's way.
TEST(TrialTree, TakesOneBranchAtATimeFromAPlateau) {
  Case plateau;
  for (int64_t steps = 10; steps <= 100; steps += 10) {
    plateau.add(std::vector<uint64_t>(static_cast<size_t>(steps), 1));
  }
  const TrialTree tree = plateau.plan();
  check_runs(plateau, tree);
  EXPECT_EQ(tree.steps_run, 99 + 10);
  EXPECT_EQ(tree.branches_at_once, 1);
}

// Values that often agree, so that trees have many shapes.
Case drawn_case(Rng& rng) {
  Case made;
  const auto draw = [&](uint64_t below) { return rng.below(below); };
  const uint64_t trials = 1 + draw(20);
  for (uint64_t i = 0; i < trials; ++i) {
    std::vector<uint64_t> steps(1 + draw(12));
    if (i > 0 && draw(3) > 0) {
      const std::vector<uint64_t>& other = made.values[draw(i)];
      const size_t same = std::min<size_t>(other.size(), draw(steps.size() + 1));
      std::copy_n(other.begin(), same, steps.begin());
      for (size_t s = same; s < steps.size(); ++s) steps[s] = draw(2);
    }
    made.add(std::move(steps), draw(4) == 0 ? "b" : "a");
  }
  return made;
}

TEST(TrialTree, RunsNoStepTwiceAndFindsEveryState) {
  Rng rng(20281128, 0);
  for (int round = 0; round < 2000; ++round) {
    const Case drawn = drawn_case(rng);
    const TrialTree tree = drawn.plan();
    SCOPED_TRACE(round);
    check_runs(drawn, tree);
    ASSERT_EQ(tree.steps_run, least_steps(drawn));
    const auto most = static_cast<int64_t>(std::bit_width(drawn.trials.size())) - 1;
    ASSERT_LE(tree.branches_at_once, most) << "log2 of " << drawn.trials.size();
    if (testing::Test::HasFailure()) return;
  }
}

// The fewest branches at once that any order of the children of every stage needs. A child that
// comes first goes on by itself; the branch goes when the last one has begun.
struct Node {
  std::vector<Node> children;
};
int64_t fewest(const Node& node) {
  if (node.children.empty()) return 0;
  std::vector<int64_t> needs;
  for (const Node& child : node.children) needs.push_back(fewest(child));
  std::ranges::sort(needs);
  int64_t best = INT64_MAX;
  do {
    int64_t most = 1;
    for (size_t i = 0; i < needs.size(); ++i) {
      most = std::max(most, needs[i] + (i + 1 < needs.size() ? 1 : 0));
    }
    best = std::min(best, most);
  } while (std::ranges::next_permutation(needs).found);
  return best;
}

// A tree of trials with stages of one step; leaves end behind a step of their own.
void add_trials(const Node& node, std::vector<uint64_t> steps, Case& made) {
  if (node.children.empty()) {
    steps.push_back(99);
    made.add(std::move(steps));
    return;
  }
  for (size_t i = 0; i < node.children.size(); ++i) {
    std::vector<uint64_t> next = steps;
    next.push_back(i);
    add_trials(node.children[i], std::move(next), made);
  }
}
Node drawn_node(Rng& rng, int depth) {
  Node node;
  if (depth == 0 || rng.below(3) == 0) return node;
  const uint64_t children = 2 + rng.below(3);
  for (uint64_t i = 0; i < children; ++i) node.children.push_back(drawn_node(rng, depth - 1));
  return node;
}

TEST(TrialTree, KeepsNoMoreBranchesThanTheBestOrder) {
  Rng rng(7, 0);
  for (int round = 0; round < 300; ++round) {
    const Node node = drawn_node(rng, 4);
    Case made;
    add_trials(node, {7}, made);
    EXPECT_EQ(made.plan().branches_at_once, fewest(node)) << "round " << round;
  }
}

}  // namespace
}  // namespace jige::plan
