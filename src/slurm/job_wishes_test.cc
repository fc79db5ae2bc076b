// What jobs ask of Slurm beside GPUs: never to be requeued, to begin later, nodes of some kind,
// CPUs and memory; tasks of job arrays; partitions that are closed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "slurm/host_list.h"
#include "slurm/scheduler_rig.h"

namespace jige::slurm {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHour_s = 3600;

TEST(JobWishes, AJobThatCannotBeRequeuedIsNotStopped) {
  for (const char* policy : {"srtf", "las", "greedy"}) {
    SchedulerRig rig(policy);
    rig.start();
    const int64_t firm = rig.slurm.submit(8, 4, 60, "jige length=1200");
    rig.slurm.jobs()[firm].seen.stoppable = rig.slurm.jobs()[firm].requeues = false;
    rig.steps(20);
    const int64_t quick = rig.slurm.submit(1, 2, 2, "jige length=40");
    EXPECT_TRUE(rig.run_out(1000)) << policy;
    EXPECT_EQ(rig.slurm.jobs()[firm].runs, 1) << policy;
    EXPECT_EQ(rig.slurm.jobs()[quick].runs, 1) << policy;
    EXPECT_EQ(rig.scheduler->counts().preemptions, 0) << policy;
    EXPECT_THAT(rig.log(), HasSubstr("cannot be requeued, so it is not stopped"));
  }
}

// Its flag says otherwise, as that of a job whose state Slurm will not change.
TEST(JobWishes, AJobThatSlurmWillNotRequeueStaysWhereItIs) {
  SchedulerRig rig("srtf");
  rig.start();
  const int64_t firm = rig.slurm.submit(8, 4, 60, "jige length=1200");
  rig.slurm.jobs()[firm].requeues = false;
  rig.steps(20);
  const int64_t quick = rig.slurm.submit(1, 2, 2, "jige length=40");
  EXPECT_TRUE(rig.run_out(1000));
  EXPECT_EQ(rig.slurm.jobs()[firm].runs, 1);
  EXPECT_EQ(rig.slurm.jobs()[quick].runs, 1);
  EXPECT_EQ(rig.scheduler->counts().preemptions, 1);
  EXPECT_THAT(rig.log(), HasSubstr("it cannot be stopped: "));
}

TEST(JobWishes, AJobIsNotPlacedBeforeItMayBegin) {
  SchedulerRig rig("fifo");
  rig.start();
  const int64_t job = rig.slurm.submit(1, 1, 2);
  const auto now_s = static_cast<int64_t>(unix_now_s());
  rig.slurm.jobs()[job].seen.begin_s = now_s + kHour_s;
  const int64_t moved = rig.slurm.submit(8, 4, 1);
  rig.steps(1);
  rig.slurm.submit(8, 4, 5);
  rig.steps(2);
  const int64_t later = rig.slurm.submit(1, 1, 2);
  rig.steps(1);
  rig.slurm.jobs()[later].seen.begin_s = now_s + kHour_s;
  for (int i = 0; i < 200 && rig.slurm.unfinished() > 2; ++i) rig.step();
  EXPECT_EQ(rig.slurm.jobs()[moved].runs, 1);
  for (const int64_t id : {job, later}) {
    EXPECT_EQ(rig.slurm.jobs()[id].runs, 0) << id;
    ASSERT_TRUE(rig.scheduler->live().refused().contains(id)) << id;
    EXPECT_THAT(rig.scheduler->live().refused().at(id), HasSubstr("it begins at 20"));
    rig.slurm.jobs()[id].seen.begin_s = now_s - 1;
  }
  EXPECT_TRUE(rig.run_out(100));
}

// Slurm lets what it requeues begin two minutes later, and what Jige places at once, by its clock.
TEST(JobWishes, WhenSlurmLetsAJobBeginIsNoWish) {
  SeenJob seen{.begin_s = 1000};
  EXPECT_TRUE(begins_later(seen, 900));
  EXPECT_FALSE(begins_later(seen, 1000));
  seen.admin_comment = "jige place epoch=1 n=1";
  EXPECT_FALSE(begins_later(seen, 900));
  EXPECT_TRUE(begins_later(seen, 100));
  seen.admin_comment = "jige hold";
  seen.restarts = 1;
  EXPECT_FALSE(begins_later(seen, 900));
}

// Nodes with 32 CPUs and 1000 MB; n5 to n8 are fast.
void furnish(FakeSlurm& slurm) {
  for (size_t i = 0; i < slurm.nodes().size(); ++i) {
    slurm.nodes()[i].cpus = 32;
    slurm.nodes()[i].memory_mb = 1000;
    if (i >= 4) slurm.nodes()[i].features = {"fast", "new"};
  }
}

std::string nodes_of(SchedulerRig& rig, int64_t job) {
  return join_hosts(rig.slurm.jobs()[job].seen.nodes);
}

TEST(JobWishes, JobsGetTheNodesThatTheyAskFor) {
  SchedulerRig rig("fifo+skip/pack");
  furnish(rig.slurm);
  rig.start();
  std::vector<int64_t> jobs;
  const auto submit = [&](const NodeNeeds& needs) {
    jobs.push_back(rig.slurm.submit(1, 1, 10));
    rig.slurm.jobs()[jobs.back()].seen.needs = needs;
  };
  submit({.cpus = 30});
  submit({.cpus = 4});
  submit({.memory_mb = 900, .excluded = {"n1", "n2"}});
  submit({.features = "new&fast"});
  submit({.features = "slow|fast"});
  submit({.whole = true});
  rig.steps(12);
  for (const int64_t job : jobs) EXPECT_EQ(rig.slurm.jobs()[job].runs, 1) << job;
  EXPECT_EQ(nodes_of(rig, jobs[0]), "n1");
  EXPECT_NE(nodes_of(rig, jobs[1]), "n1");
  EXPECT_EQ(nodes_of(rig, jobs[2]), "n3");
  EXPECT_EQ(nodes_of(rig, jobs[3]), "n5");
  EXPECT_EQ(nodes_of(rig, jobs[4]), "n5");
  for (int i = 0; i < 5; ++i) EXPECT_NE(nodes_of(rig, jobs[5]), nodes_of(rig, jobs[i])) << i;
  EXPECT_EQ(rig.scheduler->live().state().job(5).gpus, 4) << "a whole node has all its GPUs";
  EXPECT_TRUE(rig.run_out(400));
  EXPECT_EQ(rig.log().find("came to nothing"), std::string::npos);
}

TEST(JobWishes, WhatNoNodeOffersIsRefused) {
  SchedulerRig rig("fifo");
  furnish(rig.slurm);
  rig.start();
  const int64_t job = rig.slurm.submit(2, 2, 1);
  rig.slurm.jobs()[job].seen.needs = {.cpus = 64, .features = "fast", .excluded = {"n1"}};
  rig.steps(2);
  ASSERT_TRUE(rig.scheduler->live().refused().contains(job));
  EXPECT_EQ(
      rig.scheduler->live().refused().at(job),
      "asks for 2 GPUs on each of 2 nodes; 0 nodes have so many and what else it asks for (64 "
      "CPUs; features fast; not n1)");
  rig.slurm.jobs()[job].seen.needs.cpus = 4;
  EXPECT_TRUE(rig.run_out(100));
}

// All CPUs are taken with all GPUs: who stops gives both.
TEST(JobWishes, CpusThatComeFreeWithGpusHinderNoEviction) {
  SchedulerRig rig("srtf");
  furnish(rig.slurm);
  rig.start();
  const int64_t large = rig.slurm.submit(8, 4, 60, "jige length=1200");
  rig.slurm.jobs()[large].seen.needs.cpus = 32;
  rig.steps(20);
  const int64_t small = rig.slurm.submit(1, 2, 2, "jige length=40");
  rig.slurm.jobs()[small].seen.needs.cpus = 32;
  EXPECT_TRUE(rig.run_out(1000));
  EXPECT_EQ(rig.slurm.jobs()[large].runs, 2);
  EXPECT_EQ(rig.slurm.requeues, 1);
}

// Others have the CPUs; whoever has the GPUs would be stopped for nothing, again and again.
TEST(JobWishes, NobodyIsStoppedForOneWhoLacksCpusAllTheSame) {
  for (const char* policy : {"srtf", "greedy"}) {
    SchedulerRig rig(policy);
    furnish(rig.slurm);
    FakeJob& other = rig.slurm.jobs()[rig.slurm.submit(8, 0, 60)];
    other.seen.partition = "cpu";
    other.seen.state = SeenState::kRunning;
    other.seen.needs.cpus = 20;
    for (const SeenNode& node : rig.slurm.nodes()) other.seen.nodes.push_back(node.name);
    other.seen.node_gpus.assign(8, 0);
    rig.start();
    const int64_t large = rig.slurm.submit(8, 4, 20, "jige length=1200");
    rig.slurm.jobs()[large].seen.needs.cpus = 8;
    rig.steps(20);
    const int64_t small = rig.slurm.submit(1, 2, 2, "jige length=40");
    rig.slurm.jobs()[small].seen.needs.cpus = 16;
    rig.steps(120);
    EXPECT_EQ(rig.slurm.jobs()[large].seen.slurm_state, "COMPLETED") << policy;
    EXPECT_EQ(rig.slurm.jobs()[small].runs, 0) << policy;
    EXPECT_EQ(rig.slurm.requeues, 0) << policy;
    EXPECT_TRUE(rig.run_out(400)) << policy;
  }
}

// One has the GPUs of a node and another one its CPUs, and the policy stops the first.
TEST(JobWishes, NobodyIsStoppedAgainAndAgainForOneWhoseCpusAnotherHas) {
  SchedulerRig rig("srtf");
  furnish(rig.slurm);
  rig.start();
  for (int i = 0; i < 8; ++i) {
    const int64_t busy = rig.slurm.submit(1, 1, 100, "jige length=400");
    rig.slurm.jobs()[busy].seen.needs.cpus = 30;
  }
  rig.steps(8);
  for (int i = 0; i < 8; ++i) {
    const int64_t idle = rig.slurm.submit(1, 3, 100, "jige length=4000");
    rig.slurm.jobs()[idle].seen.needs.cpus = 1;
  }
  rig.steps(12);
  const int64_t small = rig.slurm.submit(1, 2, 2, "jige length=390");
  rig.slurm.jobs()[small].seen.needs.cpus = 16;
  EXPECT_TRUE(rig.run_out(4000));
  EXPECT_LE(rig.slurm.requeues, 10);
}

TEST(JobWishes, ManyJobsShareCpusWithoutAFailedStart) {
  for (const char* policy : {"fifo+skip/pack", "srtf", "greedy"}) {
    SchedulerRig rig(policy);
    furnish(rig.slurm);
    rig.start();
    for (int i = 0; i < 40; ++i) {
      const int64_t job = rig.slurm.submit(1, 1, 2 + i % 3, "jige length=60 checkpoint=/none");
      rig.slurm.jobs()[job].seen.needs = {.cpus = 9 + i % 8, .memory_mb = 100 * (i % 7)};
    }
    EXPECT_TRUE(rig.run_out(1000)) << policy;
    EXPECT_EQ(rig.log().find("not started by Slurm"), std::string::npos) << policy;
  }
}

TEST(JobWishes, AReservationsNodesAreForThoseWhoNameIt) {
  SchedulerRig rig("fifo+skip/pack");
  rig.slurm.nodes()[0].reserved = rig.slurm.nodes()[1].reserved = true;
  rig.start();
  const int64_t other = rig.slurm.submit(1, 1, 2), named = rig.slurm.submit(1, 1, 2);
  rig.slurm.jobs()[named].seen.needs.reservation = "r1";
  rig.steps(8);
  EXPECT_EQ(nodes_of(rig, other), "n3");
  EXPECT_EQ(nodes_of(rig, named), "n1");
  EXPECT_TRUE(rig.run_out(100));
}

// Nothing that Slurm shows says why.
TEST(JobWishes, AJobThatANodeDoesNotStartTriesOthers) {
  SchedulerRig rig("fifo+skip/pack");
  rig.slurm.idle_nodes = {"n1", "n2"};
  rig.start();
  const int64_t one = rig.slurm.submit(1, 2, 2), two = rig.slurm.submit(4, 4, 2);
  for (int i = 0; i < 800 && rig.slurm.unfinished() > 0; ++i) rig.step();
  EXPECT_EQ(rig.slurm.jobs()[one].runs, 1);
  EXPECT_EQ(rig.slurm.jobs()[two].runs, 1);
  EXPECT_THAT(rig.log(), HasSubstr("came to nothing, the last: not started by Slurm (Resources)"));
}

TEST(JobWishes, AClosedPartitionGetsNothingAndNobodyIsBlamed) {
  SchedulerRig rig("fifo");
  rig.start();
  const int64_t runs = rig.slurm.submit(1, 1, 8);
  rig.steps(6);
  rig.slurm.closed = "down";
  const int64_t waits = rig.slurm.submit(1, 1, 1);
  rig.steps(120);
  EXPECT_EQ(rig.slurm.jobs()[runs].runs, 1);
  EXPECT_EQ(rig.slurm.jobs()[waits].seen.state, SeenState::kHeld);
  EXPECT_EQ(rig.log().find("not started by Slurm"), std::string::npos);
  EXPECT_THAT(rig.log(), HasSubstr("it is down: nothing is placed until it is up"));
  rig.slurm.closed = "";
  EXPECT_TRUE(rig.run_out(20));
  EXPECT_EQ(rig.slurm.jobs()[waits].runs, 1);
}

TEST(JobWishes, ATaskThatSlurmDoesNotTakeOutIsAskedForNowAndThen) {
  SchedulerRig rig("fifo");
  rig.start();
  const int64_t array = rig.slurm.submit_array(40, 1, 1, 1);
  rig.slurm.jobs()[array].tasks = {};  // refuses all
  rig.steps(60);
  const std::string log = rig.log();
  int asked = 0;
  for (size_t at = 0; (at = log.find("\"step\":\"split\"", at)) != std::string::npos; ++at) ++asked;
  EXPECT_EQ(asked, 2);
}

TEST(JobWishes, TasksOfAnArrayBecomeJobsAsManyAsMayRunAtOnce) {
  for (const int32_t at_once_max : {0, 3}) {
    SchedulerRig rig("fifo");
    rig.start();
    rig.slurm.submit_array(40, 1, 1, at_once_max);
    int64_t most = 0;
    for (int i = 0; i < 600 && rig.slurm.unfinished() > 0; ++i) {
      rig.step();
      int64_t at_once = 0;
      for (const auto& [id, job] : rig.slurm.jobs()) at_once += !job.seen.nodes.empty();
      most = std::max(most, at_once);
    }
    EXPECT_EQ(rig.slurm.unfinished(), 0) << at_once_max;
    EXPECT_EQ(rig.slurm.jobs().size(), 40u);
    for (const auto& [id, job] : rig.slurm.jobs()) EXPECT_EQ(job.runs, 1) << id;
    EXPECT_LE(most, at_once_max == 0 ? 32 : at_once_max);
    EXPECT_GE(most, at_once_max == 0 ? 8 : at_once_max);
    EXPECT_THAT(rig.log(), HasSubstr("task 3 of 1: 1 nodes x 1 GPUs"));
  }
}

}  // namespace
}  // namespace jige::slurm
