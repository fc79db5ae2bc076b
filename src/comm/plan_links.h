// PlanLinks: who sends to whom on which lane, for all that a plan needs. Memory regions, meshes of
// connections and who waits for a stranger's header are made from this one list.
//
//   for (const PlanLink& link : plan_links(plan, size)) …     // what is one connection over TCP
//   for (const PlanStream& s : plan_streams(plan, size)) …    // what is one stream in memory
//
// Lane 0 links every two ranks both ways; lane 1 + r is ring r, from each rank to the next one in
// it; where the plan has trees, the two lanes after the rings link children and parents both ways.
// Links of lane 0 come first, then those of the trees, then the rings'; a way of a two-way link
// that begins at `from` comes right before the other. Invariants: no link twice, and none from a
// rank to itself. Threads: pure functions.
#pragma once

#include <vector>

#include "comm/ring_plan.h"

namespace jige::comm {

struct PlanLink {
  int lane = 0;
  int from = 0;
  int to = 0;
  bool two_way = false;

  bool operator==(const PlanLink&) const = default;
};

// One way of a link.
struct PlanStream {
  int lane = 0;
  int from = 0;
  int to = 0;

  bool operator==(const PlanStream&) const = default;
};

std::vector<PlanLink> plan_links(const RingPlan& plan, int size);
std::vector<PlanStream> plan_streams(const RingPlan& plan, int size);

int lane_count(const RingPlan& plan);
int tree_lane(const RingPlan& plan, size_t tree);
// Rings carry large messages, the other lanes small ones.
bool is_ring_lane(const RingPlan& plan, int lane);

}  // namespace jige::comm
