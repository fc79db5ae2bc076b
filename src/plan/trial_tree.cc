#include "plan/trial_tree.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace jige::plan {
namespace {

// Steps begin + 1 to end, which all trials below have in common; a leaf's are those of one trial
// alone.
struct Stage {
  int64_t begin = 0;
  int64_t end = 0;
  size_t trial = 0;              // one of those below
  std::vector<size_t> children;  // none: a leaf
  int64_t kept = 0;              // branches at once, in and below it
  int64_t last = 0;              // the last step of the longest trial below
};

class TreeBuilder {
 public:
  TreeBuilder(std::span<const TrialSteps> trials, const TrialStepValue& value)
      : trials_(trials), value_(value) {}

  TrialTree build() {
    for (size_t trial = 0; trial < trials_.size(); ++trial) {
      JIGE_CHECK(trials_[trial].steps >= 1, "trial {} has no step", trial);
      insert(trial);
    }
    for (const size_t root : roots_) {
      measure(root);
      tree_.runs.push_back({});
      add_runs(root, tree_.runs.size() - 1);
    }
    for (const TrialRun& run : tree_.runs) {
      const int64_t steps = trials_[run.trial].steps;
      tree_.steps_all += steps;
      tree_.steps_run += steps - run.begin;
    }
    for (const size_t root : roots_) {
      tree_.branches_at_once = std::max(tree_.branches_at_once, stages_[root].kept);
    }
    return std::move(tree_);
  }

 private:
  // How many of the steps up to `end`, behind those before `begin`, two trials have in common.
  int64_t shared_end(size_t one, size_t other, int64_t begin, int64_t end) const {
    const int64_t most = std::min({end, trials_[one].steps - 1, trials_[other].steps - 1});
    int64_t shared = begin;
    while (shared < most && value_(one, shared + 1) == value_(other, shared + 1)) ++shared;
    return std::max(shared, begin);
  }

  size_t add_leaf(size_t trial, int64_t begin) {
    stages_.push_back({.begin = begin, .end = trials_[trial].steps, .trial = trial});
    return stages_.size() - 1;
  }

  // The stage of a list whose first step a trial has in common with it, and the end of what they
  // share.
  std::optional<std::pair<size_t, int64_t>> find(const std::vector<size_t>& list, size_t trial) {
    for (const size_t stage : list) {
      const Stage& found = stages_[stage];
      const int64_t shared = shared_end(found.trial, trial, found.begin, found.end);
      if (shared > found.begin) return std::pair(stage, shared);
    }
    return std::nullopt;
  }

  void insert(size_t trial) {
    std::vector<size_t>& roots = by_common_[trials_[trial].common];
    auto found = find(roots, trial);
    if (!found) {
      roots.push_back(add_leaf(trial, 0));
      roots_.push_back(roots.back());
      return;
    }
    for (;;) {
      const auto [stage, shared] = *found;
      if (shared < stages_[stage].end) split(stage, shared);
      found = find(stages_[stage].children, trial);
      if (!found) {
        const size_t leaf = add_leaf(trial, shared);
        stages_[stage].children.push_back(leaf);
        return;
      }
    }
  }

  // What is behind `step` becomes a stage below.
  void split(size_t stage, int64_t step) {
    Stage behind = stages_[stage];
    behind.begin = step;
    stages_.push_back(std::move(behind));
    stages_[stage].end = step;
    stages_[stage].children = {stages_.size() - 1};
  }

  // Fills in `kept` and `last`, and puts children in their order.
  void measure(size_t stage) {
    Stage& own = stages_[stage];
    own.last = own.end;
    for (const size_t child : own.children) {
      measure(child);
      own.last = std::max(own.last, stages_[child].last);
    }
    std::ranges::stable_sort(own.children, [&](size_t one, size_t other) {
      return std::pair(stages_[one].kept, -stages_[one].last) <
             std::pair(stages_[other].kept, -stages_[other].last);
    });
    if (own.children.empty()) return;
    const size_t count = own.children.size();  // at least two
    own.kept =
        std::max(1 + stages_[own.children[count - 2]].kept, stages_[own.children[count - 1]].kept);
  }

  // The runs of a stage and those below it, the first of which is under way.
  void add_runs(size_t stage, size_t run) {
    const Stage& own = stages_[stage];
    if (own.children.empty()) {
      tree_.runs[run].trial = own.trial;
      return;
    }
    const size_t branch = tree_.branches.size();
    tree_.branches.push_back({.run = run, .step = own.end});
    tree_.runs[run].branches.push_back(branch);
    add_runs(own.children.front(), run);
    for (size_t i = 1; i < own.children.size(); ++i) {
      const size_t next = tree_.runs.size();
      tree_.runs.push_back({.from = branch, .begin = own.end});
      tree_.branches[branch].last_run = next;
      add_runs(own.children[i], next);
    }
  }

  std::span<const TrialSteps> trials_;
  const TrialStepValue& value_;
  std::vector<Stage> stages_;
  std::vector<size_t> roots_;
  std::map<std::string, std::vector<size_t>> by_common_;
  TrialTree tree_;
};

}  // namespace

TrialTree plan_trials(std::span<const TrialSteps> trials, const TrialStepValue& value) {
  return TreeBuilder(trials, value).build();
}

}  // namespace jige::plan
