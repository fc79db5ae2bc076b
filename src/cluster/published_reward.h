// The reward of the ICPADS'23 scheduler, for comparison with that of cluster/train_policy.h:
//
//   r = -w1 * mean over running jobs of l + w2 * EWMA10(U)      at each round; 0 where nobody runs
//
// l is the part of its speed alone on its placement that a job loses to others, U the share of GPUs
// that are held, w1 + w2 = 1. EWMA10 weighs the value of i rounds ago by (9/11)^i, over the sum of
// the weights. It knows nothing of who waits. Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cluster/cluster_state.h"

namespace jige::cluster {

struct RoundSample {
  int64_t at_ns = 0;
  int64_t running = 0;
  double loss = 0;  // mean l
  double used = 0;  // U
};

// Refreshes the state.
RoundSample sample_round(ClusterState& cluster);

// By round. REQUIRES: 0 <= loss_weight <= 1.
std::vector<double> published_rewards(std::span<const RoundSample> rounds, double loss_weight);

}  // namespace jige::cluster
