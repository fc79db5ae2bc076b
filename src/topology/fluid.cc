#include "topology/fluid.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace jige::topology {
namespace {

// Rates of the flows that `active` marks; the others get 0.
std::vector<double> share(std::span<const Resource> resources, std::span<const Flow> flows,
                          const std::vector<bool>& active) {
  std::vector<double> left(resources.size());
  std::vector<int32_t> sharing(resources.size(), 0);
  for (size_t f = 0; f < flows.size(); ++f) {
    if (!active[f]) continue;
    for (const Usage& u : flows[f].usage) ++sharing[static_cast<size_t>(u.resource)];
  }
  for (size_t r = 0; r < resources.size(); ++r) {
    const Penalty& penalty = resources[r].penalty;
    const bool penalised = penalty.flows > 0 && sharing[r] > penalty.flows;
    left[r] = resources[r].gb_per_s * (penalised ? penalty.factor : 1);
  }
  std::vector<double> rates(flows.size(), 0);
  std::vector<bool> rising = active;
  // The level is rate over weight, common to all flows that still rise.
  double level = 0;
  for (;;) {
    std::vector<double> slope(resources.size(), 0);
    bool any = false;
    for (size_t f = 0; f < flows.size(); ++f) {
      if (!rising[f]) continue;
      any = true;
      for (const Usage& u : flows[f].usage) {
        slope[static_cast<size_t>(u.resource)] += u.cost * flows[f].weight;
      }
    }
    if (!any) return rates;
    double step = kUnlimited;
    for (size_t r = 0; r < resources.size(); ++r) {
      if (slope[r] > 0) step = std::min(step, std::max(0.0, left[r]) / slope[r]);
    }
    level += step;
    std::vector<bool> full(resources.size(), false);
    for (size_t r = 0; r < resources.size(); ++r) {
      if (slope[r] <= 0) continue;
      full[r] = std::max(0.0, left[r]) / slope[r] <= step * (1 + 1e-12);
      left[r] -= slope[r] * step;
    }
    for (size_t f = 0; f < flows.size(); ++f) {
      if (!rising[f]) continue;
      const bool stopped =
          step == kUnlimited || std::ranges::any_of(flows[f].usage, [&](const Usage& u) {
            return full[static_cast<size_t>(u.resource)];
          });
      if (!stopped) continue;
      rising[f] = false;
      rates[f] = level * flows[f].weight;
    }
  }
}

}  // namespace

std::vector<double> max_min_rates(std::span<const Resource> resources,
                                  std::span<const Flow> flows) {
  return share(resources, flows, std::vector<bool>(flows.size(), true));
}

FluidRun run_flows(std::span<const Resource> resources, std::span<const Flow> flows,
                   std::span<const double> bytes) {
  JIGE_CHECK(flows.size() == bytes.size(), "{} flows with {} sizes", flows.size(), bytes.size());
  FluidRun run{.end_s = std::vector<double>(flows.size(), 0)};
  std::vector<double> left(bytes.begin(), bytes.end());
  std::vector<bool> active(flows.size());
  for (size_t f = 0; f < flows.size(); ++f) active[f] = left[f] > 0;
  while (std::ranges::find(active, true) != active.end()) {
    const std::vector<double> rates = share(resources, flows, active);
    double step = std::numeric_limits<double>::infinity();
    for (size_t f = 0; f < flows.size(); ++f) {
      if (active[f]) step = std::min(step, left[f] / (rates[f] * 1e9));
    }
    run.makespan_s += step;
    for (size_t f = 0; f < flows.size(); ++f) {
      if (!active[f]) continue;
      // Those that end now, up to rounding, end together.
      const bool ends = left[f] / (rates[f] * 1e9) <= step * (1 + 1e-9);
      left[f] = ends ? 0 : left[f] - rates[f] * 1e9 * step;
      if (!ends) continue;
      active[f] = false;
      run.end_s[f] = run.makespan_s;
    }
  }
  return run;
}

}  // namespace jige::topology
