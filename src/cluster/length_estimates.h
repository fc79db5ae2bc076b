// LengthEstimates: what a policy knows of how long jobs are: exactly, or wrong by a factor that is
// drawn for each job and stays. Policies ask here; what ClusterState says is the truth, which only
// the simulation and its report may know.
// Threads: values.
#pragma once

#include <cstdint>

#include "cluster/cluster_state.h"

namespace jige::cluster {

struct LengthEstimates {
  // Factors lie between 1 / noise and noise, uniform in their logarithm.
  double noise = 1;
  uint64_t seed = 1;

  // The factor by which the length of a job is wrong.
  double factor(JobId id) const;
  // ClusterState::alone_ns() and remaining_ns(), as they are estimated.
  double alone_ns(const ClusterState& cluster, JobId id) const;
  double remaining_ns(const ClusterState& cluster, JobId id) const;
};

}  // namespace jige::cluster
