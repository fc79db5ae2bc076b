#include "plan/ring_mix_planner.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "plan/finalists.h"
#include "plan/shortfall.h"

namespace jige::plan {
namespace {

class MixPlanner {
 public:
  MixPlanner(const RingProblem& problem, profile::Profiler& profiler, const RingPlan& single,
             const RingMixOptions& options)
      : problem_(problem),
        profiler_(profiler),
        single_(single),
        options_(options),
        capacity_(problem, *single.facts),
        search_(problem, capacity_),
        spent_before_s_(profiler.counts().cost_s) {}

  Result<RingMixPlan> run() {
    JIGE_DO(measure_usual());
    JIGE_DO(follow_promises());
    JIGE_DO(choose());
    const double bound = search_.bound();
    plan_.promised = std::isfinite(bound) ? std::max(bound, plan_.best.front().rate) : 0;
    plan_.cost_s = profiler_.counts().cost_s - spent_before_s_;
    return plan_;
  }

 private:
  double floor() const { return best_ * (1 + options_.tolerance + kRounding); }
  bool out_of_budget() const {
    return left_s() <= (options_.collective ? 1 - kSearchShare : 0) * options_.budget_s;
  }
  double left_s() const {
    return options_.budget_s - (profiler_.counts().cost_s - spent_before_s_);
  }

  // Measures a mixture as a whole and lets it compete. Nothing where the meter cannot.
  Result<std::optional<double>> try_mix(std::string name, RingMix mix) {
    std::vector<topology::Transfer> set;
    std::vector<double> shares;
    for (const TransferShare& s : mix_shares(mix)) {
      set.push_back(problem_.at(s.candidate).transfer);
      shares.push_back(s.share);
    }
    const auto m = profiler_.shares(set, shares);
    if (!m && m.error().code == Code::kUnsupported) return std::optional<double>();
    if (!m) return tl::unexpected<Error>(m.error());
    best_ = std::max(best_, m->rate);
    tried_.push_back({std::move(name), std::move(mix), m->rate, m->half_width});
    return std::optional<double>(m->rate);
  }

  Status measure_usual() {
    const Ring& best = single_.best.front().ring;
    search_.add(best);
    JIGE_TRY([[maybe_unused]] const auto alone, try_mix("best ring", {{{best, 1}}}));
    if (const auto mirror = mirrored_ring(problem_, best)) {
      search_.add(*mirror);
      JIGE_TRY([[maybe_unused]] const auto both,
               try_mix("ring both ways", {{{best, 0.5}, {*mirror, 0.5}}}));
    }
    JIGE_TRY([[maybe_unused]] const auto naive,
             try_mix("rank order", {{{single_.rank_order.ring, 1}}}));
    return {};
  }

  Status follow_promises() {
    for (;;) {
      RingMix mix = search_.best(options_.rings_max);
      if (mix.predicted <= floor()) {
        plan_.unpromised = search_.exact();
        return {};
      }
      if (plan_.proposals >= options_.proposals || out_of_budget()) return {};
      ++plan_.proposals;
      const double promise = mix.predicted;
      const std::vector<TransferShare> shares = mix_shares(mix);
      JIGE_TRY(const std::optional<double> rate,
               try_mix(fmt::format("mixture {}", plan_.proposals), std::move(mix)));
      if (!rate) return {};
      if (promise <= *rate * (1 + options_.tolerance + kNews)) continue;
      std::vector<int32_t> set;
      for (const TransferShare& s : shares) set.push_back(s.candidate);
      JIGE_TRY(const bool learned,
               learn_shortfall(problem_, profiler_, capacity_, std::move(set), options_.tolerance));
      if (!learned) return {};
      ++plan_.conflicts;
    }
  }

  // The best few, and what always competes; where that can be done, they run as all-reduces.
  Status choose() {
    std::ranges::stable_sort(tried_, std::greater<>(), &MeasuredMix::rate);
    int32_t mixtures = 0;
    for (MeasuredMix& mix : tried_) {
      if (mix.name.starts_with("mixture") && ++mixtures > options_.keep) continue;
      mix.mix.predicted = capacity_.rate(mix_shares(mix.mix));
      plan_.best.push_back(std::move(mix));
    }
    if (options_.collective) JIGE_DO(run_collectives());
    std::ranges::stable_sort(plan_.best, [](const MeasuredMix& a, const MeasuredMix& b) {
      const std::pair left(a.collective, a.rate), right(b.collective, b.rate);
      // Of equal ones the one with fewer rings.
      return left != right ? left > right : a.mix.rings.size() < b.mix.rings.size();
    });
    return {};
  }

  Status run_collectives() {
    JIGE_TRY(const std::vector<double> rates,
             measure_in_turns(
                 plan_.best.size(), [this] { return left_s(); },
                 [&](size_t i) { return options_.collective(plan_.best[i].mix); }));
    for (size_t i = 0; i < rates.size(); ++i) plan_.best[i].collective = rates[i];
    return {};
  }

  const RingProblem& problem_;
  profile::Profiler& profiler_;
  const RingPlan& single_;
  const RingMixOptions& options_;
  RingCapacity capacity_;
  MixSearch search_;
  double spent_before_s_;
  double best_ = 0;
  std::vector<MeasuredMix> tried_;
  RingMixPlan plan_;
};

}  // namespace

std::optional<Ring> mirrored_ring(const RingProblem& problem, const Ring& ring) {
  Ring mirror;
  for (auto it = ring.rbegin(); it != ring.rend(); ++it) {
    const RingCandidate& edge = problem.at(*it);
    const auto& ways = problem.edge(edge.to, edge.from);
    const auto same = std::ranges::find_if(ways, [&](int32_t way) {
      const topology::Transfer& t = problem.at(way).transfer;
      return t.kind == edge.transfer.kind && t.via == edge.transfer.via &&
             t.engine == edge.transfer.engine;
    });
    if (same == ways.end()) return std::nullopt;
    mirror.push_back(*same);
  }
  return mirror;
}

Result<RingMixPlan> plan_mix(const RingProblem& problem, profile::Profiler& profiler,
                             const RingPlan& single, const RingMixOptions& options) {
  return MixPlanner(problem, profiler, single, options).run();
}

}  // namespace jige::plan
