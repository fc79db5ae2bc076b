#include "cluster/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cluster/cluster_test_support.h"

namespace jige::cluster {
namespace {

using ::testing::ElementsAre;

// Two leaves of three nodes with four GPUs; free: 4 1 2 | 3 0 4.
struct Scene {
  ClusterSpec spec = cluster_of(2, 3, 4);
  FreeGpus free{spec};
  Rng rng{1};

  Scene() { free.take({{1, 3}, {2, 2}, {3, 1}, {4, 4}}); }
  Placement place(PlacementKind kind, const Job& job) {
    return place_blindly(kind, job, free, spec, rng);
  }
};

TEST(Placement, OneNodeIsTheTightestThatHoldsAll) {
  Scene scene;
  for (const auto kind : {PlacementKind::kPack, PlacementKind::kSpan, PlacementKind::kBestFit}) {
    EXPECT_THAT(scene.place(kind, plain_job(0, 2, 1)), ElementsAre(NodeShare{2, 2}));
    EXPECT_THAT(scene.place(kind, plain_job(0, 3, 1)), ElementsAre(NodeShare{3, 3}));
  }
}

TEST(Placement, SeveralNodesGoByTheirRule) {
  Scene scene;
  const Job six = plain_job(0, 6, 1);
  // The fewest nodes: a whole one and the tightest that holds the rest.
  EXPECT_THAT(scene.place(PlacementKind::kPack, six),
              ElementsAre(NodeShare{0, 4}, NodeShare{2, 2}));
  // Both leaves have seven; the first is taken.
  EXPECT_THAT(scene.place(PlacementKind::kSpan, six),
              ElementsAre(NodeShare{0, 4}, NodeShare{2, 2}));
  // The smallest gaps first.
  EXPECT_THAT(scene.place(PlacementKind::kBestFit, six),
              ElementsAre(NodeShare{1, 1}, NodeShare{2, 2}, NodeShare{3, 3}));
  const Job seven = plain_job(0, 7, 1);
  EXPECT_THAT(scene.place(PlacementKind::kPack, seven),
              ElementsAre(NodeShare{0, 4}, NodeShare{3, 3}));
  EXPECT_THAT(scene.place(PlacementKind::kSpan, seven),
              ElementsAre(NodeShare{0, 4}, NodeShare{1, 1}, NodeShare{2, 2}));
}

TEST(Placement, FixedShapesGetEqualShares) {
  Scene scene;
  Job job = plain_job(0, 4, 1);
  job.nodes = 2;
  EXPECT_THAT(scene.place(PlacementKind::kPack, job),
              ElementsAre(NodeShare{2, 2}, NodeShare{3, 2}));
  EXPECT_THAT(scene.place(PlacementKind::kSpan, job),
              ElementsAre(NodeShare{0, 2}, NodeShare{2, 2}));
  job.nodes = 4;
  for (const auto kind : {PlacementKind::kPack, PlacementKind::kSpan, PlacementKind::kBestFit,
                          PlacementKind::kRandom}) {
    const Placement placed = scene.place(kind, job);
    ASSERT_EQ(placed.size(), 4u);
    for (const NodeShare& share : placed) EXPECT_EQ(share.gpus, 1);
  }
}

TEST(Placement, AllKindsPlaceWhateverFits) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(derive_key(seed, "placement"));
    const auto small = [&](uint64_t most) { return 1 + static_cast<int32_t>(rng.below(most)); };
    const ClusterSpec spec = cluster_of(small(4), small(5), small(8));
    FreeGpus free(spec);
    for (int32_t node = 0; node < spec.node_count(); ++node) {
      const auto taken =
          static_cast<int32_t>(rng.below(static_cast<uint64_t>(spec.gpus_per_node) + 1));
      if (taken > 0) free.take({{node, taken}});
    }
    Job job = plain_job(0, small(static_cast<uint64_t>(spec.gpu_count())), 1);
    if (rng.below(2) == 0) {
      job.nodes = small(3);
      job.gpus = job.nodes * small(3);
    }
    if (!free.fits(job)) continue;
    for (const auto kind : {PlacementKind::kPack, PlacementKind::kSpan, PlacementKind::kBestFit,
                            PlacementKind::kRandom}) {
      const Placement placed = place_blindly(kind, job, free, spec, rng);
      int32_t gpus = 0, node_before = -1;
      for (const NodeShare& share : placed) {
        EXPECT_GT(share.node, node_before);
        node_before = share.node;
        gpus += share.gpus;
      }
      EXPECT_EQ(gpus, job.gpus);
      FreeGpus after = free;
      after.take(placed);  // ends the process where something is not free
    }
  }
}

TEST(Placement, CandidatesDifferAndFit) {
  const ClusterSpec spec = cluster_of(4, 4, 4);
  const std::vector<Job> jobs = {plain_job(0, 6, 1), plain_job(0, 6, 1), plain_job(0, 10, 1)};
  ClusterState cluster(spec, jobs, make_link_contention(spec, {}), nullptr);
  for (JobId id = 0; id < 3; ++id) cluster.arrive(id);
  cluster.start(0, {{0, 3}, {4, 3}});
  const std::vector<Placement> all = candidate_placements(cluster, 1, 64);
  EXPECT_GT(all.size(), 4u);
  for (size_t i = 0; i < all.size(); ++i) {
    FreeGpus after = cluster.free();
    after.take(all[i]);
    for (size_t k = 0; k < i; ++k) EXPECT_NE(all[i], all[k]);
  }
  EXPECT_LE(candidate_placements(cluster, 2, 3).size(), 3u);
  // One that fits on a node has that one candidate.
  EXPECT_EQ(cluster.spread_on_node(4), 1);
  EXPECT_EQ(cluster.spread_on_leaf(1), 1);
  EXPECT_EQ(cluster.spread_on_leaf(2), 0);
}

}  // namespace
}  // namespace jige::cluster
