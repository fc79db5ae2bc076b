// FreeGpus: which GPUs of a cluster are free, by node and leaf.
//
// Invariants: 0 <= free <= GPUs of the node; sums over leaves and the cluster are those of nodes.
// Threads: a value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cluster/cluster_spec.h"
#include "cluster/job.h"

namespace jige::cluster {

class FreeGpus {
 public:
  explicit FreeGpus(const ClusterSpec& spec);

  int32_t total() const { return total_; }
  int32_t on_node(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  int32_t on_leaf(int32_t leaf) const { return leaves_[static_cast<size_t>(leaf)]; }
  std::span<const int32_t> nodes() const { return nodes_; }

  // REQUIRES: they are free, or taken.
  void take(const Placement& placement);
  void give(const Placement& placement);

  // Whether some placement of the job is free now.
  bool fits(const Job& job) const;
  // The same without the nodes that are barred for the job.
  FreeGpus open_to(const Job& job) const;

 private:
  int32_t nodes_per_leaf_;
  int32_t gpus_per_node_;
  int32_t total_;
  std::vector<int32_t> nodes_, leaves_;
};

// Why an empty cluster could not hold the job, for the one who sent it; empty when it could.
std::string why_never(const Job& job, const ClusterSpec& spec);

}  // namespace jige::cluster
