#include "cluster/traffic.h"

#include <algorithm>

#include "base/rng.h"

namespace jige::cluster {
namespace {

struct LeafShare {
  int32_t leaf = 0;
  int32_t gpus = 0;
};

std::vector<LeafShare> leaves_of(const Placement& placement, const ClusterSpec& spec) {
  std::vector<LeafShare> leaves;
  for (const NodeShare& share : placement) {
    const int32_t leaf = spec.leaf_of(share.node);
    if (leaves.empty() || leaves.back().leaf != leaf) leaves.push_back({leaf, 0});
    leaves.back().gpus += share.gpus;
  }
  return leaves;
}

class Loads {
 public:
  Loads(const Job& job, JobId id, const Placement& placement, const ClusterSpec& spec)
      : job_(job), id_(id), placement_(placement), spec_(spec) {}

  std::vector<LinkLoad> take() {
    const auto m = static_cast<double>(placement_.size());
    const double ring = (2 * job_.bytes[0] + 3 * job_.bytes[1]) * (m - 1) / m;
    for (const NodeShare& share : placement_) add(share.node, ring + all_to_all(share.gpus));
    const std::vector<LeafShare> leaves = leaves_of(placement_, spec_);
    if (leaves.size() > 1) add_uplinks(leaves, ring);
    std::ranges::stable_sort(loads_, {}, &LinkLoad::link);
    merge_equal_links();
    return std::move(loads_);
  }

 private:
  double all_to_all(int32_t gpus) const {
    const double others = static_cast<double>(job_.gpus - gpus) / job_.gpus;
    return job_.bytes[2] * gpus * others;
  }

  void add(int32_t link, double bytes) {
    if (bytes > 0) loads_.push_back({link, bytes});
  }

  void add_uplinks(const std::vector<LeafShare>& leaves, double ring) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      const LeafShare& here = leaves[i];
      if (spec_.ecmp == Ecmp::kSplit) {
        add(spec_.uplink(here.leaf), ring + all_to_all(here.gpus));
        continue;
      }
      // The crossing from this leaf to the next takes one spine; all-to-all is many flows.
      const auto spines = static_cast<uint64_t>(spec_.spine_count);
      const auto spine =
          static_cast<int32_t>(philox(spec_.seed, static_cast<uint64_t>(id_), i)[0] % spines);
      add(spec_.up(here.leaf, spine), ring);
      add(spec_.down(leaves[(i + 1) % leaves.size()].leaf, spine), ring);
      const double part = all_to_all(here.gpus) / static_cast<double>(spines);
      for (int32_t s = 0; s < spec_.spine_count; ++s) {
        add(spec_.up(here.leaf, s), part);
        add(spec_.down(here.leaf, s), part);
      }
    }
  }

  void merge_equal_links() {
    size_t kept = 0;
    for (size_t i = 0; i < loads_.size(); ++i) {
      if (kept > 0 && loads_[kept - 1].link == loads_[i].link) {
        loads_[kept - 1].bytes += loads_[i].bytes;
      } else {
        loads_[kept++] = loads_[i];
      }
    }
    loads_.resize(kept);
  }

  const Job& job_;
  JobId id_;
  const Placement& placement_;
  const ClusterSpec& spec_;
  std::vector<LinkLoad> loads_;
};

}  // namespace

std::vector<LinkLoad> traffic(const Job& job, JobId id, const Placement& placement,
                              const ClusterSpec& spec) {
  if (placement.size() < 2) return {};
  return Loads(job, id, placement, spec).take();
}

double communication_s(const std::vector<LinkLoad>& loads, const std::vector<double>& capacities) {
  double longest_s = 0;
  for (const LinkLoad& load : loads) {
    longest_s = std::max(longest_s, load.bytes / capacities[static_cast<size_t>(load.link)]);
  }
  return longest_s;
}

double iteration_ns(const Job& job, double communication_s) {
  const auto compute_ns = static_cast<double>(job.compute_ns);
  return compute_ns + std::max(0.0, communication_s * kSecond - job.overlap * compute_ns);
}

Placement ideal_placement(const Job& job, const ClusterSpec& spec) {
  const int32_t nodes =
      job.nodes > 0 ? job.nodes : (job.gpus + spec.gpus_per_node - 1) / spec.gpus_per_node;
  Placement placement;
  int32_t left = job.gpus;
  for (int32_t node = 0; node < nodes; ++node) {
    const int32_t gpus = job.nodes > 0 ? job.gpus / nodes : std::min(left, spec.gpus_per_node);
    placement.push_back({node, gpus});
    left -= gpus;
  }
  return placement;
}

double ideal_iteration_ns(const Job& job, const ClusterSpec& spec) {
  ClusterSpec even = spec;
  even.ecmp = Ecmp::kSplit;
  const std::vector<LinkLoad> loads = traffic(job, 0, ideal_placement(job, even), even);
  double longest_s = 0;
  for (const LinkLoad& load : loads) {
    const bool nic = load.link < even.node_count();
    const double bytes_per_s = nic ? even.nic_bytes_per_s : even.uplink_bytes_per_s();
    longest_s = std::max(longest_s, load.bytes / bytes_per_s);
  }
  return iteration_ns(job, longest_s);
}

}  // namespace jige::cluster
