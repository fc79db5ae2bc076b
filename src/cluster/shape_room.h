// Room for fixed shapes: a job that asks for equal parts on many nodes finds one of them full at
// almost every moment, though GPUs enough are free; it gets in where those leave who stand on nodes
// with too little room.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cluster/cluster_state.h"

namespace jige::cluster {

// At most so many are stopped for one.
inline constexpr size_t kInTheWayMax = 64;

// Who of `candidates`, the first first, must stop so that the job fits; of these it spares, the
// last first, who need not go after all. Nothing where kInTheWayMax of them do not suffice. Costs
// one look at the nodes and one at the places of the candidates.
// REQUIRES: the job asks for a number of nodes and waits; candidates run, and of two that share
// GPUs at most one is among them.
std::optional<std::vector<JobId>> who_must_make_way(const ClusterState& cluster, JobId id,
                                                    std::span<const JobId> candidates);

}  // namespace jige::cluster
