// Layout: the nodes of a partition as the policies see a cluster: leaves of equal size, nodes with
// equal GPUs, numbered from 0.
//
// Leaves are the lowest switches of Slurm's topology (`scontrol show topology`), or one where it
// has none. Where leaves or nodes are unequal, places are filled up with GPUs that do not exist;
// `gpus_of` says how many do, and the rest stays blocked. Threads: values.
#pragma once

#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/cluster_spec.h"
#include "cluster/job.h"
#include "slurm/snapshot.h"

namespace jige::slurm {

struct NetworkAssumption {
  double nic_bytes_per_s = 12.5e9;
  double oversubscription = 1;
};

class Layout {
 public:
  // A node that is listed twice has the most GPUs of both. Fails with kNotFound where the partition
  // has no node with GPUs.
  static Result<Layout> create(const std::vector<SeenNode>& nodes, std::string_view partition,
                               std::string_view topology_text, const NetworkAssumption& network);

  // Whether create() would make one of the same nodes and GPUs.
  bool is_of(const std::vector<SeenNode>& nodes, std::string_view partition) const;
  // Why a job of this shape could never run, were all GPUs in service; empty where it could.
  std::string why_never(int32_t node_count, int32_t gpus_per_node) const;

  const cluster::ClusterSpec& spec() const { return spec_; }
  // The node's number; -1: not one of ours.
  int32_t index_of(const std::string& name) const;
  // Empty where there is none.
  const std::string& name_of(int32_t index) const { return names_[static_cast<size_t>(index)]; }
  int32_t gpu_count() const { return std::accumulate(gpus_.begin(), gpus_.end(), 0); }
  int32_t gpus_of(int32_t index) const { return gpus_[static_cast<size_t>(index)]; }
  std::vector<std::string> names_of(const cluster::Placement& placement) const;
  // Of the nodes that are ours. REQUIRES: the lists have one length.
  cluster::Placement placement_of(const std::vector<std::string>& nodes,
                                  const std::vector<int32_t>& gpus) const;

 private:
  cluster::ClusterSpec spec_;
  std::vector<std::string> names_;  // by index
  std::vector<int32_t> gpus_;
  std::map<std::string, int32_t> indices_;
};

// The lowest switches of `scontrol show topology`, each with its nodes; none without a tree.
Result<std::vector<std::vector<std::string>>> parse_leaves(std::string_view topology_text);

}  // namespace jige::slurm
