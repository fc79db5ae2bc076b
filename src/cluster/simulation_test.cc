#include "cluster/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cluster/cluster_test_support.h"
#include "cluster/workload.h"

namespace jige::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Job talking_job(double arrival_s, int32_t gpus, int32_t nodes, double bytes, double overlap = 0) {
  Job job = plain_job(arrival_s, gpus, 10);
  job.nodes = nodes;
  job.bytes[0] = bytes;
  job.overlap = overlap;
  return job;
}

// Starts every job on arrival, each where it is told.
class FixedPlaces final : public Policy {
 public:
  explicit FixedPlaces(std::vector<Placement> places) : places_(std::move(places)) {}
  void arrived(const ClusterState&, JobId id) override { came_.push_back(id); }
  void withdrawn(const ClusterState&, JobId) override {}
  void finished(const ClusterState&, JobId) override {}
  void schedule(ClusterState& cluster, bool) override {
    for (const JobId id : came_) cluster.start(id, places_[static_cast<size_t>(id)]);
    came_.clear();
  }

 private:
  std::vector<Placement> places_;
  std::vector<JobId> came_;
};

TEST(ClusterSimulation, OneJobTakesItsLength) {
  const auto result = run(cluster_of(1, 1, 2), workload_of({plain_job(3, 2, 7)}), "fifo");
  const JobOutcome& outcome = result.outcomes[0];
  EXPECT_EQ(outcome.first_start_ns, 3 * kSecond);
  EXPECT_EQ(outcome.finish_ns, 10 * kSecond);
  EXPECT_EQ(outcome.held_ns, 7 * kSecond);
  EXPECT_DOUBLE_EQ(result.record.gpus().total(), 14e9);
}

// All-reduce of 1 GB over two nodes at 1 GB/s: 2 (m-1)/m = 1 GB on each card, one second.
TEST(ClusterSimulation, CommunicationAddsWhatOverlapDoesNotHide) {
  const ClusterSpec spec = cluster_of(1, 2, 1);
  EXPECT_THAT(ends_s(run(spec, workload_of({talking_job(0, 2, 2, 1e9)}), "fifo")), ElementsAre(20));
  EXPECT_THAT(ends_s(run(spec, workload_of({talking_job(0, 2, 2, 1e9, 0.25)}), "fifo")),
              ElementsAre(17.5));
  EXPECT_THAT(ends_s(run(spec, workload_of({talking_job(0, 2, 2, 1e9, 1)}), "fifo")),
              ElementsAre(10));
}

// Two such jobs on the same two cards. If all communication collides each gets half the bandwidth
// while it communicates: 1 + 2 s an iteration. If it interleaves, half the time is enough for each.
TEST(ClusterSimulation, NeighboursShareTheCardTheyUse) {
  const ClusterSpec spec = cluster_of(1, 2, 2);
  const Workload pair = workload_of({talking_job(0, 2, 2, 1e9), talking_job(0, 2, 2, 1e9)});
  const auto fifo = [] { return policy_of("fifo"); };
  EXPECT_THAT(ends_s(run(spec, pair, *fifo(), {.phases = Phases::kCollide})), ElementsAre(30, 30));
  EXPECT_THAT(ends_s(run(spec, pair, *fifo(), {.phases = Phases::kSpread})), ElementsAre(20, 20));
  // The second comes after 10 s: the first has done 5, does 5 more at 3 s; the other has then done
  // 5 and is alone again.
  const Workload later = workload_of({talking_job(0, 2, 2, 1e9), talking_job(10, 2, 2, 1e9)});
  EXPECT_THAT(ends_s(run(spec, later, *fifo(), {.phases = Phases::kCollide})), ElementsAre(25, 35));
}

TEST(ClusterSimulation, UplinksAreSharedByLeavesThatCross) {
  ClusterSpec spec = cluster_of(2, 2, 1);
  spec.oversubscription = 2;  // an uplink carries what one card does
  // Each job has a node in either leaf; cards are their own, uplinks common.
  const Workload pair = workload_of({talking_job(0, 2, 2, 1e9), talking_job(0, 2, 2, 1e9)});
  FixedPlaces crossing({{{0, 1}, {2, 1}}, {{1, 1}, {3, 1}}});
  EXPECT_THAT(ends_s(run(spec, pair, crossing)), ElementsAre(30, 30));
  EXPECT_THAT(ends_s(run(spec, pair, "fifo/span")), ElementsAre(20, 20));
}

TEST(ClusterSimulation, FairnessSaysWhoIsHeldBack) {
  // On one card: A moves 1 GB an iteration, B 3 GB, interleaved; computing takes no time to speak
  // of.
  const ClusterSpec spec = cluster_of(1, 2, 2);
  Job a = talking_job(0, 2, 2, 1e9), b = talking_job(0, 2, 2, 3e9);
  a.compute_ns = b.compute_ns = 1;
  a.iterations = b.iterations = 1000;
  const Workload pair = workload_of({a, b});
  const auto first_end = [&](Fairness fairness) {
    auto policy = policy_of("fifo");
    return ends_s(run(spec, pair, *policy, {.fairness = fairness, .phases = Phases::kSpread}))[0];
  };
  EXPECT_NEAR(first_end(Fairness::kIterations), 4000, 1e-3);  // both 1/4 iteration a second
  EXPECT_NEAR(first_end(Fairness::kBytes), 2000, 1e-3);       // half the card
  EXPECT_NEAR(first_end(Fairness::kProgress), 2000, 1e-3);    // half of what it does alone
}

TEST(ClusterSimulation, RestartsCostTimeWithGpus) {
  Job longer = plain_job(0, 1, 100);
  longer.restart_ns = 5 * kSecond;
  const Workload pair = workload_of({longer, plain_job(10, 1, 20)});
  const auto result = run(cluster_of(1, 1, 1), pair, "srtf");
  EXPECT_THAT(ends_s(result), ElementsAre(125, 30));
  EXPECT_EQ(result.outcomes[0].preemptions, 1);
  EXPECT_EQ(result.outcomes[0].restart_ns, 5 * kSecond);
  EXPECT_EQ(result.outcomes[0].held_ns, 105 * kSecond);
}

TEST(ClusterSimulation, StartsCostTimeWithGpusOnceBeforeRestartsDo) {
  Job longer = plain_job(0, 1, 100), shorter = plain_job(10, 1, 20);
  longer.start_ns = shorter.start_ns = 2 * kSecond;
  longer.restart_ns = 5 * kSecond;
  const auto result = run(cluster_of(1, 1, 1), workload_of({longer, shorter}), "srtf");
  EXPECT_THAT(ends_s(result), ElementsAre(129, 32));  // 8 of 100 by 10, then 22 for the other
  EXPECT_EQ(result.outcomes[0].restart_ns, 7 * kSecond);
  EXPECT_EQ(result.outcomes[1].held_ns, 22 * kSecond);
}

TEST(ClusterSimulation, RefusesWhatCouldNeverRunWithTheReason) {
  Job shaped = plain_job(0, 6, 1);
  shaped.nodes = 4;
  Job crowded = plain_job(0, 8, 1);
  crowded.nodes = 1;
  Job wide = plain_job(0, 5, 1);
  wide.nodes = 5;
  const auto result =
      run(cluster_of(1, 4, 2),
          workload_of({plain_job(0, 9, 1), shaped, crowded, wide, plain_job(0, 8, 1)}), "fifo");
  EXPECT_EQ(result.outcomes[0].refused, "asks for 9 GPUs; the cluster has 8");
  EXPECT_THAT(result.outcomes[1].refused, HasSubstr("in equal shares"));
  EXPECT_THAT(result.outcomes[2].refused, HasSubstr("a node has 2"));
  EXPECT_THAT(result.outcomes[3].refused, HasSubstr("the cluster has 4"));
  EXPECT_EQ(result.outcomes[4].finish_ns, kSecond);
  EXPECT_EQ(result.outcomes[0].first_start_ns, -1);
}

// A policy that starts nobody.
class Sleeper final : public Policy {
 public:
  int64_t round_ns() const override { return kSecond; }
  void arrived(const ClusterState&, JobId) override {}
  void withdrawn(const ClusterState&, JobId) override {}
  void finished(const ClusterState&, JobId) override {}
  void schedule(ClusterState&, bool) override {}
};

TEST(ClusterSimulation, SaysWhenAPolicyIsStuck) {
  const ClusterSpec spec = cluster_of(1, 1, 1);
  Sleeper sleeper;
  const auto result =
      simulate(spec, workload_of({plain_job(0, 1, 1)}), make_no_contention(spec), sleeper, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kInternal);
  EXPECT_THAT(result.error().message, HasSubstr("leaves 1 jobs waiting"));
}

std::string fingerprint(const SimulationResult& result) {
  std::string text;
  for (const JobOutcome& job : result.outcomes) {
    text += fmt::format("{} {} {} {} {}\n", job.first_start_ns, job.finish_ns, job.held_ns,
                        job.preemptions, job.migrations);
  }
  for (const double amount : result.record.gpus().amounts()) text += fmt::format("{:a} ", amount);
  return text;
}

Workload busy_workload(const ClusterSpec& spec, uint64_t seed, double load = 0.9) {
  WorkloadOptions options{.job_count = 300, .load = load, .seed = seed};
  options.sizes = *parse_sizes("distributed", "test");
  options.models = {1, 1, 1, 1, 1, 1, 0, 0, 1};  // rings: nothing is faster than the fewest nodes
  return make_workload(options, spec);
}

TEST(ClusterSimulation, RepeatsToTheByteAndKeepsEveryJob) {
  const ClusterSpec spec = {.leaf_count = 4, .nodes_per_leaf = 4, .oversubscription = 2};
  const Workload load = busy_workload(spec, 7);
  for (const char* name : {"fifo", "fifo+easy", "sjf/pack", "srtf/best-fit", "srsf", "las/random",
                           "gittins", "max-min", "ftf", "greedy", "las/contention"}) {
    const PolicyContext context{.history_gpu_s = service_gpu_s(load, spec)};
    const SimulationResult once = run(spec, load, *policy_of(name, context));
    EXPECT_EQ(fingerprint(once), fingerprint(run(spec, load, *policy_of(name, context)))) << name;
    double held_ns = 0;
    for (const JobOutcome& job : once.outcomes) {
      ASSERT_GE(job.finish_ns, 0) << name;
      EXPECT_GE(static_cast<double>(job.held_ns - job.restart_ns), job.alone_ns * 0.999999) << name;
      EXPECT_GE(job.finish_ns - job.arrival_ns, job.held_ns) << name;
      held_ns += static_cast<double>(job.held_ns) * job.gpus;
    }
    EXPECT_NEAR(once.record.gpus().total() / held_ns, 1, 1e-9) << name;
  }
}

TEST(ClusterSimulation, LinksCarryNoMoreThanTheyCan) {
  const ClusterSpec spec = {.leaf_count = 4, .nodes_per_leaf = 4, .oversubscription = 4};
  for (const Phases phases : {Phases::kCollide, Phases::kSpread}) {
    auto policy = policy_of("fifo/random");
    auto result =
        simulate(spec, busy_workload(spec, 3), make_link_contention(spec, {.phases = phases}),
                 *policy, {.record_links = true});
    ASSERT_TRUE(result);
    const std::vector<double> capacities = spec.capacities();
    double busiest = 0;
    for (size_t e = 0; e < capacities.size(); ++e) {
      const TimeSeries& link = result->record.links()[e];
      for (const double bytes : link.amounts()) {
        const double share =
            bytes / (capacities[e] * static_cast<double>(link.width_ns()) / kSecond);
        busiest = std::max(busiest, share);
      }
    }
    EXPECT_LE(busiest, 1 + 1e-9);
    EXPECT_GT(busiest, 0.3);
  }
}

// Mean wait of the M/G/1 queue: lambda E[S^2] / (2 (1 - rho)), within five standard errors of the
// means of independent runs.
TEST(ClusterSimulation, WaitsAsPollaczekAndKhinchineSay) {
  const ClusterSpec spec = cluster_of(1, 1, 1);
  struct Case {
    const char* lengths;
    double mean_s, square_s2;
  };
  const Case cases[] = {{"exp:100", 100, 2 * 100 * 100},
                        {"uniform:50:150", 100, 100 * 100 + 100 * 100 / 12.0},
                        {"lognormal:100:0.8", 100 * std::exp(0.32), 100 * 100 * std::exp(1.28)}};
  for (const Case& c : cases) {
    std::vector<double> means;
    const double rho = 0.6;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Rng gaps(derive_key(seed, "mg1 gaps")), lengths(derive_key(seed, "mg1 lengths"));
      const LengthDistribution drawn = *parse_lengths(c.lengths, "test");
      std::vector<Job> jobs;
      double now_s = 0;
      for (int i = 0; i < 4000; ++i) {
        now_s += -std::log(1 - gaps.uniform()) * c.mean_s / rho;
        jobs.push_back(plain_job(now_s, 1, drawn.draw_s(lengths)));
      }
      double waited_s = 0;
      for (const JobOutcome& job : run(spec, workload_of(jobs), "fifo").outcomes) {
        waited_s += static_cast<double>(job.first_start_ns - job.arrival_ns) / kSecond;
      }
      means.push_back(waited_s / 4000);
    }
    double mean = 0, square = 0;
    for (const double m : means) mean += m / 20;
    for (const double m : means) square += (m - mean) * (m - mean);
    const double error = std::sqrt(square / 19 / 20);
    const double expected = rho / c.mean_s * c.square_s2 / (2 * (1 - rho));
    EXPECT_NEAR(mean, expected, 5 * error) << c.lengths;
    EXPECT_LT(error, 0.05 * expected) << "the test says too little";
  }
}

}  // namespace
}  // namespace jige::cluster
