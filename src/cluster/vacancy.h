// Vacancy: which GPUs would be free if some running jobs left; those of two jobs that share them
// only when both do. Threads: a value.
#pragma once

#include <set>

#include "cluster/cluster_state.h"

namespace jige::cluster {

class Vacancy {
 public:
  explicit Vacancy(const ClusterState& cluster) : cluster_(cluster), free_(cluster.free()) {}

  // REQUIRES: the job runs, and has not left yet.
  void leave(JobId id) {
    const JobId partner = cluster_.at(id).partner;
    if (partner >= 0 && !gone_.contains(partner)) {
      gone_.insert(id);
      return;
    }
    free_.give(cluster_.at(id).placement);
  }

  const FreeGpus& free() const { return free_; }

 private:
  const ClusterState& cluster_;
  FreeGpus free_;
  std::set<JobId> gone_;  // whose partner stays
};

}  // namespace jige::cluster
