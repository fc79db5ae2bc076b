// What jobs ask of Slurm beside GPUs: never to be requeued, to begin later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "slurm/dead_man.h"
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

}  // namespace
}  // namespace jige::slurm
