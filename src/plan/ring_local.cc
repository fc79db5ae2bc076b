#include "plan/ring_local.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/rng.h"
#include "plan/ring_state.h"

namespace jige::plan {
namespace {

double eighth_power(double x) {
  x *= x;
  x *= x;
  return x * x;
}

class LocalSearch {
 public:
  LocalSearch(const RingProblem& problem, const RingFacts& facts, const std::set<Ring>& tried,
              const LocalOptions& options)
      : problem_(problem),
        facts_(facts),
        tried_(tried),
        options_(options),
        load_(problem.topology->resources().size(), 0),
        rng_(derive_key(options.seed, "local ring", tried.size())) {}

  std::optional<RingProposal> run() {
    std::vector<int32_t> order = beam();
    Ring ring;
    double energy = build(order, ring);
    for (int32_t move = 0; move < options_.moves; ++move) {
      std::vector<int32_t> other = order;
      disturb(other);
      Ring candidate;
      const double next = build(other, candidate);
      // Early on, worse rings pass too.
      const double slack = 0.3 * (1 - static_cast<double>(move) / options_.moves);
      if (next > energy * (1 + slack * rng_.uniform())) continue;
      order = std::move(other);
      energy = next;
    }
    return best_;
  }

 private:
  double rate_of(int32_t resource) const {
    return problem_.topology->resources()[static_cast<size_t>(resource)].gb_per_s;
  }

  // What the energy rises by when the candidate joins the loads.
  double rise(int32_t candidate) const {
    double sum = eighth_power(1 / facts_.solo(candidate));
    for (const topology::Usage& u : problem_.at(candidate).usage) {
      const double rate = rate_of(u.resource);
      const double load = load_[static_cast<size_t>(u.resource)];
      sum += eighth_power((load + u.cost) / rate) - eighth_power(load / rate);
    }
    return sum;
  }
  void add(int32_t candidate, double sign) {
    for (const topology::Usage& u : problem_.at(candidate).usage) {
      load_[static_cast<size_t>(u.resource)] += sign * u.cost;
    }
  }
  int32_t lightest(int32_t from, int32_t to) const {
    int32_t lightest = problem_.edge(from, to).front();
    double least = std::numeric_limits<double>::infinity();
    for (const int32_t way : problem_.edge(from, to)) {
      const double r = rise(way);
      if (r >= least) continue;
      least = r;
      lightest = way;
    }
    return lightest;
  }

  // Chooses the transfers of an order, one by one and then once more with all others known; gives
  // the energy, and remembers the ring if it is the best.
  double build(const std::vector<int32_t>& order, Ring& ring) {
    std::ranges::fill(load_, 0);
    const size_t n = order.size();
    for (size_t i = 0; i < n; ++i) {
      ring.push_back(lightest(order[i], order[(i + 1) % n]));
      add(ring.back(), 1);
    }
    for (size_t i = 0; i < n; ++i) {
      add(ring[i], -1);
      ring[i] = lightest(order[i], order[(i + 1) % n]);
      add(ring[i], 1);
    }
    double energy = 0;
    for (size_t r = 0; r < load_.size(); ++r) {
      energy += eighth_power(load_[r] / rate_of(static_cast<int32_t>(r)));
    }
    RingState state(problem_, facts_);
    for (const int32_t candidate : ring) state.push(candidate, state.peek(candidate));
    const RingValues values = state.values();
    energy += eighth_power(1 / values.bound);
    if (!tried_.contains(ring) && (!best_ || values.predicted > best_->predicted)) {
      best_ = RingProposal{ring, values.predicted, true};
    }
    return energy;
  }

  void disturb(std::vector<int32_t>& order) {
    // Node 0 stays in front: rings have no beginning.
    const size_t n = order.size() - 1;
    size_t a = 1 + rng_.below(n), b = 1 + rng_.below(n);
    if (a > b) std::swap(a, b);
    const auto at = [&](size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
    switch (rng_.below(3)) {
      case 0:
        std::reverse(at(a), at(b + 1));
        break;
      case 1:
        std::rotate(at(a), at(a + 1), at(b + 1));
        break;
      default:
        std::swap(order[a], order[b]);
    }
  }

  std::vector<int32_t> beam() {
    struct Partial {
      Ring ring;
      double predicted, energy;
    };
    std::vector<Partial> beam{{}};
    const profile::Symmetry none;
    const RingBranching all(problem_, none);
    for (int32_t depth = 0; depth < problem_.node_count; ++depth) {
      std::vector<Partial> next;
      for (const Partial& partial : beam) {
        RingState state(problem_, facts_);
        std::ranges::fill(load_, 0);
        for (const int32_t candidate : partial.ring) {
          state.push(candidate, state.peek(candidate));
          add(candidate, 1);
        }
        for (const RingStep& step : ring_steps(problem_, state, all, 0, true)) {
          Partial longer = partial;
          longer.ring.push_back(step.candidate);
          longer.predicted = step.values.predicted;
          longer.energy += rise(step.candidate);
          next.push_back(std::move(longer));
        }
      }
      std::ranges::stable_sort(next, {},
                               [](const Partial& p) { return std::tuple(-p.predicted, p.energy); });
      if (next.size() > static_cast<size_t>(options_.beam_width)) {
        next.resize(static_cast<size_t>(options_.beam_width));
      }
      beam = std::move(next);
    }
    std::vector<int32_t> order;
    for (const int32_t candidate : beam.front().ring) order.push_back(problem_.at(candidate).from);
    return order;
  }

  const RingProblem& problem_;
  const RingFacts& facts_;
  const std::set<Ring>& tried_;
  const LocalOptions& options_;
  std::vector<double> load_;
  Rng rng_;
  std::optional<RingProposal> best_;
};

}  // namespace

std::optional<RingProposal> local_ring(const RingProblem& problem, const RingFacts& facts,
                                       const std::set<Ring>& tried, const LocalOptions& options) {
  return LocalSearch(problem, facts, tried, options).run();
}

}  // namespace jige::plan
