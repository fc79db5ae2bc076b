#include "plan/tree_planner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "plan/finalists.h"
#include "plan/shortfall.h"

namespace jige::plan {
namespace {

constexpr std::string_view kRankOrder = "rank order";
constexpr int64_t kMessageBytesFirst = 1 << 10;

class TreePlanner {
 public:
  TreePlanner(const RingProblem& problem, profile::Profiler& profiler, const RingPlan& single,
              const TreePlanOptions& options)
      : problem_(problem),
        profiler_(profiler),
        options_(options),
        capacity_(problem, *single.facts),
        search_(problem, capacity_),
        spent_before_s_(profiler.counts().cost_s) {}

  Result<TreePlan> run() {
    std::vector<int32_t> order(static_cast<size_t>(problem_.node_count));
    std::iota(order.begin(), order.end(), 0);
    JIGE_DO(try_trees(std::string(kRankOrder), search_.usual(std::move(order))));
    JIGE_DO(follow_promises());
    std::ranges::stable_sort(plan_.best, std::greater<>(), &MeasuredTrees::rate);
    for (MeasuredTrees& trees : plan_.best) {
      trees.trees.predicted = capacity_.rate(tree_shares(trees.trees));
    }
    if (options_.collective) {
      JIGE_DO(run_collectives());
      JIGE_DO(find_crossover());
    }
    plan_.nodes = problem_.node_count;
    plan_.depth = double_tree_shape(problem_.node_count)[0].depth;
    plan_.latency_s = options_.latency_s;
    plan_.cost_s = spent_s();
    return plan_;
  }

 private:
  double floor() const { return best_ * (1 + options_.tolerance + kRounding); }
  double spent_s() const { return profiler_.counts().cost_s - spent_before_s_; }
  double left_s() const { return options_.budget_s - spent_s(); }
  bool out_of_budget() const {
    return left_s() <= (options_.collective ? 1 - kSearchShare : 0) * options_.budget_s;
  }

  Status try_trees(std::string name, DoubleTree trees) {
    std::vector<topology::Transfer> set;
    std::vector<double> shares;
    for (const TransferShare& s : tree_shares(trees)) {
      set.push_back(problem_.at(s.candidate).transfer);
      shares.push_back(s.share);
    }
    JIGE_TRY(const profile::Measurement m, profiler_.shares(set, shares));
    best_ = std::max(best_, m.rate);
    plan_.best.push_back({std::move(name), std::move(trees), m.rate, m.half_width});
    return {};
  }

  Status follow_promises() {
    for (;;) {
      DoubleTree trees = search_.best(options_.limits);
      if (trees.predicted <= floor()) {
        plan_.unpromised = trees.exact;
        return {};
      }
      if (plan_.proposals >= options_.proposals || out_of_budget()) return {};
      ++plan_.proposals;
      const double promise = trees.predicted;
      std::vector<int32_t> set;
      for (const TransferShare& s : tree_shares(trees)) set.push_back(s.candidate);
      JIGE_DO(try_trees(fmt::format("trees {}", plan_.proposals), std::move(trees)));
      if (promise <= plan_.best.back().rate * (1 + options_.tolerance + kNews)) continue;
      JIGE_TRY(const bool learned,
               learn_shortfall(problem_, profiler_, capacity_, std::move(set), options_.tolerance));
      if (!learned) return {};
    }
  }

  // The best few and those over rank order, against the ring.
  Status run_collectives() {
    std::vector<MeasuredTrees> kept;
    for (MeasuredTrees& trees : plan_.best) {
      const bool naive = trees.name == kRankOrder;
      if (naive || static_cast<int32_t>(kept.size()) < options_.keep) {
        kept.push_back(std::move(trees));
      }
    }
    plan_.best = std::move(kept);
    const auto run = [&](size_t i) {  // the ring first: it is run whatever the budget
      return options_.collective(i == 0 ? nullptr : &plan_.best[i - 1].trees,
                                 options_.message_bytes);
    };
    const double for_crossover_s = left_s() / 2;
    JIGE_TRY(const std::vector<double> seconds,
             measure_in_turns(
                 plan_.best.size() + 1, [&] { return left_s() - for_crossover_s; }, run));
    for (size_t i = 0; i < plan_.best.size(); ++i) plan_.best[i].collective_s = seconds[i + 1];
    plan_.ring_collective_s = seconds.front();
    std::ranges::stable_sort(plan_.best, {}, [](const MeasuredTrees& trees) {
      return std::pair(trees.collective_s == 0, trees.collective_s);
    });
    return {};
  }

  // The end up to which trees win most altogether; one odd measurement moves it little. Where the
  // budget ends before the message's own size is tried, what was run of that decides about it.
  Status find_crossover() {
    double won = 0, won_max = 0;
    int64_t end = 0;
    for (int64_t bytes = kMessageBytesFirst; bytes <= kMessageBytesMax; bytes *= 4) {
      if (plan_.tried_bytes_max > 0 && left_s() <= 0) break;
      JIGE_TRY(const std::vector<double> seconds,
               measure_in_turns(
                   2, [this] { return left_s(); },
                   [&](size_t i) {
                     return options_.collective(i == 0 ? &plan_.best.front().trees : nullptr,
                                                bytes);
                   }));
      plan_.tried_bytes_max = bytes;
      won += std::log(seconds[1] / seconds[0]);
      if (won <= won_max) continue;
      won_max = won;
      end = bytes;
    }
    const bool untried = options_.message_bytes <= kMessageBytesMax &&
                         options_.message_bytes > plan_.tried_bytes_max;
    if (untried && plan_.best.front().collective_s < plan_.ring_collective_s) {
      plan_.tried_bytes_max = end = options_.message_bytes;
    }
    plan_.measured_crossover_bytes = end;
    return {};
  }

  const RingProblem& problem_;
  profile::Profiler& profiler_;
  const TreePlanOptions& options_;
  RingCapacity capacity_;
  TreeSearch search_;
  double spent_before_s_;
  double best_ = 0;
  TreePlan plan_;
};

}  // namespace

TreePlan::Times TreePlan::times(double bytes, double ring_rate) const {
  const double steps = 2.0 * (nodes - 1);
  return {.ring_s = steps * latency_s + steps / nodes * bytes / (ring_rate * 1e9),
          .trees_s = 2.0 * depth * latency_s + bytes / (best.front().rate * 1e9)};
}

std::optional<double> TreePlan::crossover_bytes(double ring_rate) const {
  const Times still = times(0, ring_rate), moved = times(1e9, ring_rate);
  const double head_start_s = still.ring_s - still.trees_s;
  const double lost_per_byte_s =
      ((moved.trees_s - still.trees_s) - (moved.ring_s - still.ring_s)) / 1e9;
  if (lost_per_byte_s <= 0) return std::nullopt;
  return std::max(0.0, head_start_s / lost_per_byte_s);
}

int64_t TreePlan::bytes_max(double ring_rate) const {
  if (measured_crossover_bytes) return *measured_crossover_bytes;
  const std::optional<double> bytes = crossover_bytes(ring_rate);
  constexpr double kMost = 1e15;  // trees are faster at any size
  return static_cast<int64_t>(std::min(bytes.value_or(kMost), kMost));
}

Result<TreePlan> plan_trees(const RingProblem& problem, profile::Profiler& profiler,
                            const RingPlan& single, const TreePlanOptions& options) {
  return TreePlanner(problem, profiler, single, options).run();
}

}  // namespace jige::plan
