// Nodes that come and go, and jobs that are changed, while a scheduler runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "slurm/scheduler_rig.h"

namespace jige::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kLong = "jige length=2000 checkpoint=/none";

TEST(ClusterChange, NodesThatComeAreUsedAndWhatRunsStays) {
  SchedulerRig rig("fifo");
  rig.start();
  const int64_t wide = rig.slurm.submit(5, 4, 100, kLong);
  const int64_t narrow = rig.slurm.submit(3, 3, 100, kLong);
  rig.steps(8);
  const std::vector<std::string> before = rig.slurm.jobs()[wide].seen.nodes;
  const int64_t later = rig.slurm.submit(2, 4, 5);
  rig.steps(4);
  EXPECT_EQ(rig.slurm.jobs()[later].seen.state, SeenState::kHeld);
  rig.slurm.node_comes("n");
  rig.slurm.node_comes("n");
  rig.slurm.topology_text += "SwitchName=c Level=0 Nodes=n[9-10]\n";
  rig.steps(8);
  EXPECT_EQ(rig.slurm.jobs()[later].seen.state, SeenState::kRunning);
  EXPECT_THAT(rig.slurm.jobs()[later].seen.nodes, ElementsAre("n9", "n10"));
  EXPECT_THAT(rig.log(), HasSubstr("nodes or GPUs came or went; now 3 leaves x 4 nodes x 4 GPUs"));
  EXPECT_TRUE(rig.run_out(1000));
  EXPECT_EQ(rig.slurm.requeues, 0);
  EXPECT_EQ(rig.slurm.jobs()[wide].runs, 1);
  EXPECT_EQ(rig.slurm.jobs()[narrow].runs, 1);
  EXPECT_EQ(before.size(), 5u);
}

TEST(ClusterChange, GpusThatComeToANodeAreUsed) {
  SchedulerRig rig("fifo");
  rig.start();
  const int64_t runs = rig.slurm.submit(1, 3, 100, kLong);
  const int64_t large = rig.slurm.submit(1, 8, 2);
  rig.steps(4);
  EXPECT_TRUE(rig.scheduler->live().refused().contains(large));
  rig.slurm.nodes()[4].gpus = 8;
  EXPECT_TRUE(rig.run_out(1000));
  EXPECT_EQ(rig.slurm.jobs()[large].seen.slurm_state, "COMPLETED");
  EXPECT_EQ(rig.slurm.jobs()[runs].runs, 1);
}

TEST(ClusterChange, AJobOnANodeThatWentGoesOnWhenAnotherComes) {
  SchedulerRig rig("fifo");
  rig.start();
  const int64_t job = rig.slurm.submit(8, 4, 30, kLong);
  rig.steps(8);
  rig.slurm.nodes().erase(rig.slurm.nodes().begin());
  rig.slurm.node_comes("m");
  const int64_t next = rig.slurm.submit(1, 4, 2);
  rig.steps(12);
  EXPECT_TRUE(rig.scheduler->live().jobs().contains(job));
  EXPECT_EQ(rig.slurm.jobs()[next].runs, 1);
  EXPECT_TRUE(rig.run_out(1000));
  EXPECT_EQ(rig.slurm.jobs()[job].runs, 1);
}

TEST(ClusterChange, AJobThatNoLongerFitsHoldsNobodyUp) {
  SchedulerRig rig("fifo");
  rig.start();
  const int64_t runs = rig.slurm.submit(1, 4, 10, kLong);
  rig.steps(4);
  const int64_t wide = rig.slurm.submit(8, 4, 2);
  const int64_t behind = rig.slurm.submit(1, 1, 2);
  rig.steps(2);
  for (const size_t left : {0, 7}) rig.slurm.nodes()[left].partitions = {"other"};
  for (int i = 0; i < 400 && rig.slurm.unfinished() > 1; ++i) rig.step();
  rig.steps(2);
  EXPECT_EQ(rig.slurm.jobs()[runs].runs, 1);
  EXPECT_EQ(rig.slurm.jobs()[behind].seen.slurm_state, "COMPLETED");
  ASSERT_TRUE(rig.scheduler->live().refused().contains(wide));
  EXPECT_THAT(rig.scheduler->live().refused().at(wide), HasSubstr("has 24"));
}

// Filled up to equal nodes, the cluster seems to have room that is not there.
TEST(ClusterChange, AJobThatUnequalNodesCanNeverHoldIsRefused) {
  SchedulerRig rig("fifo");
  rig.slurm.nodes()[2].gpus = 8;
  rig.start();
  const int64_t never = rig.slurm.submit(2, 8, 2);
  const int64_t good = rig.slurm.submit(1, 8, 2);
  for (int i = 0; i < 200 && rig.slurm.unfinished() > 1; ++i) rig.step();
  EXPECT_EQ(rig.slurm.jobs()[good].runs, 1);
  ASSERT_TRUE(rig.scheduler->live().refused().contains(never));
  EXPECT_EQ(rig.scheduler->live().refused().at(never),
            "asks for 8 GPUs on each of 2 nodes; 1 nodes have so many");
}

TEST(ClusterChange, ANodeThatLeftThePartitionGetsNoJob) {
  SchedulerRig rig("fifo");
  rig.start();
  rig.steps(2);
  rig.slurm.nodes()[1].partitions = {"other"};
  for (int i = 0; i < 8; ++i) rig.slurm.submit(1, 4, 4);
  rig.steps(8);
  for (const auto& [id, job] : rig.slurm.jobs()) {
    EXPECT_THAT(job.seen.nodes, ::testing::Not(::testing::Contains("n2"))) << id;
  }
  EXPECT_TRUE(rig.run_out(1000));
}

TEST(ClusterChange, WhatAPersonReleasedStaysSlurmsWhenNodesCome) {
  SchedulerRig rig("fifo");
  rig.start();
  rig.slurm.submit(8, 4, 30, kLong);
  const int64_t theirs = rig.slurm.submit(1, 4, 2);
  rig.slurm.jobs()[theirs].seen.admin_comment = "jige place epoch=1 n=1";  // of an earlier start
  rig.steps(4);
  rig.slurm.person_releases(theirs);
  rig.steps(4);
  ASSERT_TRUE(rig.scheduler->live().foreign().contains(theirs));
  rig.slurm.node_comes("m");
  rig.slurm.nodes().back().up = false;
  rig.steps(4);
  EXPECT_EQ(rig.slurm.jobs()[theirs].seen.state, SeenState::kReleased);
  EXPECT_TRUE(rig.scheduler->live().foreign().contains(theirs));
}

TEST(ClusterChange, AJobThatGivesNodesBackGoesOnAndTheyAreUsed) {
  for (const char* policy : {"fifo", "srtf", "greedy"}) {
    SchedulerRig rig(policy);
    rig.start();
    const int64_t job = rig.slurm.submit(8, 4, 30, kLong);
    rig.steps(12);
    rig.slurm.person_shrinks(job, 3);
    const int64_t next = rig.slurm.submit(5, 4, 2, "jige length=40");
    rig.steps(12);
    EXPECT_EQ(rig.slurm.jobs()[next].runs, 1) << policy;
    EXPECT_NEAR(rig.scheduler->live().state().remaining_ns(rig.scheduler->live().jobs().at(job).id),
                (2000 - 20 * 23 * kStep_s) * 1e9, 30e9)
        << policy;
    EXPECT_TRUE(rig.run_out(1000)) << policy;
    EXPECT_EQ(rig.slurm.jobs()[job].runs, 1) << policy;
    EXPECT_EQ(rig.slurm.requeues, 0) << policy;
    EXPECT_THAT(rig.log(), HasSubstr("it has given nodes back; runs on n1,n2,n3")) << policy;
  }
}

TEST(ClusterChange, AJobThatWaitsIsPlacedByItsNewShape) {
  SchedulerRig rig("fifo");
  rig.start();
  rig.slurm.submit(8, 4, 5, kLong);
  const int64_t job = rig.slurm.submit(1, 4, 5);
  rig.steps(4);
  rig.slurm.person_reshapes(job, 2, 3);
  EXPECT_TRUE(rig.run_out(200));
  EXPECT_EQ(rig.slurm.jobs()[job].runs, 1);
  EXPECT_THAT(rig.log(), HasSubstr("\"event\":\"change\",\"job\":2"));
  EXPECT_THAT(rig.log(), HasSubstr("2 nodes x 3 GPUs"));
}

TEST(ClusterChange, AJobThatIsReleasedAndChangedIsHeldAndPlacedAnew) {
  SchedulerRig rig("fifo");
  rig.start();
  const int64_t job = rig.slurm.submit(1, 4, 5);
  rig.step();
  rig.slurm.jobs()[job].due_ns = rig.clock.now_ns() + 1'000'000'000'000;  // never
  rig.step();
  ASSERT_EQ(rig.slurm.jobs()[job].seen.state, SeenState::kReleased);
  rig.slurm.person_reshapes(job, 3, 2);
  EXPECT_TRUE(rig.run_out(200));
  EXPECT_EQ(rig.slurm.jobs()[job].runs, 1);
  EXPECT_EQ(rig.slurm.jobs()[job].wanted.size(), 3u);
  EXPECT_FALSE(rig.scheduler->live().foreign().contains(job));
}

TEST(ClusterChange, AJobThatWaitsHearsOfANewCommentOrDependency) {
  SchedulerRig rig("fifo");
  rig.start();
  rig.slurm.submit(8, 4, 100, kLong);
  const int64_t job = rig.slurm.submit(1, 4, 5, "jige length=100");
  const int64_t dependent = rig.slurm.submit(1, 4, 5);
  rig.steps(4);
  rig.slurm.jobs()[job].seen.comment = "jige length=400";
  rig.slurm.jobs()[dependent].seen.other_request = "it depends on other jobs";
  rig.steps(4);
  const LiveCluster& live = rig.scheduler->live();
  ASSERT_TRUE(live.jobs().contains(job));
  EXPECT_NEAR(live.state().remaining_ns(live.jobs().at(job).id), 400e9, 1e6);
  EXPECT_TRUE(live.refused().contains(dependent));
}

TEST(ClusterChange, AJobKeepsThePartThatItHasDone) {
  SchedulerRig rig("fifo");
  ASSERT_TRUE(write_file_atomic(
      rig.folder + "/state.json",
      R"({"version":1,"epoch":1,"unix_s":1,"cluster_ns":1,"jobs":[{"job":1,"arrival_ns":0,)"
      R"("iterations":1000,"left":250,"held_ns":5,"first_start_ns":1,"starts":1,)"
      R"("preemptions":1,"migrations":0}]})"));
  rig.start(true);
  rig.slurm.submit(1, 4, 5, "jige length=400");
  rig.step();
  const LiveCluster& live = rig.scheduler->live();
  EXPECT_NEAR(live.state().remaining_ns(live.jobs().at(1).id), 100e9, 1e6);
}

}  // namespace
}  // namespace jige::slurm
