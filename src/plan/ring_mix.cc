#include "plan/ring_mix.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "plan/cheapest_ring.h"
#include "plan/packing_lp.h"
#include "plan/ring_cost_bound.h"

namespace jige::plan {
namespace {

constexpr double kSame = 1e-9;
constexpr double kProven = 1e-6;           // this close to the bound is the optimum
constexpr double kLeastWeight = 0.001;     // of a ring that is worth having
constexpr int32_t kColumnsMax = 400;       // made at prices
constexpr size_t kAllRingsMax = 3000;      // up to so many, all are looked at
constexpr double kSubsetsMax = 40'000;     // of rings, tried one by one
constexpr int32_t kExchangeRoundsMax = 6;  // over all places of a mixture

// All rings of useful ways, or none where there are more than kAllRingsMax.
class AllRings {
 public:
  AllRings(const RingProblem& problem, const RingCapacity& capacity) : problem_(problem) {
    for (const std::vector<int32_t>& edge : problem.between) {
      ways_.push_back(useful_ways(capacity, edge));
    }
    visited_.assign(static_cast<size_t>(problem.node_count), 0);
  }

  std::vector<Ring> list() {
    extend(0);
    if (rings_.size() > kAllRingsMax) rings_.clear();
    return std::move(rings_);
  }

 private:
  void extend(int32_t at) {
    const bool last = static_cast<int32_t>(ring_.size()) + 1 == problem_.node_count;
    for (int32_t to = 0; to < problem_.node_count; ++to) {
      if (rings_.size() > kAllRingsMax) return;
      if (last != (to == 0) || visited_[static_cast<size_t>(to)]) continue;
      visited_[static_cast<size_t>(to)] = 1;
      for (const int32_t way : ways_[static_cast<size_t>(at * problem_.node_count + to)]) {
        ring_.push_back(way);
        last ? rings_.push_back(ring_) : extend(to);
        ring_.pop_back();
      }
      visited_[static_cast<size_t>(to)] = 0;
    }
  }

  const RingProblem& problem_;
  std::vector<std::vector<int32_t>> ways_;
  std::vector<char> visited_;
  Ring ring_;
  std::vector<Ring> rings_;
};

// Keeps of rings that load every row at least as much as another ring only that other one.
std::vector<Ring> undominated(const RingCapacity& capacity, std::vector<Ring> rings) {
  std::vector<std::pair<std::vector<double>, Ring>> kept;
  for (Ring& ring : rings) {
    std::vector<double> load = capacity.load_of(ring);
    const auto covers = [](const std::vector<double>& low, const std::vector<double>& high) {
      return std::ranges::equal(low, high, [](double a, double b) { return a <= b + kSame; });
    };
    if (std::ranges::any_of(kept, [&](const auto& k) { return covers(k.first, load); })) continue;
    std::erase_if(kept, [&](const auto& k) { return covers(load, k.first); });
    kept.emplace_back(std::move(load), std::move(ring));
  }
  std::vector<Ring> result;
  for (auto& [load, ring] : kept) result.push_back(std::move(ring));
  return result;
}

// How many ways there are to choose; as a float, since it only has to be compared.
double choices(size_t from, int32_t count) {
  double ways = 1;
  for (int32_t i = 0; i < count; ++i) ways *= static_cast<double>(from) - i;
  for (int32_t i = 2; i <= count; ++i) ways /= i;
  return ways;
}

}  // namespace

std::vector<TransferShare> mix_shares(const RingMix& mix) {
  std::map<int32_t, double> sums;
  for (const WeightedRing& ring : mix.rings) {
    for (const int32_t candidate : ring.ring) sums[candidate] += ring.weight;
  }
  std::vector<TransferShare> shares;
  for (const auto& [candidate, share] : sums) shares.push_back({candidate, share});
  return shares;
}

void MixSearch::add(const Ring& ring) {
  if (std::ranges::find(seeds_, ring) == seeds_.end()) seeds_.push_back(ring);
}

// Adds rings at the prices of the rows until none would gain; gives the weights of the last
// program, one for each column there was.
std::vector<double> MixSearch::make_columns() {
  const int32_t n = problem_.node_count;
  bound_ = std::numeric_limits<double>::infinity();
  for (int32_t round = 0;; ++round) {
    std::vector<std::vector<double>> loads;
    for (const Ring& ring : columns_) loads.push_back(capacity_.load_of(ring));
    Packing packing = solve_packing(loads);
    std::vector<double> cost(problem_.between.size(), 0);
    std::vector<int32_t> way(problem_.between.size(), -1);
    for (size_t e = 0; e < problem_.between.size(); ++e) {
      for (const int32_t candidate : problem_.between[e]) {
        double price = 0;
        for (const auto& [row, part] : capacity_.loads(candidate)) {
          price += part * packing.prices[row];
        }
        if (way[e] >= 0 && price >= cost[e]) continue;
        cost[e] = price;
        way[e] = candidate;
      }
    }
    const CheapestRing cheapest = cheapest_ring(n, cost);
    // At these prices all rows together are worth `value`, and no ring takes less than this cost.
    const bool exact = n <= kExactCheapestNodes;
    if (exact && cheapest.cost > 0) bound_ = std::min(bound_, packing.value / cheapest.cost);
    const auto last = [&] {
      if (exact) return packing.weights;
      const double least = ring_cost_bound(n, cost, cheapest, {});
      if (least > kSame) bound_ = packing.value / least;
      return packing.weights;
    };
    if (cheapest.cost >= 1 - kSame || round >= kColumnsMax) return last();
    Ring ring;
    for (size_t i = 0; i < cheapest.order.size(); ++i) {
      const int32_t to = cheapest.order[(i + 1) % cheapest.order.size()];
      ring.push_back(way[static_cast<size_t>(cheapest.order[i] * n + to)]);
    }
    if (std::ranges::find(columns_, ring) != columns_.end()) return last();
    columns_.push_back(std::move(ring));
  }
}

RingMix MixSearch::mix_of(const std::vector<size_t>& columns) const {
  std::vector<size_t> chosen = columns;
  for (;;) {
    std::vector<std::vector<double>> loads;
    for (const size_t c : chosen) loads.push_back(capacity_.load_of(columns_[c]));
    const Packing packing = solve_packing(loads);
    std::vector<size_t> kept;
    RingMix mix{.rings = {}, .predicted = packing.value};
    for (size_t i = 0; i < chosen.size(); ++i) {
      const double weight = packing.weights[i] / packing.value;
      if (weight < kLeastWeight) continue;
      kept.push_back(chosen[i]);
      mix.rings.push_back({columns_[chosen[i]], weight});
    }
    if (kept.size() == chosen.size()) {
      std::ranges::stable_sort(mix.rings, std::greater<>(), &WeightedRing::weight);
      return mix;
    }
    chosen = std::move(kept);
  }
}

bool MixSearch::add_all_rings() {
  std::vector<Ring> all = AllRings(problem_, capacity_).list();
  if (all.empty()) return false;
  columns_ = undominated(capacity_, std::move(all));
  return true;
}

// Puts other columns in the place of one at a time, as long as that gains.
RingMix MixSearch::exchange(std::vector<size_t> chosen) const {
  RingMix best = mix_of(chosen);
  for (int32_t round = 0; round < kExchangeRoundsMax; ++round) {
    bool improved = false;
    for (size_t place = 0; place < chosen.size(); ++place) {
      for (size_t c = 0; c < columns_.size(); ++c) {
        if (std::ranges::find(chosen, c) != chosen.end()) continue;
        const size_t before = std::exchange(chosen[place], c);
        RingMix mix = mix_of(chosen);
        if (mix.predicted > best.predicted * (1 + kSame)) {
          best = std::move(mix);
          improved = true;
        } else {
          chosen[place] = before;
        }
      }
    }
    if (!improved) break;
  }
  return best;
}

RingMix MixSearch::best_of_few(const std::vector<double>& weights, int32_t rings_max) {
  std::vector<size_t> heaviest(weights.size());
  std::iota(heaviest.begin(), heaviest.end(), size_t{0});
  std::ranges::stable_sort(heaviest, [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  const auto few = static_cast<size_t>(rings_max);
  heaviest.resize(std::min(few, heaviest.size()));
  RingMix best = exchange(heaviest);
  if (best.predicted >= bound_ * (1 - kSame)) {
    exact_ = true;
    return best;
  }
  const bool all = add_all_rings();
  if (all && choices(columns_.size(), rings_max) <= kSubsetsMax) {
    // Every subset of the size wanted, in the order of its members.
    std::vector<size_t> subset(std::min(few, columns_.size()));
    std::iota(subset.begin(), subset.end(), size_t{0});
    for (;;) {
      RingMix mix = mix_of(subset);
      if (mix.predicted > best.predicted * (1 + kSame)) best = std::move(mix);
      size_t place = subset.size();
      while (place > 0 && subset[place - 1] == columns_.size() - subset.size() + place - 1) --place;
      if (place == 0) break;
      ++subset[place - 1];
      for (size_t i = place; i < subset.size(); ++i) subset[i] = subset[i - 1] + 1;
    }
    exact_ = true;
  }
  return best;
}

RingMix MixSearch::best(int32_t rings_max) {
  exact_ = false;
  columns_ = seeds_;
  if (columns_.empty()) {
    Ring first;
    for (int32_t i = 0; i < problem_.node_count; ++i) {
      first.push_back(problem_.edge(i, (i + 1) % problem_.node_count).front());
    }
    columns_.push_back(std::move(first));
  }
  const std::vector<double> weights = make_columns();
  std::vector<size_t> used;
  for (size_t c = 0; c < weights.size(); ++c) {
    if (weights[c] > 0) used.push_back(c);
  }
  if (static_cast<int32_t>(used.size()) > rings_max) return best_of_few(weights, rings_max);
  exact_ = std::accumulate(weights.begin(), weights.end(), 0.0) >= bound_ * (1 - kProven);
  return mix_of(used);
}

}  // namespace jige::plan
