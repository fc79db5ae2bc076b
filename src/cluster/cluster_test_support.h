// What tests of the cluster simulator share: small clusters, jobs that only compute, runs.
//
// Threads: values.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cluster/policy_list.h"
#include "cluster/simulation.h"

namespace jige::cluster {

inline ClusterSpec cluster_of(int32_t leaves, int32_t nodes, int32_t gpus) {
  return {
      .leaf_count = leaves, .nodes_per_leaf = nodes, .gpus_per_node = gpus, .nic_bytes_per_s = 1e9};
}

// Computes for `length_s` and does not communicate.
inline Job plain_job(double arrival_s, int32_t gpus, double length_s) {
  Job job;
  job.arrival_ns = static_cast<int64_t>(arrival_s * kSecond);
  job.gpus = gpus;
  job.iterations = length_s;  // of a second each
  return job;
}

inline Workload workload_of(std::vector<Job> jobs) {
  return {.models = {"plain"}, .jobs = std::move(jobs), .provenance = "test"};
}

inline std::unique_ptr<Policy> policy_of(const std::string& name, PolicyContext context = {}) {
  auto policy = make_policy(name, "test", context);
  EXPECT_TRUE(policy) << policy.error().message;
  return std::move(*policy);
}

inline SimulationResult run(const ClusterSpec& spec, const Workload& workload, Policy& policy,
                            const LinkModel& model = {}) {
  auto result = simulate(spec, workload, make_link_contention(spec, model), policy, {});
  EXPECT_TRUE(result) << result.error().message;
  return std::move(*result);
}

inline SimulationResult run(const ClusterSpec& spec, const Workload& workload,
                            const std::string& policy) {
  return run(spec, workload, *policy_of(policy));
}

// Seconds at which each job ended.
inline std::vector<double> ends_s(const SimulationResult& result) {
  std::vector<double> ends;
  for (const JobOutcome& outcome : result.outcomes) {
    ends.push_back(static_cast<double>(outcome.finish_ns) / kSecond);
  }
  return ends;
}

}  // namespace jige::cluster
