#include "plan/rounds.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "plan/ring_baselines.h"

namespace jige::plan {
namespace {

constexpr double kRoundGain = 1e-12;   // less, relative, is rounding
constexpr int64_t kAllWaysMax = 4096;  // combinations of ways of a round that are all tried

using Targets = std::vector<int32_t>;

// All permutations without a fixed point, by the node that node 0 sends to.
std::vector<std::vector<Targets>> derangements(int32_t n) {
  std::vector<std::vector<Targets>> by_first(static_cast<size_t>(n));
  Targets targets(static_cast<size_t>(n));
  std::iota(targets.begin(), targets.end(), 0);
  do {
    bool moves_all = true;
    for (int32_t i = 0; i < n && moves_all; ++i) moves_all = targets[static_cast<size_t>(i)] != i;
    if (moves_all) by_first[static_cast<size_t>(targets[0])].push_back(targets);
  } while (std::next_permutation(targets.begin(), targets.end()));
  return by_first;
}

// Looks for the cheapest n - 1 derangements that no two send alike: one for each target of node 0.
class Decomposition {
 public:
  Decomposition(std::vector<std::vector<std::pair<double, Targets>>> choices, int32_t n,
                int64_t steps_max)
      : choices_(std::move(choices)), n_(n), steps_left_(steps_max) {
    least_rest_.assign(choices_.size() + 1, 0);
    for (size_t k = choices_.size(); k-- > 1;) {
      least_rest_[k] = least_rest_[k + 1] + choices_[k].front().first;
    }
    used_.assign(static_cast<size_t>(n * n), 0);
  }

  // Whether all was searched.
  bool run(std::vector<Targets>& best, double& least) {
    best_ = &best;
    least_ = &least;
    extend(1, 0);
    return steps_left_ > 0;
  }

 private:
  char& used(int32_t from, int32_t to) { return used_[static_cast<size_t>(from * n_ + to)]; }

  void extend(size_t first, double so_far) {
    if (first == choices_.size()) {
      *best_ = chosen_;
      *least_ = so_far;
      return;
    }
    for (const auto& [cost, targets] : choices_[first]) {
      if (so_far + cost + least_rest_[first + 1] >= *least_ * (1 - kRoundGain)) return;
      if (--steps_left_ <= 0) return;
      bool free = true;
      for (int32_t i = 0; i < n_ && free; ++i) free = !used(i, targets[static_cast<size_t>(i)]);
      if (!free) continue;
      for (int32_t i = 0; i < n_; ++i) used(i, targets[static_cast<size_t>(i)]) = 1;
      chosen_.push_back(targets);
      extend(first + 1, so_far + cost);
      chosen_.pop_back();
      for (int32_t i = 0; i < n_; ++i) used(i, targets[static_cast<size_t>(i)]) = 0;
    }
  }

  std::vector<std::vector<std::pair<double, Targets>>> choices_;  // cheapest first
  int32_t n_;
  int64_t steps_left_;
  std::vector<double> least_rest_;
  std::vector<char> used_;
  std::vector<Targets> chosen_;
  std::vector<Targets>* best_ = nullptr;
  double* least_ = nullptr;
};

std::vector<Targets> shifts(int32_t n) {
  std::vector<Targets> rounds;
  for (int32_t k = 1; k < n; ++k) {
    Targets& targets = rounds.emplace_back();
    for (int32_t i = 0; i < n; ++i) targets.push_back((i + k) % n);
  }
  return rounds;
}

// The same schedule with two nodes in each other's place.
std::vector<Targets> relabelled(const std::vector<Targets>& rounds, int32_t a, int32_t b) {
  const auto other = [&](int32_t node) { return node == a ? b : node == b ? a : node; };
  std::vector<Targets> result = rounds;
  for (size_t r = 0; r < rounds.size(); ++r) {
    for (size_t i = 0; i < rounds[r].size(); ++i) {
      result[r][static_cast<size_t>(other(static_cast<int32_t>(i)))] = other(rounds[r][i]);
    }
  }
  return result;
}

// Exchanges between two rounds what the nodes send that `from` leads to: the smallest set of
// senders that reach the same nodes in both.
void exchange(Targets& a, Targets& b, size_t from) {
  size_t sender = from;
  do {
    std::swap(a[sender], b[sender]);
    // Whoever else sent there in `a` has to send elsewhere now.
    const int32_t target = a[sender];
    size_t next = from;
    for (size_t i = 0; i < a.size(); ++i) {
      if (i != sender && a[i] == target) next = i;
    }
    sender = next;
  } while (sender != from);
}

}  // namespace

std::vector<Round> shifted_rounds(const RingProblem& problem) {
  std::vector<Round> rounds;
  for (const Targets& targets : shifts(problem.node_count)) {
    Round& round = rounds.emplace_back();
    for (int32_t i = 0; i < problem.node_count; ++i) {
      round.push_back(usual_transport(problem, i, targets[static_cast<size_t>(i)]));
    }
  }
  return rounds;
}

std::vector<int32_t> round_targets(const RingProblem& problem, const Round& round) {
  std::vector<int32_t> targets;
  for (const int32_t candidate : round) targets.push_back(problem.at(candidate).to);
  return targets;
}

RoundSearch::RoundSearch(const RingProblem& problem, const RingCapacity& capacity)
    : problem_(problem), capacity_(capacity) {
  find_ways();
}

void RoundSearch::find_ways() {
  ways_.clear();
  for (const std::vector<int32_t>& edge : problem_.between) {
    ways_.push_back(useful_ways(capacity_, edge));
  }
}

double RoundSearch::bound() const {
  std::vector<double> load(capacity_.row_count(), 0);
  for (const std::vector<int32_t>& edge : ways_) {
    std::vector<double> least;
    for (const int32_t way : edge) {
      const std::vector<double> taken = capacity_.load_of({way});
      if (least.empty()) least = taken;
      for (size_t r = 0; r < taken.size(); ++r) least[r] = std::min(least[r], taken[r]);
    }
    for (size_t r = 0; r < least.size(); ++r) load[r] += least[r];
  }
  return load.empty() ? 0 : *std::ranges::max_element(load);
}

// Falls as any row is relieved, most as the fullest is.
double RoundSearch::crowding(const Round& round) const {
  double sum = 0;
  for (const double load : capacity_.load_of(round)) {
    const double fourth = load * load * load * load;
    sum += fourth * fourth;
  }
  return sum;
}

// The ways by which a permutation is fastest, and its time.
const Round& RoundSearch::round_of(const Targets& targets) {
  const auto known = known_.find(targets);
  if (known != known_.end()) return known->second.first;
  const auto n = static_cast<size_t>(problem_.node_count);
  const auto ways = [&](size_t i) -> const std::vector<int32_t>& {
    return ways_[i * n + static_cast<size_t>(targets[i])];
  };
  Round round;
  int64_t combinations = 1;
  for (size_t i = 0; i < n; ++i) {
    round.push_back(ways(i).front());
    combinations =
        std::min<int64_t>(combinations * static_cast<int64_t>(ways(i).size()), kAllWaysMax + 1);
  }
  Round best = round;
  double rate = capacity_.rate(best);
  const auto consider = [&](const Round& other) {
    const double with = capacity_.rate(other);
    if (with <= rate * (1 + kRoundGain)) return false;
    rate = with;
    best = other;
    return true;
  };
  if (combinations <= kAllWaysMax) {
    for (int64_t number = 1; number < combinations; ++number) {
      int64_t left = number;
      for (size_t i = 0; i < n; ++i) {
        const auto count = static_cast<int64_t>(ways(i).size());
        round[i] = ways(i)[static_cast<size_t>(left % count)];
        left /= count;
      }
      consider(round);
    }
  } else {
    all_ways_ = false;
    double crowd = crowding(best);
    for (bool improved = true; improved;) {
      improved = false;
      for (size_t i = 0; i < n; ++i) {
        for (const int32_t way : ways(i)) {
          Round other = best;
          other[i] = way;
          // Of two rows that are full, relieving one makes nothing faster yet.
          const double with = crowding(other);
          const bool relieved =
              capacity_.rate(other) >= rate * (1 - kRoundGain) && with < crowd * (1 - kRoundGain);
          if (!consider(other) && !relieved) continue;
          best = std::move(other);
          crowd = with;
          improved = true;
        }
      }
    }
  }
  return known_.emplace(targets, std::pair(std::move(best), 1 / rate)).first->second.first;
}

double RoundSearch::cost_of(const Targets& targets) {
  round_of(targets);
  return known_.at(targets).second;
}

RoundSchedule RoundSearch::schedule_of(const std::vector<Targets>& all) {
  RoundSchedule schedule;
  for (const Targets& targets : all) {
    schedule.rounds.push_back(round_of(targets));
    schedule.seconds += cost_of(targets);
  }
  return schedule;
}

bool RoundSearch::search_all(const RoundLimits& limits, std::vector<Targets>& best, double& least) {
  std::vector<std::vector<std::pair<double, Targets>>> choices;
  for (std::vector<Targets>& group : derangements(problem_.node_count)) {
    auto& priced = choices.emplace_back();
    for (Targets& targets : group) {
      const double cost = cost_of(targets);
      priced.emplace_back(cost, std::move(targets));
    }
    std::ranges::sort(priced);
  }
  Decomposition search(std::move(choices), problem_.node_count, limits.steps_max);
  return search.run(best, least);
}

// Relabels nodes and exchanges parts of two rounds at random; keeps what is not slower.
void RoundSearch::improve(const RoundLimits& limits, std::vector<Targets>& best, double& least) {
  Rng rng(derive_key(limits.seed, "all-to-all rounds"));
  const auto n = static_cast<uint64_t>(problem_.node_count);
  for (int32_t move = 0; move < limits.moves && n > 2; ++move) {
    std::vector<Targets> other;
    if (rng.below(2) == 0) {
      other =
          relabelled(best, static_cast<int32_t>(rng.below(n)), static_cast<int32_t>(rng.below(n)));
    } else {
      other = best;
      const size_t a = rng.below(other.size()), b = rng.below(other.size());
      if (a != b) exchange(other[a], other[b], rng.below(n));
    }
    double cost = 0;
    for (const Targets& targets : other) cost += cost_of(targets);
    if (cost > least * (1 + kRoundGain)) continue;
    best = std::move(other);
    least = cost;
  }
}

RoundSchedule RoundSearch::best(const RoundLimits& limits) {
  // Rows may have been learned.
  known_.clear();
  all_ways_ = true;
  find_ways();
  std::vector<Targets> best = shifts(problem_.node_count);
  double least = 0;
  for (const Targets& targets : best) least += cost_of(targets);
  bool exact = false;
  if (problem_.node_count <= limits.exact_nodes_max) exact = search_all(limits, best, least);
  if (!exact) improve(limits, best, least);
  RoundSchedule schedule = schedule_of(best);
  schedule.exact = (exact && all_ways_) || schedule.seconds <= bound() * (1 + 1e-9);
  return schedule;
}

}  // namespace jige::plan
