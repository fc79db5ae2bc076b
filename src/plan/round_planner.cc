#include "plan/round_planner.h"

#include <algorithm>

#include "plan/finalists.h"
#include "plan/shortfall.h"

namespace jige::plan {
namespace {

constexpr std::string_view kShifted = "shifted";

class RoundPlanner {
 public:
  RoundPlanner(const RingProblem& problem, profile::Profiler& profiler,
               const RoundPlanOptions& options)
      : problem_(problem), profiler_(profiler), options_(options), before_(profiler.counts()) {}

  Result<RoundPlan> run() {
    JIGE_DO(measure_singles());
    JIGE_DO(try_rounds(std::string(kShifted), shifted_rounds(problem_)));
    JIGE_DO(follow_promises());
    JIGE_DO(measure_finalists());
    plan_.measured = profiler_.counts().measured - before_.measured;
    plan_.cost_s = profiler_.counts().cost_s - before_.cost_s;
    return plan_;
  }

 private:
  // What a schedule must take less than to be of interest.
  double ceiling() const { return least_ / (1 + options_.tolerance + kRounding); }
  bool out_of_budget() const {
    return left_s() <= (options_.collective ? 1 - kSearchShare : 0) * options_.budget_s;
  }
  double left_s() const { return options_.budget_s - (profiler_.counts().cost_s - before_.cost_s); }

  Status measure_singles() {
    std::vector<double> solo;
    for (const topology::Transfer& transfer : problem_.transfers()) {
      JIGE_TRY(const double rate, profiler_.rate(std::span(&transfer, 1)));
      solo.push_back(rate);
    }
    capacity_.emplace(problem_, RingFacts(std::move(solo)));
    return {};
  }

  Status try_rounds(std::string name, std::vector<Round> rounds) {
    MeasuredRounds tried{.name = std::move(name), .rounds = std::move(rounds), .rates = {}};
    for (const Round& round : tried.rounds) {
      JIGE_TRY(const double rate, profiler_.rate(ring_transfers(problem_, round)));
      tried.rates.push_back(rate);
      tried.seconds += 1 / rate;
    }
    least_ = tried_.empty() ? tried.seconds : std::min(least_, tried.seconds);
    tried_.push_back(std::move(tried));
    return {};
  }

  Status follow_promises() {
    RoundSearch search(problem_, *capacity_);
    for (;;) {
      const RoundSchedule schedule = search.best(options_.limits);
      plan_.bound_s = search.bound();
      if (schedule.seconds >= ceiling()) {
        plan_.unpromised = schedule.exact;
        return {};
      }
      if (plan_.proposals >= options_.proposals || out_of_budget()) return {};
      ++plan_.proposals;
      JIGE_DO(try_rounds(fmt::format("schedule {}", plan_.proposals), schedule.rounds));
      JIGE_TRY(const bool learned, learn(tried_.back()));
      if (!learned && schedule.seconds < ceiling()) return {};
    }
  }

  // Explains every round that fell short. Whether anything was learned.
  Result<bool> learn(const MeasuredRounds& tried) {
    bool learned = false;
    for (size_t r = 0; r < tried.rounds.size(); ++r) {
      const double promised = capacity_->rate(tried.rounds[r]);
      if (tried.rates[r] * (1 + options_.tolerance + kNews) >= promised) continue;
      JIGE_TRY(const bool found, learn_shortfall(problem_, profiler_, *capacity_, tried.rounds[r],
                                                 options_.tolerance));
      plan_.conflicts += found;
      learned |= found;
    }
    return learned;
  }

  // The best few and the shifted one are measured anew, in turns, so that none wins by luck.
  Status measure_finalists() {
    std::ranges::stable_sort(tried_, {}, &MeasuredRounds::seconds);
    int32_t kept = 0;
    for (MeasuredRounds& tried : tried_) {
      if (tried.name != kShifted && ++kept > options_.keep) continue;
      tried.seconds = 0;
      for (size_t r = 0; r < tried.rounds.size(); ++r) {
        JIGE_TRY(const profile::Measurement m,
                 profiler_.measure(ring_transfers(problem_, tried.rounds[r])));
        tried.rates[r] = m.rate;
        tried.seconds += 1 / m.rate;
        tried.predicted_s += 1 / capacity_->rate(tried.rounds[r]);
      }
      plan_.best.push_back(std::move(tried));
    }
    std::ranges::stable_sort(plan_.best, {}, &MeasuredRounds::seconds);
    plan_.bound_s = std::min(plan_.bound_s, plan_.best.front().seconds);
    return options_.collective ? run_collectives() : Status();
  }

  Status run_collectives() {
    JIGE_TRY(const std::vector<double> rates,
             measure_in_turns(
                 plan_.best.size(), [this] { return left_s(); },
                 [&](size_t i) { return options_.collective(plan_.best[i].rounds); }));
    for (size_t i = 0; i < rates.size(); ++i) plan_.best[i].collective = rates[i];
    std::ranges::stable_sort(plan_.best, std::greater<>(), &MeasuredRounds::collective);
    return {};
  }

  const RingProblem& problem_;
  profile::Profiler& profiler_;
  const RoundPlanOptions& options_;
  profile::ProfilerCounts before_;
  std::optional<RingCapacity> capacity_;
  double least_ = 0;
  std::vector<MeasuredRounds> tried_;
  RoundPlan plan_;
};

}  // namespace

Result<RoundPlan> plan_rounds(const RingProblem& problem, profile::Profiler& profiler,
                              const RoundPlanOptions& options) {
  return RoundPlanner(problem, profiler, options).run();
}

}  // namespace jige::plan
