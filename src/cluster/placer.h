// Placer: chooses where a job goes, or that it should wait.
//
//   make_blind_placer        one of the kinds of cluster/placement.h; never declines
//   make_contention_placer   the contention-aware greedy (cluster/contention_placer.h)
//   LearnedPlacer            a trained network over the same candidates (cluster/learned_placer.h)
//
// Threads: one thread.
#pragma once

#include <memory>
#include <optional>

#include "cluster/cluster_state.h"
#include "cluster/placement.h"

namespace jige::cluster {

class Placer {
 public:
  virtual ~Placer() = default;
  // Nothing: better to wait. With `must` there is a placement. REQUIRES: the job waits and fits.
  virtual std::optional<Placement> place(ClusterState& cluster, JobId id, bool must) = 0;
  // At each round, behind all starts: moves running jobs where that pays.
  virtual void improve(ClusterState&) {}
};

std::unique_ptr<Placer> make_blind_placer(PlacementKind kind, uint64_t seed);

}  // namespace jige::cluster
