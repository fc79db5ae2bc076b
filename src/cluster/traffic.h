// Traffic: the bytes an iteration of a placed job puts on each link, and its time alone.
//
//   ring over m nodes     f (m-1)/m size on every card, and on every leaf boundary it crosses, with
//                         f = 2 for all-reduce and 3 for two gathers and one reduction
//   all-to-all            g (G-g)/G size on the card of a node with g of the job's G GPUs, the same
//                         for leaves
//
// Nodes are taken in an order that visits each leaf once. Threads: pure functions.
#pragma once

#include <vector>

#include "cluster/cluster_spec.h"
#include "cluster/job.h"

namespace jige::cluster {

struct LinkLoad {
  int32_t link = 0;
  double bytes = 0;  // an iteration
};

// Loads above zero, each link once, ascending. `id` is what the hash of kHash goes by.
std::vector<LinkLoad> traffic(const Job& job, JobId id, const Placement& placement,
                              const ClusterSpec& spec);

// Seconds until the busiest link has carried its load alone.
double communication_s(const std::vector<LinkLoad>& loads, const std::vector<double>& capacities);

// T of the job's header, in ns.
double iteration_ns(const Job& job, double communication_s);

// The fewest nodes, in the fewest leaves, nobody else: what jobs are measured against.
Placement ideal_placement(const Job& job, const ClusterSpec& spec);
double ideal_iteration_ns(const Job& job, const ClusterSpec& spec);

}  // namespace jige::cluster
