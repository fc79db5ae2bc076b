#include "plan/trial_rungs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace jige::plan {
namespace {

// How often trials are compared until one is left.
int comparisons_of(int64_t trials, int64_t factor) {
  int rounds = 0;
  for (; trials > 1; trials = count_going_on(trials, factor)) ++rounds;
  return rounds;
}

double comparable(double loss) {
  return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
}

}  // namespace

std::vector<int64_t> rung_steps(const RungRequest& request) {
  const int rounds = comparisons_of(request.trials, request.factor);
  std::vector<int64_t> steps;
  int64_t divisor = 1;  // from the last one down
  int64_t next = request.first;
  for (int round = 0; round < rounds; ++round) {
    int64_t step = next;
    if (request.first == 0) {
      if (divisor > request.steps / request.factor) break;
      divisor *= request.factor;
      step = (request.steps + divisor - 1) / divisor;
      step = (step + request.every - 1) / request.every * request.every;
    } else {
      if (step >= request.steps) break;
      next = step > request.steps / request.factor ? request.steps : step * request.factor;
    }
    if (step < request.steps) steps.push_back(step);
  }
  std::ranges::sort(steps);
  const auto repeated = std::ranges::unique(steps);
  steps.erase(repeated.begin(), repeated.end());
  return steps;
}

std::vector<size_t> trials_going_on(std::span<const double> losses, int64_t factor) {
  std::vector<size_t> order(losses.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t trial) { return comparable(losses[trial]); });
  order.resize(static_cast<size_t>(count_going_on(std::ssize(losses), factor)));
  std::ranges::sort(order);
  return order;
}

}  // namespace jige::plan
