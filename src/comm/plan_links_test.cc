// The list of links against what plans say, link by link.
#include "comm/plan_links.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "base/rng.h"
#include "comm/shared_transport.h"
#include "comm/transport.h"

namespace jige::comm {
namespace {

std::vector<int> shuffled(int size, Rng& rng) {
  std::vector<int> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

RingPlan random_plan(int size, Rng& rng) {
  RingPlan plan = RingPlan::in_rank_order(size);
  for (uint64_t i = rng.below(3); i > 0; --i) plan.rings.push_back({shuffled(size, rng), 1});
  if (rng.below(2) == 0) plan.trees = TreePair::over(shuffled(size, rng));
  return plan;
}

// Whether the plan sends from one rank to another on a lane, by its own words.
bool sends(const RingPlan& plan, int lane, int from, int to) {
  if (from == to) return false;
  if (lane == 0) return true;
  const auto rings = static_cast<int>(plan.rings.size());
  if (lane <= rings) {
    const Ring& ring = plan.rings[static_cast<size_t>(lane - 1)];
    return ring.at(ring.position_of(from) + 1) == to;
  }
  return plan.trees->linked(static_cast<size_t>(lane - rings - 1), from, to);
}

TEST(PlanLinks, AreWhatRingsAndTreesSay) {
  Rng rng(derive_key(1, "plan links"));
  for (int round = 0; round < 200; ++round) {
    const int size = 2 + static_cast<int>(rng.below(8));
    const RingPlan plan = random_plan(size, rng);
    std::set<std::tuple<int, int, int>> listed;
    for (const PlanStream& s : plan_streams(plan, size)) {
      EXPECT_TRUE(listed.insert({s.lane, s.from, s.to}).second) << "twice";
    }
    size_t wanted = 0;
    for (int lane = 0; lane < lane_count(plan); ++lane) {
      for (int from = 0; from < size; ++from) {
        for (int to = 0; to < size; ++to) {
          const bool there = sends(plan, lane, from, to);
          wanted += there;
          EXPECT_EQ(listed.contains({lane, from, to}), there) << lane << " " << from << " " << to;
        }
      }
    }
    EXPECT_EQ(listed.size(), wanted);
  }
}

TEST(PlanLinks, SmallStreamsComeBeforeThoseOfRings) {
  Rng rng(derive_key(2, "plan links"));
  for (int round = 0; round < 50; ++round) {
    const int size = 2 + static_cast<int>(rng.below(8));
    const RingPlan plan = random_plan(size, rng);
    const std::vector<PlanStream> streams = plan_streams(plan, size);
    EXPECT_TRUE(std::ranges::is_partitioned(
        streams, [&](const PlanStream& s) { return !is_ring_lane(plan, s.lane); }));
    const RegionShape shape = region_shape(size, plan);
    const auto large = std::ranges::count_if(
        streams, [&](const PlanStream& s) { return is_ring_lane(plan, s.lane); });
    EXPECT_EQ(shape.large_streams, large);
    EXPECT_EQ(shape.small_streams + shape.large_streams, static_cast<int>(streams.size()));
  }
}

TEST(PlanLinks, OfOneRankThereAreNone) {
  EXPECT_TRUE(plan_links(RingPlan::in_rank_order(1), 1).empty());
}

}  // namespace
}  // namespace jige::comm
