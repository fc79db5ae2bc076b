#include "topology/fluid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "topology/reference_topologies.h"

namespace jige::topology {
namespace {

struct Case {
  std::vector<Resource> resources;
  std::vector<Flow> flows;
};

Case random_case(Rng& rng) {
  Case c;
  for (uint64_t r = 1 + rng.below(5); r > 0; --r)
    c.resources.push_back({.gb_per_s = 1 + 9 * rng.uniform()});
  for (uint64_t f = 1 + rng.below(6); f > 0; --f) {
    Flow flow{.weight = 1.0 + static_cast<double>(rng.below(3))};
    for (size_t r = 0; r < c.resources.size(); ++r) {
      if (rng.below(2))
        flow.usage.push_back(
            {static_cast<int32_t>(r), 0.5 + static_cast<double>(rng.below(4)) / 2});
    }
    if (flow.usage.empty()) flow.usage.push_back({0, 1});
    c.flows.push_back(flow);
  }
  return c;
}

// max objective·x with rows·x <= limit, x >= 0, limit >= 0, by the simplex method with Bland's
// rule.
double maximise(std::vector<std::vector<double>> rows, std::vector<double> limit,
                std::vector<double> objective) {
  const size_t n = objective.size(), m = rows.size();
  for (size_t i = 0; i < m; ++i) {
    rows[i].resize(n + m, 0);
    rows[i][n + i] = 1;
  }
  objective.resize(n + m, 0);
  double value = 0;
  for (;;) {
    size_t enter = 0;
    while (enter < n + m && objective[enter] <= 1e-11) ++enter;
    if (enter == n + m) return value;
    size_t leave = m;
    for (size_t i = 0; i < m; ++i) {
      if (rows[i][enter] <= 1e-11) continue;
      if (leave == m || limit[i] / rows[i][enter] < limit[leave] / rows[leave][enter]) leave = i;
    }
    if (leave == m) return kUnlimited;
    const double pivot = rows[leave][enter];
    for (double& x : rows[leave]) x /= pivot;
    limit[leave] /= pivot;
    for (size_t i = 0; i < m; ++i) {
      if (i == leave) continue;
      const double factor = rows[i][enter];
      for (size_t j = 0; j < n + m; ++j) rows[i][j] -= factor * rows[leave][j];
      limit[i] = std::max(0.0, limit[i] - factor * limit[leave]);
    }
    const double factor = objective[enter];
    for (size_t j = 0; j < n + m; ++j) objective[j] -= factor * rows[leave][j];
    value += factor * limit[leave];
  }
}

// The lexicographic optimum by linear programs: raise the least level as far as it goes, find which
// flows cannot go higher, fix those, repeat.
std::vector<double> rates_by_programs(const Case& c) {
  const size_t n = c.flows.size();
  std::vector<double> rate(n, 0);
  std::vector<bool> fixed(n, false);
  while (std::ranges::find(fixed, false) != fixed.end()) {
    // Variables: the level t, then each flow's excess over weight * t.
    std::vector<std::vector<double>> rows(c.resources.size(), std::vector<double>(n + 1, 0));
    std::vector<double> limit;
    for (size_t r = 0; r < c.resources.size(); ++r) {
      double left = c.resources[r].gb_per_s;
      for (size_t f = 0; f < n; ++f) {
        for (const Usage& u : c.flows[f].usage) {
          if (static_cast<size_t>(u.resource) != r) continue;
          if (fixed[f]) {
            left -= u.cost * rate[f];
          } else {
            rows[r][0] += u.cost * c.flows[f].weight;
            rows[r][f + 1] += u.cost;
          }
        }
      }
      limit.push_back(std::max(0.0, left));
    }
    std::vector<double> objective(n + 1, 0);
    objective[0] = 1;
    const double level = maximise(rows, limit, objective);
    std::vector<double> rest = limit;
    for (size_t r = 0; r < rows.size(); ++r) {
      rest[r] = std::max(0.0, rest[r] - rows[r][0] * level);
      rows[r][0] = 0;
    }
    std::vector<bool> next = fixed;
    for (size_t f = 0; f < n; ++f) {
      if (fixed[f]) continue;
      std::vector<double> want(n + 1, 0);
      want[f + 1] = 1;
      if (maximise(rows, rest, want) > 1e-7) continue;
      next[f] = true;
      rate[f] = level * c.flows[f].weight;
    }
    if (next == fixed) {
      ADD_FAILURE() << "no flow is at its limit";
      return rate;
    }
    fixed = next;
  }
  return rate;
}

TEST(Fluid, EqualsTheLexicographicLinearPrograms) {
  Rng rng(derive_key(1, "fluid"));
  for (int round = 0; round < 2000; ++round) {
    const Case c = random_case(rng);
    const std::vector<double> rates = max_min_rates(c.resources, c.flows);
    const std::vector<double> expected = rates_by_programs(c);
    for (size_t f = 0; f < rates.size(); ++f) {
      ASSERT_NEAR(rates[f], expected[f], 1e-6) << "round " << round << " flow " << f;
    }
  }
}

TEST(Fluid, WeightsAndCostsShareAResource) {
  const std::vector<Resource> one{{.gb_per_s = 12}};
  const std::vector<Flow> flows{{{{0, 1}}, 1}, {{{0, 2}}, 2.5}};
  const std::vector<double> rates = max_min_rates(one, flows);
  EXPECT_DOUBLE_EQ(rates[0], 2);
  EXPECT_DOUBLE_EQ(rates[1], 5);
}

TEST(Fluid, TheMakespanOfEqualSizesIsBytesOverTheLowestRate) {
  Rng rng(derive_key(2, "fluid"));
  for (int round = 0; round < 500; ++round) {
    Case c = random_case(rng);
    for (Flow& flow : c.flows) flow.weight = 1;
    const std::vector<double> rates = max_min_rates(c.resources, c.flows);
    const std::vector<double> bytes(c.flows.size(), 2e9);
    const FluidRun run = run_flows(c.resources, c.flows, bytes);
    ASSERT_NEAR(run.makespan_s, 2 / *std::ranges::min_element(rates), 1e-9);
    // Every resource carries what all its flows sent, so none can end before that.
    for (size_t r = 0; r < c.resources.size(); ++r) {
      double load = 0;
      for (const Flow& flow : c.flows) {
        for (const Usage& u : flow.usage) load += static_cast<size_t>(u.resource) == r ? u.cost : 0;
      }
      ASSERT_GE(run.makespan_s, 2 * load / c.resources[r].gb_per_s - 1e-9);
    }
  }
}

TEST(Fluid, RatesRiseWhenOthersEnd) {
  const std::vector<Resource> one{{.gb_per_s = 10}};
  const std::vector<Flow> flows{{{{0, 1}}}, {{{0, 1}}}, {}};
  const FluidRun run = run_flows(one, flows, std::vector<double>{10e9, 30e9, 5e9});
  EXPECT_NEAR(run.end_s[0], 2, 1e-9);
  EXPECT_NEAR(run.end_s[1], 4, 1e-9);
  EXPECT_EQ(run.end_s[2], 0);  // uses nothing
  EXPECT_NEAR(run.makespan_s, 4, 1e-9);
}

TEST(Fluid, APenaltyActsOnlyAboveItsFlows) {
  std::vector<Resource> one{{.gb_per_s = 12, .penalty = {2, 0.5, "assumed"}}};
  const Flow flow{{{0, 1}}};
  EXPECT_DOUBLE_EQ(max_min_rates(one, std::vector<Flow>(2, flow))[0], 6);
  EXPECT_DOUBLE_EQ(max_min_rates(one, std::vector<Flow>(3, flow))[0], 2);
}

// Plain max-min cannot produce a collapse in which the total falls; the penalty is what does.
TEST(Fluid, WithoutPenaltyMoreFlowsNeverLowerTheTotalOfOneResource) {
  const std::vector<Resource> one{{.gb_per_s = 12}};
  for (size_t count = 1; count < 20; ++count) {
    EXPECT_NEAR(max_min_rates(one, std::vector<Flow>(count, Flow{{{0, 1}}}))[0] *
                    static_cast<double>(count),
                12, 1e-9);
  }
}

}  // namespace
}  // namespace jige::topology
