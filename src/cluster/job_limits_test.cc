// Jobs that cannot be stopped, and nodes that a job may not have.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "cluster/cluster_test_support.h"
#include "cluster/placement.h"
#include "cluster/shape_room.h"

namespace jige::cluster {
namespace {

class Watcher final : public ChangeObserver {
 public:
  void starting(ClusterState& cluster, JobId id, const Placement& placement) override {
    for (const NodeShare& share : placement) {
      on_barred += std::ranges::binary_search(cluster.job(id).barred, share.node);
    }
  }
  void stopping(ClusterState& cluster, JobId id) override {
    ++stops;
    unstoppable_stopped += !cluster.job(id).stoppable;
  }
  int64_t on_barred = 0, stops = 0, unstoppable_stopped = 0;
};

class JobLimits : public ::testing::TestWithParam<const char*> {};

// Every second job cannot be stopped, and each is barred from some nodes of its own.
TEST_P(JobLimits, HoldUnderEveryPolicy) {
  Watcher watcher;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(derive_key(seed, "job limits"));
    const ClusterSpec spec = cluster_of(2, 3, 4);
    std::vector<Job> jobs;
    for (int i = 0; i < 40; ++i) {
      Job job = plain_job(0, 1, static_cast<double>(10 + rng.below(2000)));
      job.nodes = static_cast<int32_t>(1 + rng.below(3));
      job.gpus = job.nodes * static_cast<int32_t>(1 + rng.below(4));
      job.stoppable = rng.below(2) == 0;
      for (int32_t node = 0; node < 6; ++node) {
        if (rng.below(3) == 0 && std::ssize(job.barred) < 3) job.barred.push_back(node);
      }
      jobs.push_back(std::move(job));
    }
    const auto policy = policy_of(GetParam());
    ClusterState cluster(spec, jobs, make_link_contention(spec, {}), nullptr);
    cluster.observe(&watcher);
    JobId next = 0;
    int64_t done = 0;
    for (int step = 0; step < 3000 && done < std::ssize(jobs); ++step) {
      cluster.advance_to(step * 30 * kSecond);
      while (!cluster.running().empty()) {
        const auto ended = std::ranges::find_if(cluster.running(),
                                                [&](JobId id) { return cluster.left(id) <= 0; });
        if (ended == cluster.running().end()) break;
        const JobId id = *ended;
        cluster.finish(id);
        policy->finished(cluster, id);
        ++done;
      }
      if (next < std::ssize(jobs) && step % 2 == 0) {
        cluster.arrive(next);
        policy->arrived(cluster, next++);
      }
      policy->schedule(cluster, true);
      cluster.refresh();
    }
    EXPECT_EQ(done, std::ssize(jobs)) << seed;
  }
  EXPECT_EQ(watcher.on_barred, 0);
  EXPECT_EQ(watcher.unstoppable_stopped, 0);
  const bool stops = std::string(GetParam()).find("fifo") == std::string::npos;
  EXPECT_EQ(watcher.stops > 0, stops);
}

INSTANTIATE_TEST_SUITE_P(Cluster, JobLimits,
                         ::testing::Values("fifo", "fifo+easy/pack", "srtf/best-fit", "las/span",
                                           "srtf/random", "greedy", "srtf/contention"));

TEST(JobLimits, NobodyStopsForANodeThatTheJobMayNotHave) {
  const ClusterSpec spec = cluster_of(1, 3, 4);
  std::vector<Job> jobs = {plain_job(0, 3, 10), plain_job(0, 3, 10), plain_job(0, 3, 10)};
  jobs.push_back(plain_job(0, 4, 10));
  jobs[3].nodes = 2;
  jobs[3].barred = {1};
  ClusterState cluster(spec, jobs, make_no_contention(spec), nullptr);
  for (JobId id = 0; id < 4; ++id) cluster.arrive(id);
  for (JobId id = 0; id < 3; ++id) cluster.start(id, {{id, 3}});
  const std::vector<JobId> candidates = {1, 2, 0};
  EXPECT_EQ(who_must_make_way(cluster, 3, candidates), (std::vector<JobId>{2, 0}));
  jobs[3].barred = {0, 1};
  EXPECT_EQ(who_must_make_way(cluster, 3, candidates), std::nullopt);
  EXPECT_FALSE(cluster.free().fits(jobs[3]));
}

// More of them than are stopped for one.
TEST(JobLimits, ThoseOnBarredNodesAreNotCounted) {
  const ClusterSpec spec = cluster_of(1, 70, 1);
  std::vector<Job> jobs(70, plain_job(0, 1, 10));
  jobs.push_back(plain_job(0, 2, 10));
  jobs[70].nodes = 2;
  for (int32_t node = 0; node < 68; ++node) jobs[70].barred.push_back(node);
  ClusterState cluster(spec, jobs, make_no_contention(spec), nullptr);
  std::vector<JobId> candidates;
  for (JobId id = 0; id < 71; ++id) cluster.arrive(id);
  for (JobId id = 0; id < 70; ++id) {
    cluster.start(id, {{id, 1}});
    candidates.push_back(id);
  }
  EXPECT_EQ(who_must_make_way(cluster, 70, candidates), (std::vector<JobId>{68, 69}));
}

}  // namespace
}  // namespace jige::cluster
