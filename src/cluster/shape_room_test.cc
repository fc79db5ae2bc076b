#include "cluster/shape_room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "cluster/cluster_test_support.h"
#include "cluster/placement.h"
#include "cluster/workload.h"

namespace jige::cluster {
namespace {

using ::testing::ElementsAre;

Job shaped(double arrival_s, int32_t gpus, int32_t nodes, double length_s) {
  Job job = plain_job(arrival_s, gpus, length_s);
  job.nodes = nodes;
  return job;
}

bool fits_without(const ClusterState& cluster, const Job& job, std::span<const JobId> gone) {
  FreeGpus free = cluster.free();
  for (const JobId id : gone) free.give(cluster.at(id).placement);
  return free.fits(job);
}

// Against all that must hold: they suffice, none of them could stay, none was taken before its turn
// was needed, and where nobody is named all candidates together do not suffice.
TEST(ShapeRoom, NamesThoseWhoMustGo) {
  int found = 0, none = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(derive_key(seed, "shape room"));
    const ClusterSpec spec = cluster_of(2, 3, 4);
    std::vector<Job> jobs;
    for (int i = 0; i < 14; ++i) {
      jobs.push_back(plain_job(0, static_cast<int32_t>(1 + rng.below(4)), 100));
    }
    const auto nodes = static_cast<int32_t>(2 + rng.below(5));
    jobs.push_back(shaped(0, nodes * static_cast<int32_t>(1 + rng.below(4)), nodes, 10));
    ClusterState cluster(spec, jobs, make_no_contention(spec), nullptr);
    const auto wide = static_cast<JobId>(jobs.size() - 1);
    std::vector<JobId> candidates;
    for (JobId id = 0; id <= wide; ++id) {
      cluster.arrive(id);
      if (id == wide || !cluster.free().fits(jobs[static_cast<size_t>(id)])) continue;
      cluster.start(
          id, place_blindly(PlacementKind::kRandom, cluster.job(id), cluster.free(), spec, rng));
      if (rng.below(4) > 0) candidates.push_back(id);
    }
    rng.shuffle(std::span(candidates));
    const auto gone = who_must_make_way(cluster, wide, candidates);
    const Job& job = cluster.job(wide);
    EXPECT_EQ(gone.has_value(), fits_without(cluster, job, candidates)) << seed;
    none += !gone;
    if (!gone) continue;
    found += !gone->empty();
    EXPECT_TRUE(fits_without(cluster, job, *gone)) << seed;
    for (size_t i = 0; i < gone->size(); ++i) {
      std::vector<JobId> fewer = *gone;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_FALSE(fits_without(cluster, job, fewer)) << seed;
    }
    if (gone->empty()) continue;
    const auto last = std::ranges::find(candidates, gone->back());
    EXPECT_FALSE(fits_without(cluster, job, std::span(candidates.begin(), last))) << seed;
  }
  EXPECT_GT(found, 100);
  EXPECT_GT(none, 20);
}

SimulationResult run_shapes(int32_t nodes, std::vector<Job> jobs, double margin) {
  QueuePolicy policy({.preemptive = true, .shape_margin = margin},
                     make_order({.kind = OrderKind::kSrsf}),
                     make_blind_placer(PlacementKind::kPack, 1));
  return run(cluster_of(1, nodes, 2), workload_of(std::move(jobs)), policy);
}

// A has all of one node; two GPUs are free, on the other. B wants one on each.
TEST(QueuePolicyShapes, StopsWhatStandsInTheWay) {
  const std::vector<Job> jobs = {shaped(0, 2, 1, 1000), shaped(1, 2, 2, 5)};
  EXPECT_THAT(ends_s(run_shapes(2, jobs, 0)), ElementsAre(1000, 1005));
  EXPECT_THAT(ends_s(run_shapes(2, jobs, 1.5)), ElementsAre(1005, 6));
  // 1998 GPU seconds are left of A, and B has 10.
  EXPECT_THAT(ends_s(run_shapes(2, jobs, 200)), ElementsAre(1000, 1005));
}

// D and E stand on the first node, F on the second, and W wants two whole nodes. E has too little
// left to be stopped for W, so D, the last in the order, would go for nothing: F goes.
TEST(QueuePolicyShapes, SparesWhoNeedNotGo) {
  const auto result = run_shapes(
      3, {plain_job(0, 1, 5000), plain_job(1, 1, 20), plain_job(2, 1, 3000), shaped(3, 4, 2, 5)},
      1.5);
  EXPECT_THAT(ends_s(result), ElementsAre(5000, 21, 3007, 8));
  EXPECT_EQ(result.outcomes[0].preemptions, 0);
  EXPECT_EQ(result.outcomes[2].preemptions, 1);
}

// At any time one of the two nodes is full, and of the job there less is left than of the wide one,
// which wants a GPU on each.
std::vector<Job> stream_beside_a_wide_job() {
  std::vector<Job> jobs;
  for (int i = 0; i < 200; ++i) {
    jobs.push_back(plain_job(10 * i, 2, 10));
    if (i == 0) jobs.push_back(shaped(1, 2, 2, 30));
  }
  return jobs;
}

SimulationResult run_stream(std::optional<LatenessOptions> deadlines) {
  QueuePolicy policy(
      {.preemptive = true, .round_ns = 10 * kSecond, .deadlines = deadlines, .shape_margin = 1.5},
      make_order({.kind = OrderKind::kSrsf}), make_blind_placer(PlacementKind::kPack, 1));
  return run(cluster_of(1, 2, 2), workload_of(stream_beside_a_wide_job()), policy);
}

// 30 jobs have come at 280 s, and the wide one is late at once: the job in its way goes, and no
// other one stops the wide job before it has ended.
TEST(QueuePolicyShapes, ALateOneGetsInAndStays) {
  EXPECT_GE(run_stream(std::nullopt).outcomes[1].first_start_ns, 2000 * kSecond);
  const auto result = run_stream(LatenessOptions{.giants = 0});
  EXPECT_EQ(result.outcomes[1].first_start_ns, 280 * kSecond);
  EXPECT_EQ(result.outcomes[1].finish_ns, 310 * kSecond);
  EXPECT_EQ(result.outcomes[1].preemptions, 0);
  int32_t stopped = 0;
  for (const JobOutcome& job : result.outcomes) stopped += job.preemptions;
  EXPECT_LE(stopped, 3);
  // Nobody stops anybody for a giant.
  EXPECT_GE(run_stream(LatenessOptions{.giants = 0.1}).outcomes[1].first_start_ns, 2000 * kSecond);
}

class Asker final : public ChangeObserver {
 public:
  explicit Asker(Policy& policy) : policy_(policy) {}
  void starting(ClusterState& cluster, JobId id, const Placement&) override {
    standing = policy_.standing(cluster, id);
  }
  void stopping(ClusterState&, JobId) override {}
  Policy::Standing standing;

 private:
  Policy& policy_;
};

// From 15 h on the first has one node for itself; 29 come and go; at 20 h the wide one, of 1 h,
// would end after 21.3 h. The deadline is 10 h and 0.8 * 12 GPU hours / 2 GPUs.
TEST(QueuePolicyShapes, SaysWhySomebodyStarts) {
  constexpr double kHour_s = 3600;
  std::vector<Job> jobs = {shaped(15 * kHour_s, 2, 1, 10 * kHour_s)};
  for (int i = 0; i < 29; ++i) jobs.push_back(plain_job(0, 1, kHour_s));
  jobs.push_back(shaped(0, 2, 2, kHour_s));
  QueuePolicy policy({.preemptive = true,
                      .round_ns = kSecond,
                      .deadlines = LatenessOptions{.giants = 0},
                      .shape_margin = 100},
                     make_order({.kind = OrderKind::kSrsf}),
                     make_blind_placer(PlacementKind::kPack, 1));
  const ClusterSpec spec = cluster_of(1, 2, 2);
  ClusterState cluster(spec, jobs, make_no_contention(spec), nullptr);
  Asker asker(policy);
  cluster.observe(&asker);
  cluster.advance_to(static_cast<int64_t>(15 * kHour_s) * kSecond);
  cluster.arrive(0);
  policy.arrived(cluster, 0);
  policy.schedule(cluster, true);
  cluster.refresh();
  EXPECT_EQ(asker.standing.word, "");
  EXPECT_FALSE(asker.standing.for_shape);
  for (JobId id = 1; id <= 30; ++id) {
    cluster.arrive(id);
    policy.arrived(cluster, id);
    if (id == 30) break;
    policy.withdrawn(cluster, id);
    cluster.withdraw(id);
  }
  cluster.advance_to(static_cast<int64_t>(20 * kHour_s) * kSecond);
  policy.schedule(cluster, true);
  EXPECT_EQ(cluster.at(30).phase, Phase::kRunning);
  EXPECT_EQ(cluster.at(0).phase, Phase::kWaiting);
  EXPECT_EQ(asker.standing.word, "late");
  EXPECT_TRUE(asker.standing.for_shape);
  EXPECT_EQ(asker.standing.text,
            "run from now on it would end 21.3 h after it came; its deadline is 14.8 h, 6.5 h too "
            "late");
}

TEST(QueuePolicyShapes, EverybodyEndsAndNothingDependsOnMemory) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const ClusterSpec spec = cluster_of(2, 4, 4);
    const Workload load = make_workload({.job_count = 150,
                                         .load = 1.2,
                                         .sizes = {{1, 2}, {2, 2}, {4, 2}, {8, 2}, {16, 1}},
                                         .fixed_share = 0.7,
                                         .models = {1, 1, 1, 1, 1, 1, 1, 1, 1},
                                         .seed = seed},
                                        spec);
    const auto once = run(spec, load, "greedy");
    int32_t preemptions = 0;
    for (const JobOutcome& job : once.outcomes) {
      EXPECT_GE(job.finish_ns, 0);
      preemptions += job.preemptions;
    }
    EXPECT_GT(preemptions, 0);
    EXPECT_EQ(ends_s(once), ends_s(run(spec, load, "greedy")));
  }
}

}  // namespace
}  // namespace jige::cluster
