#include "plan/ring_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>

#include "base/rng.h"
#include "plan/ring_search.h"
#include "profile/simulated_meter.h"
#include "topology/fluid.h"
#include "topology/reference_topologies.h"

namespace jige::plan {
namespace {

using ::testing::HasSubstr;
using topology::Description;
using topology::Topology;

// A box of up to five devices with random rates; some share switches, some have no peer access.
Description random_box(Rng& rng) {
  const auto devices = static_cast<int32_t>(3 + rng.below(3));
  topology::PcieBox box{.numa_count = static_cast<int32_t>(1 + rng.below(2))};
  box.numa_of_device.clear();
  for (int32_t i = 0; i < devices; ++i) {
    box.numa_of_device.push_back(
        static_cast<int32_t>(rng.below(static_cast<uint64_t>(box.numa_count))));
  }
  box.peer = static_cast<topology::PeerAccess>(rng.below(3));
  box.devices_per_switch = static_cast<int32_t>(rng.below(3));
  const bool alike = rng.below(3) == 0;  // leaves symmetries
  Description d = make_pcie_box(box);
  const auto vary = [&](double& rate) {
    if (rate != topology::kUnlimited && !alike) rate *= 0.4 + 1.2 * rng.uniform();
  };
  for (topology::Link& link : d.links) {
    vary(link.gb_per_s);
    vary(link.back_gb_per_s);
  }
  for (topology::Component& c : d.components) {
    vary(c.gb_per_s);
    if (c.gb_per_s != topology::kUnlimited && rng.below(3) == 0) {
      c.penalty = {static_cast<int32_t>(2 + rng.below(2)), 0.6, "collapses under load"};
    }
  }
  return d;
}

// The best rate over all rings by plain enumeration of the truth: bytes over the time of the
// fullest resource, with the penalty for as many as use it. With a `floor`, beginnings that are no
// faster than it or than the best ring are left, for adding a transfer never makes them faster; 0
// where no ring is above it.
double best_by_enumeration(const RingProblem& problem, const Topology& truth, double floor = -1) {
  const auto n = static_cast<size_t>(problem.node_count);
  std::vector<std::vector<topology::Usage>> usage;
  constexpr size_t kUsedMax = 32;  // resources of a transfer
  for (const RingCandidate& c : problem.candidates) {
    usage.push_back(*truth.usage(c.transfer));
    EXPECT_LE(usage.back().size(), kUsedMax);
    if (usage.back().size() > kUsedMax) return -1;
  }
  std::vector<double> load(truth.resources().size(), 0);
  std::vector<int> flows(load.size(), 0);
  std::vector<char> visited(n, 0);
  double best = 0;
  const std::function<void(int32_t, size_t, double)> extend = [&](int32_t at, size_t depth,
                                                                  double rate) {
    if (depth == n) {
      best = std::max(best, rate);
      return;
    }
    for (int32_t to = 0; to < problem.node_count; ++to) {
      if ((depth + 1 == n) != (to == 0) || visited[static_cast<size_t>(to)]) continue;
      visited[static_cast<size_t>(to)] = 1;
      for (const int32_t way : problem.edge(at, to)) {
        std::array<double, kUsedMax> saved;  // what stood in load
        size_t used = 0;
        double with = rate;
        for (const topology::Usage& u : usage[static_cast<size_t>(way)]) {
          const auto r = static_cast<size_t>(u.resource);
          saved[used++] = load[r];
          load[r] += u.cost;
          ++flows[r];
          const topology::Resource& resource = truth.resources()[r];
          const bool lossy = resource.penalty.flows > 0 && flows[r] > resource.penalty.flows;
          with =
              std::min(with, resource.gb_per_s * (lossy ? resource.penalty.factor : 1) / load[r]);
        }
        if (floor < 0 || with > std::max(best, floor)) extend(to, depth + 1, with);
        for (size_t i = 0; i < used; ++i) {
          const auto r = static_cast<size_t>(usage[static_cast<size_t>(way)][i].resource);
          load[r] = saved[i];
          --flows[r];
        }
      }
      visited[static_cast<size_t>(to)] = 0;
    }
  };
  extend(0, 0, std::numeric_limits<double>::infinity());
  return best;
}

Topology made(Description d) {
  auto topology = Topology::create(std::move(d), "random");
  EXPECT_TRUE(topology) << topology.error().message;
  return *topology;
}

int64_t seeds_from_environment(int64_t fallback) {
  const char* text = std::getenv("JIGE_RING_SEEDS");
  return text ? std::atoll(text) : fallback;
}

const RingPlanOptions kUnlimited{.budget_s = 1e9};

TEST(RingPlanner, EqualsBruteForceOnRandomTopologies) {
  int64_t measured = 0, gain = 0;
  const int64_t seeds = seeds_from_environment(50);
  for (int64_t seed = 0; seed < seeds; ++seed) {
    Rng rng(derive_key(5, "random box", static_cast<uint64_t>(seed)));
    const Topology box = made(random_box(rng));
    const auto problem = ring_problem(box, ring_devices(box), {});
    ASSERT_TRUE(problem) << problem.error().message;
    profile::SimulatedMeter meter(box);
    profile::Profiler profiler(box, meter);
    const auto plan = plan_ring(*problem, profiler, kUnlimited);
    ASSERT_TRUE(plan) << plan.error().message;
    const double found = plan->best.front().rate;
    ASSERT_NEAR(found, best_by_enumeration(*problem, box, found * (1 - 1e-9)), 1e-6) << seed;
    ASSERT_TRUE(plan->proven) << seed;
    ASSERT_LE(plan->gap(), 1e-6);
    measured += plan->counts.measured;
    gain += plan->best.front().rate > plan->single_link.rate * 1.01;
  }
  EXPECT_GT(gain, seeds / 10);  // the boxes are not trivial
  RecordProperty("measured_sets_per_box", std::to_string(measured / seeds));
}

// What the planner believes and what is true differ: rates, and a hidden trunk.
TEST(RingPlanner, EqualsBruteForceWhenTheDescriptionIsWrong) {
  const int64_t seeds = seeds_from_environment(90) / 3;
  for (int64_t seed = 0; seed < seeds; ++seed) {
    Rng rng(derive_key(6, "wrong box", static_cast<uint64_t>(seed)));
    const Description d = random_box(rng);
    Description truth = d;
    for (topology::Link& link : truth.links) {
      if (link.gb_per_s == topology::kUnlimited) continue;
      link.gb_per_s *= 0.3 + rng.uniform();
      link.back_gb_per_s *= 0.3 + rng.uniform();
    }
    for (topology::Component& c : truth.components) {
      if (c.kind == topology::ComponentKind::kHostBridge) c.gb_per_s *= 0.3 + rng.uniform();
    }
    const Topology believed = made(d), real = made(truth);
    const auto problem = ring_problem(believed, ring_devices(believed), {});
    profile::SimulatedMeter meter(real);
    profile::Profiler profiler(believed, meter);
    RingPlanOptions options = kUnlimited;
    options.symmetry = false;
    const auto plan = plan_ring(*problem, profiler, options);
    ASSERT_TRUE(plan) << plan.error().message;
    const double found = plan->best.front().rate;
    ASSERT_NEAR(found, best_by_enumeration(*problem, real, found * (1 - 1e-9)), 1e-6) << seed;
    ASSERT_TRUE(plan->proven);
  }
}

// The budget of the notes: 32 MiB a transfer, ten runs, sixty seconds on the links.
class ReferenceBox : public ::testing::TestWithParam<const char*> {};

TEST_P(ReferenceBox, TheOptimumIsFoundWithinAMinuteOfMeasuring) {
  const Topology box = *topology::reference_topology(GetParam());
  const auto problem = ring_problem(box, ring_devices(box), {});
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const auto plan = plan_ring(*problem, profiler, {.budget_s = 50});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_LT(plan->counts.cost_s, 60);
  const double found = plan->best.front().rate;
  const double optimum = best_by_enumeration(*problem, box, found * (1 - 1e-9));
  EXPECT_NEAR(found, optimum, 1e-6);
  EXPECT_LT(plan->found_after_s, 20);
  EXPECT_GE(plan->bound, optimum * (1 - 1e-9));
  RecordProperty("found_after_s", fmt::format("{:.1f}", plan->found_after_s));
}

INSTANTIATE_TEST_SUITE_P(Boxes, ReferenceBox,
                         ::testing::Values("pcie-8gpu-2numa", "pcie-8gpu-2numa-interleaved",
                                           "pcie-8gpu-4numa", "pcie-8gpu-4numa-interleaved",
                                           "pcie-8gpu-4numa-nopeer"));

TEST(RingPlanner, SaysWhereTheBudgetEndedItsSearch) {
  const Topology box = *topology::reference_topology("pcie-8gpu-2numa");
  const auto problem = ring_problem(box, ring_devices(box), {});
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const auto plan = plan_ring(*problem, profiler, {.budget_s = 0});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_TRUE(plan->budget_ended);
  EXPECT_FALSE(plan->proven);
  EXPECT_GT(plan->gap(), 0);
}

TEST(RingPlanner, EndsItsProofWhenToldTo) {
  const Topology box = *topology::reference_topology("pcie-8gpu-2numa");
  const auto problem = ring_problem(box, ring_devices(box), {});
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  int asked = 0;
  const auto plan = plan_ring(*problem, profiler, {.go_on = [&asked] { return ++asked < 1; }});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kCancelled);
  EXPECT_EQ(asked, 1);
}

TEST(RingPlanner, NoiseDoesNotMisleadItFar) {
  const Topology box = *topology::reference_topology("pcie-8gpu-2numa-interleaved");
  const auto problem = ring_problem(box, ring_devices(box), {});
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    profile::SimulatedMeter meter(box, {.noise = 0.03, .seed = seed});
    profile::Profiler profiler(box, meter);
    const auto plan = plan_ring(*problem, profiler, {.budget_s = 30, .tolerance = 0.03});
    ASSERT_TRUE(plan) << plan.error().message;
    // What it chose, without noise.
    profile::SimulatedMeter quiet(box);
    EXPECT_GT(quiet.measure(ring_transfers(*problem, plan->best.front().ring))->rate, 8 * 0.97);
    EXPECT_GT(plan->best.front().half_width, 0);
  }
}

// Two pairs of hosts, each behind one router; the trunk between is narrow, and the description the
// planner has shows one switch instead.
TEST(RingPlanner, DiscoversATrunkThatTheDescriptionHides) {
  for (const int32_t hosts : {4, 6, 8}) {
    Description star{.name = "star"};
    for (int32_t i = 0; i < hosts; ++i) {
      star.add({.name = fmt::format("host{}", i), .kind = topology::ComponentKind::kHost});
    }
    const int32_t hub = star.add({.name = "hub", .kind = topology::ComponentKind::kRouter});
    for (int32_t i = 0; i < hosts; ++i) {
      star.join({.from = i,
                 .to = hub,
                 .kind = topology::LinkKind::kNetwork,
                 .gb_per_s = 0.125,
                 .back_gb_per_s = 0.125});
    }
    const Topology believed = made(star);
    const Topology truth = made(topology::make_trunk_network({.hosts = hosts}));
    const auto problem = ring_problem(believed, ring_devices(believed), {});
    ASSERT_TRUE(problem);
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      // Slow links need no 32 MiB to be timed.
      profile::SimulatedMeter meter(truth, {.bytes = 1 << 20});
      profile::Profiler profiler(believed, meter);
      const auto plan = plan_ring(*problem, profiler, {.budget_s = 600, .seed = seed});
      ASSERT_TRUE(plan) << plan.error().message;
      EXPECT_NEAR(plan->best.front().rate, 0.125, 1e-9)
          << hosts << " hosts, seed " << seed;                  // crosses once each way
      EXPECT_NEAR(plan->rank_order.rate, 0.25 / hosts, 1e-9);   // crosses at every step
      EXPECT_NEAR(plan->single_link.rate, 0.25 / hosts, 1e-9);  // alone, all links look alike
    }
  }
}

TEST(RingPlanner, FinalistsEndWithTheBudgetAndTheWinnerIsMeasured) {
  const Topology network = *topology::reference_topology("trunk-4host");
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  profile::SimulatedMeter meter(network);
  double least_s = 0;
  for (const double budget_s : {0.0, 60.0, 80.0, 100.0, 600.0}) {
    profile::Profiler profiler(network, meter);
    RingPlanOptions options{.budget_s = budget_s, .symmetry = false};
    std::map<std::vector<int32_t>, int> runs;
    options.collective = [&](const std::vector<int32_t>& order) -> Result<double> {
      ++runs[order];
      profiler.spend(4);
      return 0.1;
    };
    const auto plan = plan_ring(problem, profiler, options);
    ASSERT_TRUE(plan) << plan.error().message;
    if (budget_s == 0) least_s = plan->counts.cost_s;
    EXPECT_LE(plan->counts.cost_s, std::max(budget_s, least_s)) << "of " << budget_s;
    EXPECT_GE(runs.size(), 2u);
    EXPECT_TRUE(runs.contains({0, 1, 2, 3})) << "rank order is always run as well";
    EXPECT_EQ(plan->best.front().collective, 0.1) << "what was not run does not win";
    for (const auto& [order, count] : runs) {
      EXPECT_EQ(count, budget_s == 0 ? 1 : budget_s == 600 ? 3 : count);
    }
  }
}

TEST(RingPlanner, TheCollectiveItselfDecidesBetweenFinalists) {
  const Topology network = *topology::reference_topology("trunk-4host");
  const RingProblem problem = *ring_problem(network, ring_devices(network), {});
  profile::SimulatedMeter meter(network);
  const auto plan_with = [&](auto collective) {
    profile::Profiler profiler(network, meter);
    RingPlanOptions options{.budget_s = 600, .symmetry = false};
    options.collective = collective;
    return plan_ring(problem, profiler, options);
  };
  using Order = std::vector<int32_t>;
  const auto usual = plan_with(nullptr);
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->best.front().collective, 0);
  // Of the good rings, say, only one runs well in earnest.
  const RingPlan& known = *usual;
  ASSERT_GE(known.best.size(), 2u);
  Order second;
  for (const int32_t c : known.best[1].ring) second.push_back(problem.at(c).from);
  std::map<Order, int> runs;
  const auto chosen = plan_with([&](const Order& order) -> Result<double> {
    ++runs[order];
    return order == second ? 0.1 : 0.05;
  });
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_EQ(chosen->best.front().ring, known.best[1].ring);
  EXPECT_EQ(chosen->best.front().collective, 0.1);
  EXPECT_EQ(chosen->rank_order.collective, 0.05) << "rank order is always run as well";
  for (const auto& [order, count] : runs) EXPECT_EQ(count, 3);
  // Rank order wins where it is the fastest in earnest, however its transfers looked.
  const auto naive = plan_with([&](const Order& order) -> Result<double> {
    return order == Order{0, 1, 2, 3} ? 0.2 : 0.1;
  });
  ASSERT_TRUE(naive);
  EXPECT_EQ(naive->best.front().ring, known.rank_order.ring);
  EXPECT_LE(naive->best.size(), 5u);
  const auto failed = plan_with(
      [](const Order&) -> Result<double> { return fail(Code::kUnavailable, "rank 2 died"); });
  EXPECT_EQ(failed.error().message, "rank 2 died");
}

TEST(RingPlanner, LargeProblemsStateTheirGap) {
  topology::PcieBox box{.numa_count = 4, .bridge_gb_per_s = 25};
  box.numa_of_device.clear();
  for (int32_t i = 0; i < 12; ++i) box.numa_of_device.push_back(i % 4);
  const Topology big = made(make_pcie_box(box));
  const auto problem = ring_problem(big, ring_devices(big), {});
  profile::SimulatedMeter meter(big);
  profile::Profiler profiler(big, meter);
  const auto plan = plan_ring(*problem, profiler, {.proposals = 6, .budget_s = 200});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_FALSE(plan->proven);
  EXPECT_FALSE(plan->budget_ended) << "it went as far as it goes for so many devices";
  // Three GPUs on a bridge: two edges inside and two across, so 25 / 4 is the best there is.
  EXPECT_NEAR(plan->best.front().rate, 6.25, 1e-6);
  EXPECT_NEAR(plan->gap(), 12.5 / 6.25 - 1, 1e-6);
  EXPECT_LT(plan->rank_order.rate, 4.6);
}

TEST(RingPlanner, RefusesWhatIsNoRing) {
  const Topology box = *topology::reference_topology("pcie-4gpu-2numa-nopeer");
  EXPECT_THAT(ring_problem(box, {}, {}).error().message, HasSubstr("0 devices to plan for"));
  EXPECT_THAT(ring_problem(box, std::vector<int32_t>{1}, {}).error().message,
              HasSubstr("1 device to"));
  EXPECT_THAT(ring_problem(box, std::vector<int32_t>{1, 1}, {}).error().message,
              HasSubstr("\"gpu1\" is named twice"));
  EXPECT_THAT(ring_problem(box, std::vector<int32_t>{1, box.find("numa0")}, {}).error().message,
              HasSubstr("is a memory"));
  EXPECT_THAT(ring_problem(box, std::vector<int32_t>{0, 1}, {.staged = false}).error().message,
              HasSubstr("need host memory"));
}

// A meter that ends in the middle, as a device does that falls off the bus.
class FailingMeter final : public profile::LinkMeter {
 public:
  FailingMeter(const Topology& t, int32_t good) : meter_(t), good_(good) {}
  Result<profile::Measurement> measure(std::span<const topology::Transfer> set) override {
    if (good_-- > 0) return meter_.measure(set);
    return fail(Code::kUnavailable, "gpu1 does not answer");
  }
  std::string_view source() const override { return "simulated"; }

 private:
  profile::SimulatedMeter meter_;
  int32_t good_;
};

TEST(RingPlanner, ADeviceThatDisappearsEndsItWithTheReason) {
  const Topology box = *topology::reference_topology("pcie-4gpu-2numa");
  const auto problem = ring_problem(box, ring_devices(box), {});
  for (const int32_t good : {0, 10, 50, 60}) {
    FailingMeter meter(box, good);
    profile::Profiler profiler(box, meter);
    const auto plan = plan_ring(*problem, profiler, {});
    ASSERT_FALSE(plan) << good;
    EXPECT_EQ(plan.error().code, Code::kUnavailable);
    EXPECT_EQ(plan.error().message, "gpu1 does not answer");
  }
}

TEST(RingPlanner, StartsAnewWhenALinkChangesItsRate) {
  const Topology box = *topology::reference_topology("pcie-4gpu-2numa");
  Description slow = box.description();
  for (topology::Link& link : slow.links) {
    if (link.gb_per_s == 12.5) link.gb_per_s = link.back_gb_per_s = 5;
  }
  // Changes after 70 measurements.
  class ChangingMeter final : public profile::LinkMeter {
   public:
    ChangingMeter(const Topology& before, Topology after)
        : meter_(before), after_(std::move(after)) {}
    Result<profile::Measurement> measure(std::span<const topology::Transfer> set) override {
      if (++calls_ == 50) meter_.change(after_);
      return meter_.measure(set);
    }
    std::string_view source() const override { return "simulated"; }

   private:
    profile::SimulatedMeter meter_;
    Topology after_;
    int32_t calls_ = 0;
  } meter(box, made(slow));
  profile::Profiler profiler(box, meter, nullptr, {.check_every = 20});
  const auto problem = ring_problem(box, ring_devices(box), {});
  const auto plan = plan_ring(*problem, profiler, {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->restarts, 1);
  EXPECT_NEAR(plan->best.front().rate, 5, 1e-6);
  EXPECT_NEAR(plan->bound, 5, 1e-6);
}

// Links that lose or regain half of their rate with every 30th measurement.
TEST(RingPlanner, EndsSoonBehindItsBudgetWhereRatesNeverHold) {
  const Topology box = *topology::reference_topology("pcie-4gpu-2numa");
  Description slow = box.description();
  for (topology::Link& link : slow.links) {
    if (link.gb_per_s == 12.5) link.gb_per_s = link.back_gb_per_s = 5;
  }
  class RestlessMeter final : public profile::LinkMeter {
   public:
    RestlessMeter(const Topology& one, const Topology& other)
        : meters_{profile::SimulatedMeter(one), profile::SimulatedMeter(other)} {}
    Result<profile::Measurement> measure(std::span<const topology::Transfer> set) override {
      JIGE_TRY(profile::Measurement m, meters_[calls_++ / 30 % 2].measure(set));
      m.cost_s = 1;
      return m;
    }
    std::string_view source() const override { return "simulated"; }
    size_t calls() const { return calls_; }

   private:
    std::array<profile::SimulatedMeter, 2> meters_;
    size_t calls_ = 0;
  } meter(box, made(slow));
  profile::Profiler profiler(box, meter, nullptr, {.check_every = 10});
  const auto problem = ring_problem(box, ring_devices(box), {});
  const size_t transfers = problem->transfers().size();
  const auto plan = plan_ring(*problem, profiler, {.budget_s = 80, .symmetry = false});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, Code::kUnavailable);
  // The budget, every transfer alone once more, a few rings, and the looks whether rates hold.
  EXPECT_LE(meter.calls(), 80 + (transfers + 10) * 5 / 4) << transfers;
}

}  // namespace
}  // namespace jige::plan
