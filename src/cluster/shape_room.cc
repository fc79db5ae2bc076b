#include "cluster/shape_room.h"

#include <algorithm>

namespace jige::cluster {
namespace {

// Nodes that hold a part of the job, kept up to date as others leave and come back.
class Room {
 public:
  Room(const ClusterState& cluster, const Job& job)
      : free_(cluster.free().nodes().begin(), cluster.free().nodes().end()),
        each_(job.gpus / job.nodes),
        missing_(job.nodes) {
    for (const int32_t barred : job.barred) free_[static_cast<size_t>(barred)] = kBarred;
    for (const int32_t free : free_) missing_ -= free >= each_;
  }

  bool fits() const { return missing_ <= 0; }
  bool stands_in_the_way(const Placement& placement) const {
    return std::ranges::any_of(placement, [&](const NodeShare& share) {
      const int32_t free = free_[static_cast<size_t>(share.node)];
      return free >= 0 && free < each_;
    });
  }
  void leave(const Placement& placement) { move(placement, 1); }
  void come_back(const Placement& placement) { move(placement, -1); }

 private:
  static constexpr int32_t kBarred = -(1 << 30);  // with all its GPUs less than any share

  void move(const Placement& placement, int32_t sign) {
    for (const NodeShare& share : placement) {
      int32_t& free = free_[static_cast<size_t>(share.node)];
      const bool before = free >= each_;
      free += sign * share.gpus;
      missing_ += before - (free >= each_);
    }
  }

  std::vector<int32_t> free_;
  int32_t each_;
  int32_t missing_;  // nodes, beyond those that there are
};

}  // namespace

std::optional<std::vector<JobId>> who_must_make_way(const ClusterState& cluster, JobId id,
                                                    std::span<const JobId> candidates) {
  Room room(cluster, cluster.job(id));
  std::vector<JobId> stopped;
  for (const JobId candidate : candidates) {
    if (room.fits()) break;
    const Placement& placement = cluster.at(candidate).placement;
    if (!room.stands_in_the_way(placement)) continue;
    if (stopped.size() == kInTheWayMax) return std::nullopt;
    stopped.push_back(candidate);
    room.leave(placement);
  }
  if (!room.fits()) return std::nullopt;
  for (size_t i = stopped.size(); i-- > 0;) {
    const Placement& placement = cluster.at(stopped[i]).placement;
    room.come_back(placement);
    if (room.fits()) {
      stopped.erase(stopped.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      room.leave(placement);
    }
  }
  return stopped;
}

}  // namespace jige::cluster
