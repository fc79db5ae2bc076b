#include "plan/ring_mix.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/rng.h"
#include "plan/cheapest_ring.h"
#include "plan/packing_lp.h"
#include "plan/ring_mix_planner.h"
#include "plan/ring_test_support.h"
#include "profile/measurement_store.h"
#include "profile/simulated_meter.h"
#include "topology/reference_topologies.h"

namespace jige::plan {
namespace {

using topology::Description;
using topology::Topology;

// What a ring takes of every resource, relative to its rate.
std::vector<double> truth_load(const RingProblem& problem, const Ring& ring) {
  std::vector<double> load(problem.topology->resources().size(), 0);
  for (const int32_t c : ring) {
    for (const topology::Usage& u : problem.at(c).usage) {
      const auto r = static_cast<size_t>(u.resource);
      load[r] += u.cost / problem.topology->resources()[r].gb_per_s;
    }
  }
  return load;
}

// The best of two rings: the time is a maximum of linear functions of the weight, so a search by
// thirds finds its least.
double best_of_two(const std::vector<double>& a, const std::vector<double>& b) {
  const auto time = [&](double w) {
    double most = 0;
    for (size_t r = 0; r < a.size(); ++r) most = std::max(most, w * a[r] + (1 - w) * b[r]);
    return most;
  };
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {
    const double left = low + (high - low) / 3, right = high - (high - low) / 3;
    (time(left) <= time(right) ? high : low) = time(left) <= time(right) ? right : left;
  }
  return 1 / time((low + high) / 2);
}

TEST(PackingLp, IsOptimalByItsPrices) {
  Rng rng(derive_key(1, "packing"));
  for (int round = 0; round < 400; ++round) {
    const size_t rows = 1 + rng.below(6), count = 1 + rng.below(12);
    std::vector<std::vector<double>> columns(count, std::vector<double>(rows));
    for (auto& column : columns) {
      for (double& part : column) part = rng.below(3) == 0 ? 0 : static_cast<double>(rng.below(5));
      column[rng.below(rows)] = 1 + rng.uniform();
    }
    const Packing packing = solve_packing(columns);
    for (size_t r = 0; r < rows; ++r) {
      double filled = 0;
      for (size_t c = 0; c < count; ++c) filled += packing.weights[c] * columns[c][r];
      ASSERT_LE(filled, 1 + 1e-9);
    }
    // A packing and prices of the same value prove one another: none is better.
    for (size_t c = 0; c < count; ++c) {
      ASSERT_GE(packing.weights[c], 0);
      const double cost =
          std::inner_product(columns[c].begin(), columns[c].end(), packing.prices.begin(), 0.0);
      ASSERT_GE(cost, 1 - 1e-9);
    }
    ASSERT_NEAR(std::accumulate(packing.weights.begin(), packing.weights.end(), 0.0), packing.value,
                1e-9);
    ASSERT_NEAR(std::accumulate(packing.prices.begin(), packing.prices.end(), 0.0), packing.value,
                1e-9);
  }
}

TEST(CheapestRing, EqualsAllOrders) {
  Rng rng(derive_key(2, "cheapest ring"));
  for (int round = 0; round < 200; ++round) {
    const auto n = static_cast<int32_t>(2 + rng.below(6));
    std::vector<double> cost(static_cast<size_t>(n * n));
    for (double& c : cost) c = rng.uniform();
    const auto total = [&](const std::vector<int32_t>& order) {
      double sum = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        sum += cost[static_cast<size_t>(order[i] * n + order[(i + 1) % order.size()])];
      }
      return sum;
    };
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    double best = total(order);
    while (std::next_permutation(order.begin() + 1, order.end())) {
      best = std::min(best, total(order));
    }
    const CheapestRing ring = cheapest_ring(n, cost);
    ASSERT_NEAR(ring.cost, best, 1e-12);
    ASSERT_NEAR(total(ring.order), best, 1e-12);
    ASSERT_TRUE(std::ranges::is_permutation(ring.order, order));
  }
  // Beyond the exact size nothing is claimed but a ring over all, no dearer than the rank order.
  const int32_t n = kExactCheapestNodes + 4;
  std::vector<double> far(static_cast<size_t>(n * n), 1);
  for (int32_t i = 0; i < n; ++i) far[static_cast<size_t>(i * n + (i + 5) % n)] = 0.1;
  const CheapestRing ring = cheapest_ring(n, far);
  EXPECT_EQ(ring.order.size(), static_cast<size_t>(n));
  EXPECT_LT(ring.cost, n * 0.8);
}

struct Planned {
  RingProblem problem;
  RingPlan single;
  RingMixPlan mix;
};

Planned plan_on(const Topology& believed, const Topology& truth, RingMixOptions options) {
  Planned planned{.problem = *ring_problem(believed, ring_devices(believed), {})};
  profile::SimulatedMeter meter(truth);
  profile::Profiler profiler(believed, meter);
  auto single = plan_ring(planned.problem, profiler, {.budget_s = 1e9, .symmetry = false});
  EXPECT_TRUE(single) << single.error().message;
  planned.single = std::move(*single);
  options.budget_s = 1e9;
  auto mix = plan_mix(planned.problem, profiler, planned.single, options);
  EXPECT_TRUE(mix) << mix.error().message;
  planned.mix = std::move(*mix);
  return planned;
}

MeasuredMix named(const RingMixPlan& plan, std::string_view name) {
  const auto found = std::ranges::find(plan.best, name, &MeasuredMix::name);
  EXPECT_NE(found, plan.best.end()) << name;
  return found == plan.best.end() ? MeasuredMix() : *found;
}

TEST(RingMix, TwoRingsEqualBruteForceOnRandomNetworks) {
  int gains = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(derive_key(3, "mix network", seed));
    const Topology network = made(random_network(rng, static_cast<int32_t>(3 + rng.below(3))));
    const Planned planned = plan_on(network, network, {.rings_max = 2});
    std::vector<std::vector<double>> loads;
    for (const Ring& ring : all_rings(planned.problem)) {
      loads.push_back(truth_load(planned.problem, ring));
    }
    double best = 0;
    for (const auto& a : loads) {
      for (const auto& b : loads) best = std::max(best, best_of_two(a, b));
    }
    const MeasuredMix& chosen = planned.mix.best.front();
    ASSERT_NEAR(chosen.rate / best, 1, 0.002) << "seed " << seed;
    ASSERT_LE(chosen.mix.rings.size(), 2u);
    ASSERT_TRUE(planned.mix.unpromised) << "seed " << seed;
    ASSERT_GE(chosen.rate, planned.single.best.front().rate * (1 - 1e-9));
    ASSERT_LE(chosen.rate, planned.mix.promised * (1 + 1e-9));
    gains += chosen.rate > planned.single.best.front().rate * 1.05;
  }
  EXPECT_GT(gains, 15) << "the networks are not trivial";
}

// With as many rings as it wants, the optimum is the linear program over all rings.
TEST(RingMix, AnyNumberOfRingsEqualsTheProgramOverAllRings) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(derive_key(4, "mix of all", seed));
    const Topology network = made(random_network(rng, static_cast<int32_t>(3 + rng.below(3))));
    const Planned planned = plan_on(network, network, {.rings_max = 16});
    std::vector<std::vector<double>> loads;
    for (const Ring& ring : all_rings(planned.problem)) {
      loads.push_back(truth_load(planned.problem, ring));
    }
    const double optimum = solve_packing(loads).value;
    ASSERT_NEAR(planned.mix.best.front().rate / optimum, 1, 0.005) << "seed " << seed;
    ASSERT_NEAR(planned.mix.promised / optimum, 1, 1e-6) << "seed " << seed;
  }
}

// Ways matter as well: pushes, pulls and buffers of a PCIe box, where rates differ.
TEST(RingMix, TwoRingsEqualBruteForceOnRandomBoxes) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Rng rng(derive_key(5, "mix box", seed));
    topology::PcieBox box{.numa_of_device = {0, 1, 0}, .bridge_gb_per_s = 20};
    Description d = make_pcie_box(box);
    for (topology::Link& link : d.links) {
      if (link.gb_per_s == topology::kUnlimited) continue;
      link.gb_per_s *= 0.5 + rng.uniform();
      link.back_gb_per_s *= 0.5 + rng.uniform();
    }
    const Topology real = made(d);
    const Planned planned = plan_on(real, real, {.rings_max = 2});
    std::vector<std::vector<double>> loads;
    for (const Ring& ring : all_rings(planned.problem)) {
      std::vector<double> load = truth_load(planned.problem, ring);
      if (std::ranges::find(loads, load) == loads.end()) loads.push_back(std::move(load));
    }
    double best = 0;
    for (size_t a = 0; a < loads.size(); ++a) {
      for (size_t b = a; b < loads.size(); ++b) {
        best = std::max(best, best_of_two(loads[a], loads[b]));
      }
    }
    ASSERT_NEAR(planned.mix.best.front().rate / best, 1, 0.002) << "seed " << seed;
  }
}

// Two trunks, of which a host uses the one of its rank: one ring across uses one trunk each way.
TEST(RingMix, TwoTrunksAreUsedByTwoRings) {
  const Topology network = made(topology::make_trunk_network(
      {.hosts = 4, .trunks = 2, .link_gb_per_s = 0.2, .trunk_gb_per_s = 0.1}));
  const Planned planned = plan_on(network, network, {.rings_max = 2});
  EXPECT_NEAR(planned.single.best.front().rate, 0.1, 1e-6);
  EXPECT_NEAR(planned.mix.best.front().rate, 0.2, 1e-6);
  EXPECT_EQ(planned.mix.best.front().mix.rings.size(), 2u);
  EXPECT_EQ(named(planned.mix, "best ring").rate, planned.single.best.front().rate);
}

// The description shows one switch; what is true is a random network.
TEST(RingMix, LearnsWhatTheDescriptionHides) {
  int gains = 0, near = 0;
  constexpr int kSeeds = 40;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Rng rng(derive_key(6, "hidden mix", seed));
    const Topology truth = made(random_network(rng, 4));
    Description star{.name = "star"};
    for (int32_t i = 0; i < 4; ++i) {
      star.add({.name = fmt::format("h{}", i), .kind = topology::ComponentKind::kHost});
    }
    const int32_t hub = star.add({.name = "hub", .kind = topology::ComponentKind::kRouter});
    for (int32_t i = 0; i < 4; ++i) {
      star.join({.from = i, .to = hub, .kind = topology::LinkKind::kNetwork});
    }
    const Planned planned = plan_on(made(star), truth, {.rings_max = 2});
    const RingProblem known = *ring_problem(truth, ring_devices(truth), {});
    double best = 0;
    for (const Ring& a : all_rings(known)) {
      for (const Ring& b : all_rings(known)) {
        best = std::max(best, best_of_two(truth_load(known, a), truth_load(known, b)));
      }
    }
    const double rate = planned.mix.best.front().rate;
    ASSERT_GE(rate, planned.single.best.front().rate * (1 - 1e-9));
    ASSERT_LE(rate, best * (1 + 1e-6));
    gains += rate > planned.single.best.front().rate * 1.05;
    near += rate > best * 0.95;
  }
  EXPECT_GT(gains, kSeeds / 5);
  EXPECT_GT(near, kSeeds * 8 / 10);
}

// Every host's link holds 0.2, so no rings together carry more; the bound must not say much more.
TEST(RingMix, ManyDevicesGetABoundThatMayBeLoose) {
  const Topology network = made(topology::make_trunk_network(
      {.hosts = 14, .trunks = 2, .link_gb_per_s = 0.2, .trunk_gb_per_s = 0.1}));
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  profile::SimulatedMeter meter(network);
  profile::Profiler profiler(network, meter);
  const RingPlan single =
      *plan_ring(problem, profiler, {.proposals = 3, .budget_s = 1e9, .symmetry = false});
  const auto plan = plan_mix(problem, profiler, single, {.rings_max = 2, .proposals = 4});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_GE(plan->promised, plan->best.front().rate);
  EXPECT_LE(plan->promised, 0.2 * 1.1);
  EXPECT_GE(plan->best.front().rate, single.best.front().rate * (1 - 1e-9));
}

// Fails at a measurement of unequal amounts, then not; counts them over all runs.
class InterruptedMeter final : public profile::LinkMeter {
 public:
  InterruptedMeter(const Topology& t, int32_t good) : meter_(t), good_(good) {}
  Result<profile::Measurement> measure(std::span<const topology::Transfer> set) override {
    return meter_.measure(set);
  }
  Result<profile::Measurement> measure_shares(std::span<const topology::Transfer> set,
                                              std::span<const double> shares) override {
    if (count_ == good_) return fail(Code::kCancelled, "interrupted");
    ++count_;
    return meter_.measure_shares(set, shares);
  }
  std::string_view source() const override { return "simulated"; }
  int32_t count() const { return count_; }
  void go_on() { good_ = -1; }

 private:
  profile::SimulatedMeter meter_;
  int32_t good_;
  int32_t count_ = 0;
};

TEST(RingMix, AnInterruptedPlanGoesOnFromItsStore) {
  Rng rng(derive_key(8, "interrupted"));
  const Topology truth = made(uneven_network(rng, 6));
  Description star{.name = "star"};
  for (int32_t i = 0; i < 6; ++i) {
    star.add({.name = fmt::format("h{}", i), .kind = topology::ComponentKind::kHost});
  }
  const int32_t hub = star.add({.name = "hub", .kind = topology::ComponentKind::kRouter});
  for (int32_t i = 0; i < 6; ++i) star.join({.from = i, .to = hub});
  const Topology believed = made(star);
  const RingProblem problem = *ring_problem(believed, ring_devices(believed), {});
  const auto plan_with = [&](profile::LinkMeter& meter, const std::string& path) {
    profile::MeasurementStore store = *profile::MeasurementStore::open(path, believed, "simulated");
    profile::Profiler profiler(believed, meter, &store);
    const RingPlan single = *plan_ring(problem, profiler, {.budget_s = 1e9, .symmetry = false});
    return plan_mix(problem, profiler, single, {.rings_max = 3, .budget_s = 1e9});
  };
  const auto path = [](int32_t run) {
    return (std::filesystem::temp_directory_path() / fmt::format("mix-{}-{}.jsonl", getpid(), run))
        .string();
  };
  InterruptedMeter whole(truth, -1);
  const auto wanted = plan_with(whole, path(0));
  ASSERT_TRUE(wanted) << wanted.error().message;
  ASSERT_GT(whole.count(), 5);
  for (const int32_t good : {0, 3, whole.count() - 1}) {
    InterruptedMeter meter(truth, good);
    EXPECT_EQ(plan_with(meter, path(1)).error().message, "interrupted");
    meter.go_on();
    const auto plan = plan_with(meter, path(1));
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(meter.count(), whole.count()) << "measured twice, or not at all";
    EXPECT_EQ(plan->best.front().mix.rings.size(), wanted->best.front().mix.rings.size());
    EXPECT_NEAR(plan->best.front().rate, wanted->best.front().rate, 1e-12);
    std::filesystem::remove(path(1));
  }
  std::filesystem::remove(path(0));
}

TEST(RingMix, TheCollectiveItselfDecidesAndAFailureIsPassedOn) {
  const Topology network = made(topology::make_trunk_network(
      {.hosts = 4, .trunks = 2, .link_gb_per_s = 0.2, .trunk_gb_per_s = 0.1}));
  RingMixOptions options;
  options.collective = [](const RingMix& mix) -> Result<double> {
    return mix.rings.size() == 1 ? 0.3 : 0.1;
  };
  const Planned planned = plan_on(network, network, options);
  EXPECT_EQ(planned.mix.best.front().mix.rings.size(), 1u);
  EXPECT_EQ(planned.mix.best.front().collective, 0.3);
  EXPECT_EQ(named(planned.mix, "rank order").collective, 0.3) << "rank order is always run as well";

  profile::SimulatedMeter meter(network);
  profile::Profiler profiler(network, meter);
  options.collective = [](const RingMix&) -> Result<double> {
    return fail(Code::kUnavailable, "rank 2 died");
  };
  const auto failed = plan_mix(planned.problem, profiler, planned.single, options);
  EXPECT_EQ(failed.error().message, "rank 2 died");
}

// Never measured, never chosen: a meter of equal amounts leaves mixtures of unequal ones out.
TEST(RingMix, AMeterOfEqualAmountsChoosesAmongWhatItCanMeasure) {
  class EqualMeter final : public profile::LinkMeter {
   public:
    explicit EqualMeter(const Topology& t) : meter_(t) {}
    Result<profile::Measurement> measure(std::span<const topology::Transfer> set) override {
      return meter_.measure(set);
    }
    std::string_view source() const override { return "simulated"; }

   private:
    profile::SimulatedMeter meter_;
  };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(derive_key(7, "equal meter", seed));
    const Topology network = made(random_network(rng, 4));
    const RingProblem problem = *ring_problem(network, ring_devices(network), {});
    EqualMeter meter(network);
    profile::Profiler profiler(network, meter);
    const RingPlan single = *plan_ring(problem, profiler, {.symmetry = false});
    const auto plan = plan_mix(problem, profiler, single, {});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_GE(plan->best.front().rate, single.best.front().rate * (1 - 1e-9));
    for (const MeasuredMix& mix : plan->best) EXPECT_GT(mix.rate, 0);
  }
}

}  // namespace
}  // namespace jige::plan
