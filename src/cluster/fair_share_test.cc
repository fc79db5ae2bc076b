#include "cluster/fair_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/rng.h"

namespace jige::cluster {
namespace {

struct Flow {
  std::vector<LinkLoad> loads;
  double cap = 1;
  double speed = 1;
};

// Max-min by bisection on the common level: the highest at which everybody fits, then those who
// cannot get more on their own are fixed there, and the rest goes on. Nothing in common with
// progressive filling but the definition.
std::vector<double> oracle(const std::vector<Flow>& flows, const std::vector<double>& capacities) {
  std::vector<double> rates(flows.size(), 0);
  std::vector<bool> fixed(flows.size(), false);
  const auto fits = [&](const std::vector<double>& tried) {
    std::vector<double> used(capacities.size(), 0);
    for (size_t j = 0; j < flows.size(); ++j) {
      for (const LinkLoad& load : flows[j].loads) {
        used[static_cast<size_t>(load.link)] += load.bytes * tried[j];
      }
    }
    for (size_t e = 0; e < used.size(); ++e) {
      if (used[e] > capacities[e] * (1 + 1e-12)) return false;
    }
    return true;
  };
  while (std::ranges::find(fixed, false) != fixed.end()) {
    const auto at_level = [&](double level) {
      std::vector<double> tried = rates;
      for (size_t j = 0; j < flows.size(); ++j) {
        if (!fixed[j]) tried[j] = std::min(flows[j].cap, level * flows[j].speed);
      }
      return tried;
    };
    double low = 0, high = 1e9;
    for (int i = 0; i < 200; ++i) {
      const double middle = (low + high) / 2;
      (fits(at_level(middle)) ? low : high) = middle;
    }
    rates = at_level(low);
    bool any = false;
    for (size_t j = 0; j < flows.size(); ++j) {
      if (fixed[j]) continue;
      std::vector<double> more = rates;
      more[j] *= 1 + 1e-7;
      if (rates[j] >= flows[j].cap * (1 - 1e-9) || !fits(more)) fixed[j] = any = true;
    }
    EXPECT_TRUE(any) << "the oracle fixed nobody";
    if (!any) break;
  }
  return rates;
}

Flow random_flow(Rng& rng, int32_t link_count) {
  Flow flow;
  for (int32_t link = 0; link < link_count; ++link) {
    if (rng.below(2) == 0) flow.loads.push_back({link, 0.1 + rng.uniform()});
  }
  if (flow.loads.empty()) flow.loads.push_back({0, 1});
  flow.cap = 0.05 + 3 * rng.uniform();
  flow.speed = rng.below(2) == 0 ? 1 : 0.1 + rng.uniform();
  return flow;
}

std::vector<double> random_capacities(Rng& rng) {
  std::vector<double> capacities(1 + rng.below(6));
  for (double& capacity : capacities) capacity = 0.2 + 2 * rng.uniform();
  return capacities;
}

TEST(FairShare, EqualsTheOracleOnRandomNetworks) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Rng rng(derive_key(seed, "fair share"));
    const std::vector<double> capacities = random_capacities(rng);
    std::vector<Flow> flows;
    FairShare shares(capacities);
    for (uint64_t i = 0, count = 1 + rng.below(6); i < count; ++i) {
      flows.push_back(random_flow(rng, static_cast<int32_t>(capacities.size())));
      shares.add(static_cast<int32_t>(i), flows.back().loads, flows.back().cap, flows.back().speed);
    }
    shares.settle();
    const std::vector<double> expected = oracle(flows, capacities);
    for (size_t j = 0; j < flows.size(); ++j) {
      EXPECT_NEAR(shares.rate(static_cast<int32_t>(j)), expected[j], 1e-6 * expected[j])
          << "seed " << seed << " flow " << j;
    }
  }
}

// The two conditions of the header describe the rates completely.
void expect_max_min(const std::map<int32_t, Flow>& flows, const FairShare& shares) {
  std::vector<double> used(shares.capacities().size(), 0);
  for (const auto& [id, flow] : flows) {
    for (const LinkLoad& load : flow.loads) {
      used[static_cast<size_t>(load.link)] += load.bytes * shares.rate(id);
    }
  }
  for (size_t e = 0; e < used.size(); ++e) {
    EXPECT_LE(used[e], shares.capacities()[e] * (1 + 1e-9));
  }
  for (const auto& [id, flow] : flows) {
    const double level = shares.rate(id) / flow.speed;
    bool held = shares.rate(id) >= flow.cap * (1 - 1e-9);
    for (const LinkLoad& load : flow.loads) {
      const auto e = static_cast<size_t>(load.link);
      bool highest = used[e] >= shares.capacities()[e] * (1 - 1e-9);
      for (const auto& [other, its] : flows) {
        const bool here =
            std::ranges::find(its.loads, load.link, &LinkLoad::link) != its.loads.end();
        highest = highest && (!here || shares.rate(other) / its.speed <= level * (1 + 1e-9));
      }
      held = held || highest;
    }
    EXPECT_TRUE(held) << "group " << id << " could have more";
  }
}

TEST(FairShare, StaysMaxMinWhileGroupsComeAndGo) {
  for (uint64_t seed = 0; seed < 25; ++seed) {
    Rng rng(derive_key(seed, "fair share changes"));
    std::vector<double> capacities(12);
    for (double& capacity : capacities) capacity = 0.5 + 3 * rng.uniform();
    FairShare shares(capacities);
    std::map<int32_t, Flow> flows;
    for (int32_t step = 0; step < 80; ++step) {
      if (flows.size() > 8 || (!flows.empty() && rng.below(3) == 0)) {
        const auto gone = std::next(flows.begin(), static_cast<int64_t>(rng.below(flows.size())));
        shares.remove(gone->first);
        flows.erase(gone);
      } else {
        Flow flow{.loads = {{static_cast<int32_t>(rng.below(6)), 0.1 + rng.uniform()},
                            {static_cast<int32_t>(6 + rng.below(6)), 0.1 + rng.uniform()}},
                  .cap = 0.1 + 2 * rng.uniform()};
        shares.add(step, flow.loads, flow.cap, flow.speed);
        flows[step] = flow;
      }
      if (rng.below(3) == 0) continue;  // several changes at once
      shares.settle();
      expect_max_min(flows, shares);
      if (HasFailure()) FAIL() << "seed " << seed << " step " << step;
    }
  }
}

TEST(FairShare, ForecastsWhatComesTrueAndChangesNothing) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(derive_key(seed, "fair share forecast"));
    const std::vector<double> capacities = random_capacities(rng);
    const auto links = static_cast<int32_t>(capacities.size());
    FairShare shares(capacities);
    for (int32_t id = 0; id < 5; ++id) {
      const Flow flow = random_flow(rng, links);
      shares.add(id, flow.loads, flow.cap, flow.speed);
    }
    shares.settle();
    std::vector<double> before;
    for (int32_t id = 0; id < 5; ++id) before.push_back(shares.rate(id));
    const Flow next = random_flow(rng, links);
    const FairShare::Forecast forecast = shares.forecast(next.loads, next.cap, next.speed);
    for (int32_t id = 0; id < 5; ++id) EXPECT_EQ(shares.rate(id), before[static_cast<size_t>(id)]);
    EXPECT_TRUE(shares.settle().empty());
    shares.add(5, next.loads, next.cap, next.speed);
    shares.settle();
    EXPECT_EQ(shares.rate(5), forecast.rate);
    for (const auto& [id, rate] : forecast.others) {
      EXPECT_EQ(shares.rate(id), rate);
      before[static_cast<size_t>(id)] = rate;
    }
    for (int32_t id = 0; id < 5; ++id) EXPECT_EQ(shares.rate(id), before[static_cast<size_t>(id)]);
  }
}

// On one link there is nothing that an estimate leaves out.
TEST(FairShare, EstimatesOneLinkExactly) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(derive_key(seed, "fair share estimate"));
    FairShare shares({1.0});
    const auto draw = [&] {
      return Flow{{{0, 0.1 + rng.uniform()}}, 0.05 + rng.uniform(), 0.2 + rng.uniform()};
    };
    const auto count = static_cast<int32_t>(rng.below(7));
    for (int32_t id = 0; id < count; ++id) {
      const Flow flow = draw();
      shares.add(id, flow.loads, flow.cap, flow.speed);
    }
    shares.settle();
    const Flow next = draw();
    const FairShare::Forecast exact = shares.forecast(next.loads, next.cap, next.speed);
    const FairShare::Forecast estimate = shares.estimate(next.loads, next.cap, next.speed);
    EXPECT_NEAR(estimate.rate, exact.rate, 1e-9) << seed;
    std::map<int32_t, double> lost;
    for (const auto& [id, rate] : exact.others) lost[id] += shares.rate(id) - rate;
    for (const auto& [id, rate] : estimate.others) lost[id] -= shares.rate(id) - rate;
    for (const auto& [id, difference] : lost) EXPECT_NEAR(difference, 0, 1e-9) << seed;
  }
}

// A thousand groups that all hang together over full links. A forecast looks at a part of them, and
// is close: the newcomer's rate within 2 % in the mean, what others lose together within 10 %. An
// estimate is off by less than 10 %.
TEST(FairShare, ForecastsLargeNetworksFromNearby) {
  Rng rng(derive_key(1, "fair share nearby"));
  constexpr int32_t kLinks = 400, kGroups = 1000;
  const std::vector<double> capacities(kLinks, 1.0);
  const auto draw = [&] {
    Flow flow{.cap = 0.2 + rng.uniform(), .speed = 0.5 + rng.uniform()};
    const auto first = static_cast<int32_t>(rng.below(kLinks - 8));
    for (int32_t i = 0; i < 3; ++i) {
      flow.loads.push_back({first + 3 * i - (i > 0), 0.3 + rng.uniform()});
    }
    return flow;
  };
  FairShare shares(capacities);
  for (int32_t id = 0; id < kGroups; ++id) {
    const Flow flow = draw();
    shares.add(id, flow.loads, flow.cap, flow.speed);
  }
  EXPECT_EQ(std::ssize(shares.settle()), kGroups);
  double rate_error = 0, estimate_error = 0, lost = 0, lost_forecast = 0;
  constexpr int kTrials = 50;
  for (int i = 0; i < kTrials; ++i) {
    std::vector<double> before;
    for (int32_t id = 0; id < kGroups; ++id) before.push_back(shares.rate(id));
    const Flow next = draw();
    const FairShare::Forecast forecast = shares.forecast(next.loads, next.cap, next.speed);
    const FairShare::Forecast estimate = shares.estimate(next.loads, next.cap, next.speed);
    estimate_error += std::abs(estimate.rate / forecast.rate - 1) / kTrials;
    EXPECT_LT(forecast.others.size(), FairShare::kForecastGroups + 40u);
    for (const auto& [id, rate] : forecast.others) {
      lost_forecast += before[static_cast<size_t>(id)] - rate;
    }
    shares.add(kGroups, next.loads, next.cap, next.speed);
    shares.settle();
    rate_error += std::abs(forecast.rate / shares.rate(kGroups) - 1) / kTrials;
    for (int32_t id = 0; id < kGroups; ++id) {
      lost += before[static_cast<size_t>(id)] - shares.rate(id);
    }
    shares.remove(kGroups);
    shares.settle();
  }
  EXPECT_LT(rate_error, 0.02);
  EXPECT_LT(estimate_error, 0.1);
  EXPECT_NEAR(lost_forecast / lost, 1, 0.1);
}

TEST(FairShare, NeverLosesByMoreCapacityWhereAllShareOneLink) {
  Rng rng(derive_key(3, "fair share capacity"));
  std::vector<Flow> flows;
  for (int i = 0; i < 5; ++i) flows.push_back({{{0, 0.1 + rng.uniform()}}, rng.uniform() + 0.1, 1});
  std::vector<double> before(flows.size(), 0);
  for (double capacity = 0.1; capacity < 4; capacity += 0.2) {
    FairShare shares({capacity});
    for (size_t j = 0; j < flows.size(); ++j) {
      shares.add(static_cast<int32_t>(j), flows[j].loads, flows[j].cap, flows[j].speed);
    }
    shares.settle();
    for (size_t j = 0; j < flows.size(); ++j) {
      EXPECT_GE(shares.rate(static_cast<int32_t>(j)), before[j] * (1 - 1e-12));
      before[j] = shares.rate(static_cast<int32_t>(j));
    }
  }
}

TEST(FairShare, RecomputesOnlyWhatAChangeReaches) {
  FairShare shares({1, 1, 10});
  shares.add(0, {{0, 1}, {2, 1}}, 1, 1);
  shares.add(1, {{0, 1}, {2, 1}}, 1, 1);
  shares.add(2, {{1, 1}, {2, 1}}, 1, 1);
  EXPECT_EQ(shares.settle(), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(shares.rate(0), 0.5);
  EXPECT_EQ(shares.rate(2), 1);
  // Link 2 holds all of them at their caps and joins nobody.
  shares.add(3, {{1, 1}, {2, 1}}, 1, 1);
  EXPECT_EQ(shares.settle(), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(shares.rate(2), 0.5);
  shares.remove(0);
  EXPECT_EQ(shares.settle(), (std::vector<int32_t>{1}));
  EXPECT_EQ(shares.rate(1), 1);
}

}  // namespace
}  // namespace jige::cluster
