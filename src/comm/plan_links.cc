#include "comm/plan_links.h"

namespace jige::comm {

std::vector<PlanLink> plan_links(const RingPlan& plan, int size) {
  std::vector<PlanLink> links;
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) links.push_back({0, a, b, true});
  }
  for (size_t t = 0; plan.trees && t < plan.trees->parent.size(); ++t) {
    for (int child = 0; child < size; ++child) {
      const int parent = plan.trees->parent[t][static_cast<size_t>(child)];
      if (parent >= 0) links.push_back({tree_lane(plan, t), child, parent, true});
    }
  }
  for (size_t r = 0; r < plan.rings.size(); ++r) {
    const Ring& ring = plan.rings[r];
    for (int at = 0; at < ring.size() && ring.size() > 1; ++at) {
      links.push_back({1 + static_cast<int>(r), ring.at(at), ring.at(at + 1), false});
    }
  }
  return links;
}

std::vector<PlanStream> plan_streams(const RingPlan& plan, int size) {
  std::vector<PlanStream> streams;
  for (const PlanLink& link : plan_links(plan, size)) {
    streams.push_back({link.lane, link.from, link.to});
    if (link.two_way) streams.push_back({link.lane, link.to, link.from});
  }
  return streams;
}

int lane_count(const RingPlan& plan) {
  return 1 + static_cast<int>(plan.rings.size()) + (plan.trees ? 2 : 0);
}

int tree_lane(const RingPlan& plan, size_t tree) {
  return 1 + static_cast<int>(plan.rings.size() + tree);
}

bool is_ring_lane(const RingPlan& plan, int lane) { return lane > 0 && lane < tree_lane(plan, 0); }

}  // namespace jige::comm
