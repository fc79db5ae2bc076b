#include "plan/ring_planner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "plan/finalists.h"
#include "plan/ring_baselines.h"
#include "plan/ring_facts.h"
#include "plan/ring_local.h"
#include "plan/ring_search.h"
#include "plan/ring_state.h"
#include "plan/steady.h"

namespace jige::plan {
namespace {

// One attempt: valid as long as rates do not change.
class RingPlanner {
 public:
  // `spent_before_s`: what was counted when the budget began.
  RingPlanner(const RingProblem& problem, profile::Profiler& profiler,
              const RingPlanOptions& options, double spent_before_s)
      : problem_(problem),
        profiler_(profiler),
        options_(options),
        exact_(problem.node_count <= options.exact_nodes_max),
        spent_before_s_(spent_before_s),
        symmetry_(profile::no_symmetry(*problem.topology)) {}

  Result<RingPlan> run() {
    plan_.epoch = profiler_.epoch();
    JIGE_DO(measure_singles());
    JIGE_DO(measure_baselines());
    JIGE_DO(follow_promises());
    plan_.bound = facts_->ring_bound(problem_);
    if (exact_) JIGE_DO(lower_bound());
    plan_.budget_ended = !plan_.proven && out_of_budget();
    JIGE_DO(measure_finalists());
    plan_.bound = std::max(plan_.bound, plan_.best.front().rate);
    plan_.conflicts = static_cast<int64_t>(facts_->conflict_count());
    plan_.symmetries = symmetry_.permutations.size();
    plan_.facts = facts_;
    return plan_;
  }

 private:
  double spent_s() const { return profiler_.counts().cost_s - spent_before_s_; }
  double left_s() const { return options_.budget_s - spent_s(); }

  // Whether what is left is for the finalists.
  bool out_of_budget() const {
    const double part = 1 - kSearchShare;
    const double wanted_s = options_.collective ? options_.budget_s : options_.keep * ring_s_;
    return left_s() <= std::min(wanted_s, part * options_.budget_s);
  }

  // What a ring must exceed to be of interest.
  double floor() const { return best_ * (1 + options_.tolerance + 1e-9); }

  // Brings the bound down in steps: that no ring is much faster takes few measurements to show, and
  // stands even if the budget ends before the last step.
  Status lower_bound() {
    constexpr int32_t kSteps = 4;
    const double top = plan_.bound;
    for (int32_t step = 1; step <= kSteps && plan_.bound > floor(); ++step) {
      const double goal =
          floor() * std::pow(top / floor(), 1.0 - static_cast<double>(step) / kSteps);
      ProofContext context = proof_context();
      context.floor = [this, goal] { return std::max(goal, floor()); };
      JIGE_TRY(const Proof proof, prove_rings(problem_, *facts_, symmetry_, context));
      plan_.steps += proof.steps;
      const double reached = proof.complete ? context.floor() : proof.open_bound;
      plan_.bound = std::max(floor(), std::min(plan_.bound, reached));
      if (!proof.complete) return {};
    }
    plan_.proven = plan_.bound <= floor();
    return {};
  }

  Status measure_singles() {
    const std::vector<topology::Transfer> transfers = problem_.transfers();
    if (options_.symmetry && exact_) {
      JIGE_DO(profiler_.use_symmetry(profile::find_symmetry(*problem_.topology), transfers,
                                     {.seed = options_.seed}));
      symmetry_ = profiler_.symmetry();
    }
    std::vector<double> solo;
    for (const topology::Transfer& transfer : transfers) {
      JIGE_TRY(const double rate, profiler_.rate(std::span(&transfer, 1)));
      solo.push_back(rate);
    }
    facts_.emplace(std::move(solo));
    return {};
  }

  Result<double> rate_of(std::span<const int32_t> candidates) {
    return profiler_.rate(ring_transfers(problem_, candidates));
  }

  void note(const Ring& ring, double rate) {
    tried_[ring] = rate;
    if (rate <= best_ * (1 + 1e-9)) return;
    best_ = rate;
    plan_.found_after_s = spent_s();
  }

  // Measures a ring and lets it compete.
  Result<double> try_ring(const Ring& ring) {
    JIGE_TRY(const double rate, rate_of(ring));
    note(ring, rate);
    return rate;
  }

  double predict(const Ring& ring) const {
    RingState state(problem_, *facts_);
    for (const int32_t candidate : ring) state.push(candidate, state.peek(candidate));
    return state.values().predicted;
  }

  Status measure_baselines() {
    plan_.rank_order.ring = rank_order_ring(problem_);
    plan_.single_link.ring = single_link_ring(problem_, *facts_);
    JIGE_TRY(plan_.constants.ring, constants_ring(problem_, options_.seed));
    const std::array<MeasuredRing*, 3> baselines = {&plan_.rank_order, &plan_.single_link,
                                                    &plan_.constants};
    const profile::ProfilerCounts before = profiler_.counts();
    for (MeasuredRing* baseline : baselines) {
      const auto same = std::ranges::find_if(
          baselines, [&](const MeasuredRing* other) { return other->ring == baseline->ring; });
      if (*same != baseline) {
        *baseline = **same;
        continue;
      }
      baseline->predicted = predict(baseline->ring);
      JIGE_TRY(const profile::Measurement m,
               profiler_.measure(ring_transfers(problem_, baseline->ring)));
      baseline->rate = m.rate;
      baseline->half_width = m.half_width;
      note(baseline->ring, m.rate);
    }
    ring_s_ = (profiler_.counts().cost_s - before.cost_s) /
              static_cast<double>(profiler_.counts().measured - before.measured);
    return {};
  }

  Status follow_promises() {
    const ProofContext context = proof_context();
    std::set<Ring> tried;
    for (int32_t i = 0; i < options_.proposals && !out_of_budget(); ++i) {
      // The floor keeps rings that promise nothing new out, once there are enough finalists.
      const bool enough = i >= options_.keep;
      const double least = enough ? floor() : 0;
      const std::optional<RingProposal> proposal =
          exact_ ? propose_ring(problem_, *facts_, symmetry_, tried, {.floor = least})
                 : local_ring(problem_, *facts_, tried, {.seed = options_.seed});
      if (!proposal || proposal->predicted <= least) {
        plan_.unpromised = exact_;
        break;
      }
      tried.insert(proposal->ring);
      JIGE_TRY(const double rate, try_ring(proposal->ring));
      ++plan_.proposals;
      const bool short_of_promise = proposal->predicted > rate * (1 + options_.tolerance + 1e-9);
      if (short_of_promise) {
        JIGE_DO(learn_conflict(problem_, *facts_, proposal->ring, floor(), context));
      }
    }
    return {};
  }

  ProofContext proof_context() {
    return {.rate_of_ring = [this](const Ring& ring) { return try_ring(ring); },
            .rate_of_set = [this](const std::vector<int32_t>& set) { return rate_of(set); },
            .floor = [this] { return floor(); },
            .out_of_budget = [this] { return out_of_budget(); },
            .go_on = options_.go_on};
  }

  Status measure_finalists() {
    std::vector<std::pair<double, Ring>> ranked;
    for (const auto& [ring, rate] : tried_) ranked.emplace_back(rate, ring);
    std::ranges::stable_sort(ranked,
                             [](const auto& a, const auto& b) { return a.first > b.first; });
    std::set<std::vector<topology::Transfer>> seen;
    // More of them than there is time to run as collectives are of no use.
    const double for_collectives_s = options_.collective ? left_s() / 2 : 0;
    for (const auto& [rate, ring] : ranked) {
      if (static_cast<int32_t>(plan_.best.size()) >= options_.keep) break;
      const std::vector<topology::Transfer> set = ring_transfers(problem_, ring);
      if (!plan_.best.empty() && left_s() - for_collectives_s < ring_s_) break;
      // A mirror image would only repeat another finalist.
      if (!seen.insert(symmetry_.canonical(set)).second) continue;
      JIGE_TRY(const profile::Measurement m, profiler_.measure(set));
      plan_.best.push_back({ring, m.rate, m.half_width, predict(ring)});
    }
    if (options_.collective) JIGE_DO(run_collectives());
    std::ranges::stable_sort(plan_.best, [](const MeasuredRing& a, const MeasuredRing& b) {
      return std::pair(a.collective, a.rate) > std::pair(b.collective, b.rate);
    });
    if (static_cast<int32_t>(plan_.best.size()) > options_.keep) {
      plan_.best.resize(static_cast<size_t>(options_.keep));
    }
    return {};
  }

  Status run_collectives() {
    const std::array<MeasuredRing*, 3> baselines = {&plan_.rank_order, &plan_.single_link,
                                                    &plan_.constants};
    for (const MeasuredRing* baseline : baselines) {
      if (std::ranges::find(plan_.best, baseline->ring, &MeasuredRing::ring) == plan_.best.end()) {
        plan_.best.push_back(*baseline);
      }
    }
    // The best one against rank order comes first: time may end.
    std::vector<MeasuredRing*> rings = {&plan_.best.front(), &plan_.rank_order};
    for (MeasuredRing& ring : plan_.best) rings.push_back(&ring);
    rings.insert(rings.end(), {&plan_.single_link, &plan_.constants});
    std::vector<std::vector<int32_t>> orders;  // each once
    const auto place_of = [&](const MeasuredRing* ring) {
      return std::ranges::find(orders, order_of(ring->ring)) - orders.begin();
    };
    for (const MeasuredRing* ring : rings) {
      if (place_of(ring) == std::ssize(orders)) orders.push_back(order_of(ring->ring));
    }
    JIGE_TRY(const std::vector<double> rates,
             measure_in_turns(
                 orders.size(), [this] { return left_s(); },
                 [&](size_t i) { return options_.collective(orders[i]); }));
    for (MeasuredRing* ring : rings) ring->collective = rates[static_cast<size_t>(place_of(ring))];
    return {};
  }

  std::vector<int32_t> order_of(const Ring& ring) const {
    std::vector<int32_t> order;
    for (const int32_t candidate : ring) order.push_back(problem_.at(candidate).from);
    return order;
  }

  const RingProblem& problem_;
  profile::Profiler& profiler_;
  const RingPlanOptions& options_;
  bool exact_;
  double spent_before_s_;
  double ring_s_ = 0;  // that measuring a ring takes
  profile::Symmetry symmetry_;
  std::optional<RingFacts> facts_;
  std::map<Ring, double> tried_;
  double best_ = 0;
  RingPlan plan_;
};

}  // namespace

Result<RingPlan> plan_ring(const RingProblem& problem, profile::Profiler& profiler,
                           const RingPlanOptions& options) {
  const profile::ProfilerCounts before = profiler.counts();
  RingPlanOptions now_options = options;
  RingPlan plan;
  const auto left_s = [&] { return options.budget_s - (profiler.counts().cost_s - before.cost_s); };
  JIGE_TRY(const Steadiness steady, until_rates_hold(profiler, left_s, [&]() -> Result<int32_t> {
             now_options.symmetry = options.symmetry && !profiler.symmetry_failed();
             JIGE_TRY(plan, RingPlanner(problem, profiler, now_options, before.cost_s).run());
             return plan.epoch;
           }));
  if (!steady.held) return rates_keep_changing(profiler);
  const profile::ProfilerCounts& now = profiler.counts();
  plan.restarts = steady.restarts;
  plan.counts = {now.measured - before.measured, now.recalled - before.recalled,
                 now.by_symmetry - before.by_symmetry, now.cost_s - before.cost_s};
  return plan;
}

}  // namespace jige::plan
