#include "cluster/placement.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/check.h"

namespace jige::cluster {
namespace {

void by_node(Placement& placement) { std::ranges::sort(placement, {}, &NodeShare::node); }

// The node with the least room that holds all; -1: none does.
int32_t tightest_node(std::span<const int32_t> nodes, const FreeGpus& free, int32_t gpus) {
  int32_t best = -1;
  for (const int32_t node : nodes) {
    const int32_t room = free.on_node(node);
    if (room >= gpus && (best < 0 || room < free.on_node(best))) best = node;
  }
  return best;
}

// GPUs from nodes in this order; the last part goes to the node where it fits best.
Placement fill_in_order(const std::vector<int32_t>& nodes, const FreeGpus& free, int32_t gpus,
                        bool tight_end) {
  Placement placement;
  std::vector<int32_t> rest = nodes;
  for (size_t i = 0; i < rest.size() && gpus > 0; ++i) {
    if (tight_end) {
      const std::span<const int32_t> left = std::span(rest).subspan(i);
      const int32_t last = tightest_node(left, free, gpus);
      if (last >= 0) {
        placement.push_back({last, gpus});
        gpus = 0;
        break;
      }
    }
    const int32_t part = std::min(gpus, free.on_node(rest[i]));
    if (part > 0) placement.push_back({rest[i], part});
    gpus -= part;
  }
  JIGE_CHECK(gpus == 0, "{} GPUs more than the nodes have", gpus);
  by_node(placement);
  return placement;
}

Placement equal_shares(const std::vector<int32_t>& nodes, const FreeGpus& free, const Job& job) {
  const int32_t each = job.gpus / job.nodes;
  Placement placement;
  for (const int32_t node : nodes) {
    if (free.on_node(node) < each) continue;
    placement.push_back({node, each});
    if (std::ssize(placement) == job.nodes) break;
  }
  JIGE_CHECK(std::ssize(placement) == job.nodes, "the nodes do not hold the job");
  by_node(placement);
  return placement;
}

std::vector<int32_t> nodes_with_room(const FreeGpus& free) {
  std::vector<int32_t> nodes;
  for (size_t i = 0; i < free.nodes().size(); ++i) {
    if (free.nodes()[i] > 0) nodes.push_back(static_cast<int32_t>(i));
  }
  return nodes;
}

Placement place_on(const std::vector<int32_t>& nodes, const FreeGpus& free, const Job& job,
                   bool tight_end) {
  return job.nodes > 0 ? equal_shares(nodes, free, job)
                       : fill_in_order(nodes, free, job.gpus, tight_end);
}

int32_t room_for(const Job& job, const FreeGpus& free, const ClusterSpec& spec, int32_t leaf) {
  if (job.nodes == 0) return free.on_leaf(leaf);
  const int32_t each = job.gpus / job.nodes;
  int32_t nodes = 0;
  for (int32_t i = 0; i < spec.nodes_per_leaf; ++i) {
    nodes += free.on_node(leaf * spec.nodes_per_leaf + i) >= each;
  }
  return nodes * each;
}

// Leaves in the order in which `span` fills them: the tightest that holds all, else the roomiest
// first.
std::vector<int32_t> leaves_for(const Job& job, const FreeGpus& free, const ClusterSpec& spec) {
  std::vector<std::pair<int32_t, int32_t>> rooms;  // room, leaf
  for (int32_t leaf = 0; leaf < spec.leaf_count; ++leaf) {
    rooms.emplace_back(room_for(job, free, spec, leaf), leaf);
  }
  const auto holds = [&](const auto& room) { return room.first >= job.gpus; };
  if (std::ranges::any_of(rooms, holds)) {
    return {std::ranges::min(rooms, {}, [&](const auto& room) {
              return std::tuple(!holds(room), room.first, room.second);
            }).second};
  }
  std::ranges::sort(rooms, {},
                    [](const auto& room) { return std::pair(-room.first, room.second); });
  std::vector<int32_t> leaves;
  int32_t left = job.gpus;
  for (size_t i = 0; i < rooms.size() && left > 0; ++i) {
    // The last leaf is the tightest that holds what is left.
    size_t chosen = i;
    for (size_t k = i + 1; k < rooms.size(); ++k) {
      if (rooms[i].first >= left && rooms[k].first >= left) chosen = k;
    }
    std::swap(rooms[i], rooms[chosen]);
    leaves.push_back(rooms[i].second);
    left -= rooms[i].first;
  }
  return leaves;
}

// Nodes of leaves, leaf by leaf; inside a leaf by `before`.
template <typename Key>
std::vector<int32_t> nodes_of(const std::vector<int32_t>& leaves, const ClusterSpec& spec,
                              Key key) {
  std::vector<int32_t> nodes;
  for (const int32_t leaf : leaves) {
    const auto begin = std::ssize(nodes);
    for (int32_t i = 0; i < spec.nodes_per_leaf; ++i) {
      nodes.push_back(leaf * spec.nodes_per_leaf + i);
    }
    std::stable_sort(nodes.begin() + begin, nodes.end(),
                     [&](int32_t a, int32_t b) { return key(a) < key(b); });
  }
  return nodes;
}

// Those that the job may have; `open` is filled where they are fewer.
const FreeGpus& free_for(const Job& job, const FreeGpus& free, std::optional<FreeGpus>& open) {
  return job.barred.empty() ? free : open.emplace(free.open_to(job));
}

}  // namespace

std::string_view placement_name(PlacementKind kind) {
  static constexpr std::string_view kNames[kPlacementKindCount] = {"pack", "span", "best-fit",
                                                                   "random"};
  return kNames[static_cast<size_t>(kind)];
}

Placement place_blindly(PlacementKind kind, const Job& job, const FreeGpus& all,
                        const ClusterSpec& spec, Rng& rng) {
  std::optional<FreeGpus> open;
  const FreeGpus& free = free_for(job, all, open);
  std::vector<int32_t> nodes = nodes_with_room(free);
  if (kind == PlacementKind::kRandom) {
    rng.shuffle(std::span(nodes));
    return place_on(nodes, free, job, false);
  }
  if (job.nodes == 0) {
    const int32_t alone = tightest_node(nodes, free, job.gpus);
    if (alone >= 0) return {{alone, job.gpus}};
  }
  const auto room = [&](int32_t node) { return free.on_node(node); };
  if (kind == PlacementKind::kBestFit) {
    std::ranges::stable_sort(nodes, {}, room);
    return place_on(nodes, free, job, false);
  }
  // A fixed shape packs into the tightest nodes; else the roomiest make the fewest.
  const auto order = [&](int32_t node) { return job.nodes > 0 ? room(node) : -room(node); };
  if (kind == PlacementKind::kSpan) {
    nodes = nodes_of(leaves_for(job, free, spec), spec, order);
  } else {
    std::ranges::stable_sort(nodes, {}, order);
  }
  return place_on(nodes, free, job, true);
}

std::vector<Placement> candidate_placements(const ClusterState& cluster, JobId id,
                                            size_t count_max) {
  const Job& job = cluster.job(id);
  std::optional<FreeGpus> open;
  const FreeGpus& free = free_for(job, cluster.free(), open);
  const ClusterSpec& spec = cluster.spec();
  Rng unused(0);
  std::vector<Placement> found = {place_blindly(PlacementKind::kSpan, job, free, spec, unused)};
  if (found.front().size() == 1) return found;
  const auto add = [&](Placement placement) {
    if (found.size() < count_max && std::ranges::find(found, placement) == found.end()) {
      found.push_back(std::move(placement));
    }
  };
  const auto full = [&](int32_t node) { return -free.on_node(node); };
  const auto quiet = [&](int32_t node) {
    return std::pair(cluster.spread_on_node(node), -free.on_node(node));
  };
  const NodeOrders& orders = cluster.node_orders();
  add(place_on(orders.quiet, free, job, false));
  add(place_on(job.nodes > 0 ? orders.tightest : orders.roomiest, free, job, true));  // pack
  // Whole leaves, those with fewer crossing jobs and less room first.
  std::vector<int32_t> leaves;
  for (int32_t leaf = 0; leaf < spec.leaf_count; ++leaf) {
    if (room_for(job, free, spec, leaf) >= job.gpus) leaves.push_back(leaf);
  }
  std::ranges::stable_sort(leaves, {}, [&](int32_t leaf) { return free.on_leaf(leaf); });
  for (const int32_t leaf : leaves) {
    if (found.size() >= count_max) break;
    add(place_on(nodes_of({leaf}, spec, quiet), free, job, false));
    add(place_on(nodes_of({leaf}, spec, full), free, job, true));
  }
  // Over leaves, the quiet ones first.
  add(place_on(orders.quiet_leaves, free, job, false));
  add(place_on(orders.tightest, free, job, false));  // best-fit
  return found;
}

}  // namespace jige::cluster
