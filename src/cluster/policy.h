// Policy: decides who runs where. A pure state machine: it is told what happens and changes the
// ClusterState it is given; it has no clock and no thread, and its random numbers come from a seed.
//
// Calls come in this order for each instant at which something happens: finished() for every job
// that ended, arrived() for every one that came, then one schedule(). On a real cluster arrived()
// is also called for a job that was stopped from outside and waits again, and withdrawn() for one
// that leaves before it ran.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cluster_state.h"

namespace jige::cluster {

class Policy {
 public:
  virtual ~Policy() = default;

  // Time between rounds, instants at which schedule() is called though nothing else happened;
  // 0: none.
  virtual int64_t round_ns() const { return 0; }
  virtual void arrived(const ClusterState& cluster, JobId id) = 0;
  // REQUIRES: it waits, and the policy knows of it.
  virtual void withdrawn(const ClusterState& cluster, JobId id) = 0;
  virtual void finished(const ClusterState& cluster, JobId id) = 0;
  // Starts, preempts and migrates. On an empty cluster it must start some job that waits.
  virtual void schedule(ClusterState& cluster, bool is_round) = 0;

  // Why a job that waits or starts stands where it does, for people: a word and a sentence, empty
  // where there is nothing to say, and whether others were stopped now so that its shape fits.
  struct Standing {
    std::string word, text;
    bool for_shape = false;
  };
  virtual Standing standing(const ClusterState&, JobId) { return {}; }

  // Those that wait, in the order in which they were looked at last, the first one first; empty
  // where a policy has no such order.
  virtual std::vector<JobId> queue() const { return {}; }
};

}  // namespace jige::cluster
