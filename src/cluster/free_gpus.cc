#include "cluster/free_gpus.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace jige::cluster {

FreeGpus::FreeGpus(const ClusterSpec& spec)
    : nodes_per_leaf_(spec.nodes_per_leaf),
      gpus_per_node_(spec.gpus_per_node),
      total_(spec.gpu_count()),
      nodes_(static_cast<size_t>(spec.node_count()), spec.gpus_per_node),
      leaves_(static_cast<size_t>(spec.leaf_count), spec.nodes_per_leaf * spec.gpus_per_node) {}

void FreeGpus::take(const Placement& placement) {
  for (const NodeShare& share : placement) {
    int32_t& free = nodes_[static_cast<size_t>(share.node)];
    JIGE_CHECK(share.gpus > 0 && share.gpus <= free, "node {}: {} GPUs of {} free", share.node,
               share.gpus, free);
    free -= share.gpus;
    leaves_[static_cast<size_t>(share.node / nodes_per_leaf_)] -= share.gpus;
    total_ -= share.gpus;
  }
}

void FreeGpus::give(const Placement& placement) {
  for (const NodeShare& share : placement) {
    int32_t& free = nodes_[static_cast<size_t>(share.node)];
    free += share.gpus;
    JIGE_CHECK(free <= gpus_per_node_, "node {}: {} GPUs free", share.node, free);
    leaves_[static_cast<size_t>(share.node / nodes_per_leaf_)] += share.gpus;
    total_ += share.gpus;
  }
}

FreeGpus FreeGpus::open_to(const Job& job) const {
  FreeGpus open = *this;
  for (const int32_t node : job.barred) {
    if (on_node(node) > 0) open.take({{node, on_node(node)}});
  }
  return open;
}

bool FreeGpus::fits(const Job& job) const {
  int32_t total = total_;
  for (const int32_t node : job.barred) total -= on_node(node);
  if (job.gpus > total) return false;
  if (job.nodes == 0) return true;
  const int32_t each = job.gpus / job.nodes;
  const auto enough = [&](int32_t free) { return free >= each; };
  const auto barred =
      std::ranges::count_if(job.barred, [&](int32_t node) { return enough(on_node(node)); });
  return std::ranges::count_if(nodes_, enough) - barred >= job.nodes;
}

std::string why_never(const Job& job, const ClusterSpec& spec) {
  if (job.gpus < 1) return fmt::format("asks for {} GPUs", job.gpus);
  if (job.gpus > spec.gpu_count()) {
    return fmt::format("asks for {} GPUs; the cluster has {}", job.gpus, spec.gpu_count());
  }
  if (job.nodes == 0) return "";
  if (job.nodes > spec.node_count()) {
    return fmt::format("asks for {} nodes; the cluster has {}", job.nodes, spec.node_count());
  }
  if (job.gpus % job.nodes != 0) {
    return fmt::format("asks for {} GPUs in equal shares on {} nodes", job.gpus, job.nodes);
  }
  if (job.gpus / job.nodes > spec.gpus_per_node) {
    return fmt::format("asks for {} GPUs on {} nodes; a node has {}", job.gpus, job.nodes,
                       spec.gpus_per_node);
  }
  return "";
}

}  // namespace jige::cluster
