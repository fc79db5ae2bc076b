// Training of a PolicyNetwork in the simulator: episodes of drawn jobs, then an update by PPO.
//
// The reward between two choices is -(jobs in the system) * time, the waiting and running time of
// all jobs, whose sum over an episode is minus the sum of their completion times; it is scaled by
// the mean length of the episode's jobs, and discounted over ten such lengths. For comparison it
// can be the published one (cluster/published_reward.h): the sum over the rounds between them, each
// round discounted by 0.99. Loads are drawn from a range, so that the policy meets empty and full
// clusters. The same options give the same bits.
// Threads: none.
#pragma once

#include <atomic>
#include <functional>

#include "base/result.h"
#include "cluster/contention.h"
#include "cluster/learned_placer.h"
#include "cluster/policy_network.h"
#include "cluster/ppo.h"
#include "cluster/simulation.h"
#include "cluster/workload.h"

namespace jige::cluster {

enum class RewardKind : uint8_t { kCompletion, kPublished };

struct TrainPolicyOptions {
  ClusterSpec spec;
  LinkModel links;
  WorkloadOptions jobs;  // seed and load are set by each episode
  double load_low = 0.6, load_high = 1.0;
  int64_t iterations = 30;
  int64_t episodes = 8;  // an iteration
  int32_t hidden = 32;
  RewardKind reward = RewardKind::kCompletion;
  double loss_weight = 0.5;  // w1 of kPublished
  PpoOptions ppo;
  uint64_t seed = 1;
  const std::atomic<bool>* cancel = nullptr;
};

struct TrainPolicyPoint {
  int64_t iteration = 0;
  double against_greedy = 0;  // mean JCT over the greedy's on the same jobs, minus 1; drawn choices
  double entropy = 0;
  int64_t choices = 0;
};

// Calls `on_iteration` behind each. Cancelled behind the first, it gives the network of the last
// whole iteration; otherwise it fails as simulate() does.
Result<PolicyNetwork> train_policy(
    const TrainPolicyOptions& options,
    const std::function<void(const TrainPolicyPoint&)>& on_iteration);

// Sets reward and discount of each choice by published_rewards(). REQUIRES: rounds by time.
void set_published_rewards(Episode& episode, double loss_weight);

// Integral of the number of jobs in the system from 0 to each of these times, in job nanoseconds.
// REQUIRES: times ascend.
std::vector<double> jobs_in_system(const SimulationResult& result,
                                   const std::vector<int64_t>& times_ns);

}  // namespace jige::cluster
