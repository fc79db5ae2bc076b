#include "plan/ring_search.h"

#include <algorithm>
#include <limits>

#include "plan/ring_state.h"

namespace jige::plan {
namespace {

class ProposalSearch {
 public:
  ProposalSearch(const RingProblem& problem, const RingFacts& facts,
                 const profile::Symmetry& symmetry, const std::set<Ring>& tried,
                 const ProposalLimits& limits)
      : problem_(problem),
        tried_(tried),
        limits_(limits),
        state_(problem, facts),
        branching_(problem, symmetry),
        floor_(limits.floor) {}

  std::optional<RingProposal> run() {
    descend();
    if (best_) best_->exhausted = steps_ > limits_.steps_max;
    return best_;
  }

 private:
  void descend() {
    if (state_.complete()) {
      if (tried_.contains(state_.ring())) return;
      best_ = RingProposal{state_.ring(), state_.values().predicted};
      floor_ = state_.values().predicted * (1 + 1e-9);
      return;
    }
    for (const RingStep& step : ring_steps(problem_, state_, branching_, floor_, true)) {
      if (++steps_ > limits_.steps_max && best_) return;
      if (step.values.predicted <= floor_) continue;
      state_.push(step.candidate, step.values);
      branching_.enter(state_.node());
      descend();
      branching_.leave();
      state_.pop();
    }
  }

  const RingProblem& problem_;
  const std::set<Ring>& tried_;
  const ProposalLimits& limits_;
  RingState state_;
  RingBranching branching_;
  double floor_;
  std::optional<RingProposal> best_;
  int64_t steps_ = 0;
};

// Between two times that a search asks whether to go on: a few milliseconds.
constexpr int64_t kStepsBetween = 4096;

class ProofSearch {
 public:
  ProofSearch(const RingProblem& problem, RingFacts& facts, const profile::Symmetry& symmetry,
              const ProofContext& context)
      : problem_(problem),
        facts_(facts),
        context_(context),
        state_(problem, facts),
        branching_(problem, symmetry) {}

  Result<Proof> run() {
    JIGE_DO(descend());
    proof_.complete = proof_.open_bound == 0;
    return proof_;
  }

 private:
  double floor() const { return context_.floor(); }

  Status descend() {
    if (state_.complete()) return try_ring();
    for (const RingStep& step : ring_steps(problem_, state_, branching_, floor(), false)) {
      // Facts may have come since the step was listed.
      const RingValues values = state_.peek(step.candidate);
      if (values.bound <= floor()) continue;
      // The way down to here may be ruled out by now.
      if (stopped_ || ++proof_.steps > context_.steps_max || context_.out_of_budget()) {
        stopped_ = true;
        proof_.open_bound = std::max(proof_.open_bound, values.bound);
        continue;
      }
      if (proof_.steps % kStepsBetween == 1 && context_.go_on && !context_.go_on()) {
        return fail(Code::kCancelled, "by a signal, while rings were ruled out");
      }
      state_.push(step.candidate, values);
      branching_.enter(state_.node());
      const Status status = descend();
      branching_.leave();
      state_.pop();
      JIGE_DO(status);
      if (path_is_ruled_out()) return {};
    }
    return {};
  }

  Status try_ring() {
    const Ring ring = state_.ring();
    JIGE_TRY(const double rate, context_.rate_of_ring(ring));
    return learn_conflict(problem_, facts_, ring, std::max(rate, floor()), context_);
  }

  // Whether a conflict learned below lies on the path itself.
  bool path_is_ruled_out() {
    std::vector<char> chosen(problem_.candidates.size(), 0);
    double bound = std::numeric_limits<double>::infinity();
    for (const int32_t candidate : state_.ring()) {
      bound = std::min(bound, facts_.bound(candidate, chosen));
      chosen[static_cast<size_t>(candidate)] = 1;
    }
    return bound <= floor();
  }

  const RingProblem& problem_;
  RingFacts& facts_;
  const ProofContext& context_;
  RingState state_;
  RingBranching branching_;
  Proof proof_;
  bool stopped_ = false;
};

}  // namespace

std::optional<RingProposal> propose_ring(const RingProblem& problem, const RingFacts& facts,
                                         const profile::Symmetry& symmetry,
                                         const std::set<Ring>& tried,
                                         const ProposalLimits& limits) {
  return ProposalSearch(problem, facts, symmetry, tried, limits).run();
}

Result<Proof> prove_rings(const RingProblem& problem, RingFacts& facts,
                          const profile::Symmetry& symmetry, const ProofContext& context) {
  return ProofSearch(problem, facts, symmetry, context).run();
}

Status learn_conflict(const RingProblem& problem, RingFacts& facts, const Ring& set, double slow,
                      const ProofContext& context) {
  std::vector<int32_t> core = set;
  JIGE_TRY(double rate, context.rate_of_set(core));
  // The description may know where they meet; then most others go at once.
  RingState state(problem, facts);
  for (const int32_t candidate : set) state.push(candidate, state.peek(candidate));
  const int32_t tightest = state.tightest();
  std::vector<int32_t> meeting;
  for (const int32_t candidate : set) {
    const auto& usage = problem.at(candidate).usage;
    if (std::ranges::find(usage, tightest, &topology::Usage::resource) != usage.end()) {
      meeting.push_back(candidate);
    }
  }
  if (!meeting.empty() && meeting.size() < core.size()) {
    JIGE_TRY(const double together, context.rate_of_set(meeting));
    if (together <= slow) {
      core = meeting;
      rate = together;
    }
  }
  for (size_t i = core.size(); i-- > 0 && core.size() > 1;) {
    std::vector<int32_t> without = core;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    JIGE_TRY(const double left, context.rate_of_set(without));
    if (left > slow) continue;
    core = std::move(without);
    rate = left;
  }
  facts.add_conflict(std::move(core), rate);
  return {};
}

}  // namespace jige::plan
