#include "cluster/length_estimates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cluster/cluster_test_support.h"

namespace jige::cluster {
namespace {

TEST(LengthEstimates, AreBoundedAndRepeat) {
  const LengthEstimates lengths{.noise = 2, .seed = 9};
  double low = 10, high = 0;
  for (JobId id = 0; id < 1000; ++id) {
    const double factor = lengths.factor(id);
    EXPECT_EQ(factor, lengths.factor(id));
    low = std::min(low, factor);
    high = std::max(high, factor);
  }
  EXPECT_GE(low, 0.5);
  EXPECT_LT(low, 0.55);
  EXPECT_LE(high, 2);
  EXPECT_GT(high, 1.8);
}

// Jobs of a minute to a week on one to sixteen GPUs, a third of fixed shape, that disturb one
// another.
std::vector<Job> mixed_jobs(uint64_t seed) {
  Rng rng(derive_key(seed, "mixed jobs"));
  std::vector<Job> jobs;
  for (int i = 0; i < 80; ++i) {
    Job job = plain_job(0, 1 << rng.below(5), std::exp(rng.uniform() * std::log(1e4)) * 60);
    if (job.gpus > 1 && rng.below(3) == 0) job.nodes = job.gpus / 2;
    job.bytes[0] = 1e9 * rng.uniform();
    job.restart_ns = static_cast<int64_t>(rng.below(7200)) * kSecond;
    jobs.push_back(job);
  }
  return jobs;
}

// Where a policy puts jobs that all came at 0 and have waited for `waited_s`, in two rounds.
std::vector<Placement> placed(const std::vector<Job>& jobs, const std::string& name,
                              const PolicyContext& context, int64_t waited_s) {
  const ClusterSpec spec = cluster_of(4, 2, 4);
  ClusterState state(spec, jobs, make_link_contention(spec, {}), nullptr);
  const std::unique_ptr<Policy> policy = policy_of(name, context);
  for (JobId id = 0; id < std::ssize(jobs); ++id) {
    state.arrive(id);
    policy->arrived(state, id);
  }
  state.advance_to(waited_s * kSecond);
  for (int round = 0; round < 2; ++round) policy->schedule(state, true);
  std::vector<Placement> places;
  for (JobId id = 0; id < std::ssize(jobs); ++id) places.push_back(state.at(id).placement);
  return places;
}

// A policy that is told lengths with an error decides as if jobs were as long as it is told.
TEST(LengthEstimates, AreAllThatAPolicyKnows) {
  const auto network = std::make_shared<PolicyNetwork>(kPolicyFeatures, 8, 1);
  Rng rng(derive_key(3, "network"));
  for (double& parameter : network->parameters()) parameter = 6 * rng.uniform() - 3;
  for (const std::string name : {"sjf", "srtf", "srsf/contention", "ftf/contention", "fifo+easy",
                                 "las/contention", "greedy", "greedy+easy", "learned"}) {
    bool matters = false;
    for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
      const PolicyContext told{.seed = seed, .noise = 4, .network = network};
      const PolicyContext exact{.seed = seed, .network = network};
      const std::vector<Job> jobs = mixed_jobs(seed);
      std::vector<Job> estimated = jobs;
      for (size_t i = 0; i < jobs.size(); ++i) {
        const LengthEstimates lengths{.noise = told.noise, .seed = seed};
        estimated[i].iterations *= lengths.factor(static_cast<JobId>(i));
      }
      for (const int64_t waited_s : {0, 40'000, 400'000, 4'000'000}) {
        const auto places = placed(jobs, name, told, waited_s);
        EXPECT_EQ(places, placed(estimated, name, exact, waited_s))
            << name << ", seed " << seed << ", after " << waited_s << " s";
        matters |= places != placed(jobs, name, exact, waited_s);
      }
    }
    EXPECT_EQ(matters, name != "las/contention") << name;
  }
}

}  // namespace
}  // namespace jige::cluster
