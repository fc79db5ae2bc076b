// What users see of their jobs in Slurm while Jige lets them wait.
#include "slurm/job_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "slurm/scheduler_rig.h"

namespace jige::slurm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kSteps_s = 4;  // steps in a second

const std::string& note_on(SchedulerRig& rig, int64_t job) {
  return rig.slurm.jobs()[job].seen.note;
}
const std::string& mark_on(SchedulerRig& rig, int64_t job) {
  return rig.slurm.jobs()[job].seen.admin_comment;
}
// All GPUs, for so long.
int64_t submit_wide(SchedulerRig& rig, double length_s) { return rig.slurm.submit(8, 4, length_s); }

TEST(AdminComment, IsReadAsItIsWritten) {
  for (const AdminComment& comment :
       {AdminComment{"", ""}, AdminComment{"", "jige hold"}, AdminComment{"", "not ours: a | b"},
        AdminComment{"waits", "jige hold"}, AdminComment{"waits", "jige place epoch=3 n=1"}}) {
    const AdminComment read = split_admin_comment(join_admin_comment(comment));
    EXPECT_EQ(read.note, comment.note);
    EXPECT_EQ(read.mark, comment.mark);
  }
  EXPECT_EQ(join_admin_comment({"waits", "jige place n=1"}), "jige: waits | jige place n=1");
  EXPECT_EQ(join_admin_comment({"waits", ""}), "jige: waits");
  EXPECT_EQ(join_admin_comment({"waits", "jige dead-man released this job"}), "jige: waits");
}

// What a user wrote into his comment must not become a mark.
TEST(AdminComment, TakesNoMarkFromTheTextOfANote) {
  const std::string note = note_of(" a | jige place epoch=9\nb\t");
  EXPECT_EQ(note, "a / jige place epoch=9 b");
  EXPECT_EQ(split_admin_comment(join_admin_comment({note, ""})).mark, "jige hold");
  std::string umlauts = "x";
  while (umlauts.size() < 600) umlauts += "ü";
  const std::string cut = note_of(umlauts);
  EXPECT_LT(cut.size(), 250U);
  EXPECT_THAT(cut, ::testing::EndsWith("ü..."));
}

TEST(JobNotes, SayWhyAJobWaitsUntilItIsPlaced) {
  SchedulerRig rig("fifo");
  rig.start();
  const int64_t first = submit_wide(rig, 20);
  rig.steps(8);
  const int64_t shape = rig.slurm.submit(2, 4, 60, "jige length=1200");
  const int64_t one = rig.slurm.submit(1, 3, 2, "for the paper");
  rig.steps(6 * kSteps_s);
  EXPECT_EQ(note_on(rig, first), "");
  EXPECT_EQ(note_on(rig, shape),
            "waits for 4 GPUs on each of 2 nodes; 0 free on one at most; place 1 in the queue");
  EXPECT_EQ(note_on(rig, one),
            "waits for 3 GPUs on one node; 0 free on one at most; place 2 in the queue");
  EXPECT_EQ(rig.slurm.annotations, 2);
  EXPECT_TRUE(rig.run_out(1000));
  for (const int64_t job : {shape, one}) {
    EXPECT_EQ(note_on(rig, job), "");
    EXPECT_THAT(mark_on(rig, job), StartsWith("jige place"));
  }
  EXPECT_EQ(rig.slurm.jobs()[one].seen.comment, "for the paper");
  EXPECT_EQ(rig.slurm.annotations, 2);
}

TEST(JobNotes, AreNotWrittenForJobsThatWaitShortly) {
  SchedulerRig rig("fifo");
  rig.start();
  for (int i = 0; i < 10; ++i) {
    submit_wide(rig, 0.1);
    rig.steps(2);
    submit_wide(rig, 0.1);
    EXPECT_TRUE(rig.run_out(100));
  }
  EXPECT_EQ(rig.slurm.annotations, 0);
}

TEST(JobNotes, SayWhatOtherReasonThereIs) {
  SchedulerRig rig("fifo+skip");
  rig.start();
  rig.slurm.closed = "down";
  const int64_t job = rig.slurm.submit(1, 1, 2);
  const int64_t mistyped = rig.slurm.submit(1, 1, 2, "jige lenght=3");
  rig.steps(4 * kSteps_s);
  EXPECT_EQ(note_on(rig, job), "waits for the partition, which is down");
  EXPECT_THAT(note_on(rig, mistyped), StartsWith("is left alone: comment: \"lenght=3\" is not"));
  rig.slurm.closed = "";
  for (SeenNode& node : rig.slurm.nodes()) rig.slurm.idle_nodes.push_back(node.name);
  const int64_t barred = rig.slurm.submit(1, 1, 2);
  for (int i = 0; i < 60 * kSteps_s && note_on(rig, barred).empty(); ++i) rig.step();
  EXPECT_EQ(
      note_on(rig, barred),
      "is tried again soon; its last start came to nothing: not started by Slurm (Resources)");
  rig.slurm.idle_nodes.clear();
  rig.slurm.jobs()[mistyped].seen.comment = "jige length=40";
  EXPECT_TRUE(rig.run_out(3000));
  EXPECT_EQ(note_on(rig, mistyped), "");
}

// Many jobs, whose places in the queue and GPUs that are free change with every start.
// Needs beside GPUs are named, and a queue in which the first one holds up the rest.
TEST(JobNotes, SayWhatIsMissingBesideGpus) {
  SchedulerRig rig("fifo");
  for (SeenNode& node : rig.slurm.nodes()) node.cpus = 32;
  rig.start();
  const int64_t hog = rig.slurm.submit(8, 1, 40);
  rig.slurm.jobs()[hog].seen.needs.cpus = 31;
  rig.steps(8);
  const int64_t job = rig.slurm.submit(1, 2, 2);
  rig.slurm.jobs()[job].seen.needs.cpus = 4;
  const int64_t behind = rig.slurm.submit(1, 1, 2);
  rig.slurm.jobs()[behind].seen.needs.cpus = 1;
  rig.steps(6 * kSteps_s);
  EXPECT_EQ(note_on(rig, job),
            "waits for 2 GPUs on one node; free on 8, 8 of them without what else it needs (4 "
            "CPUs); place 1 in the queue");
  EXPECT_EQ(note_on(rig, behind),
            "waits for its turn: GPUs are free, but jobs before it come first; place 2 in the "
            "queue");
  EXPECT_TRUE(rig.run_out(1000));
}

TEST(JobNotes, SpareTheController) {
  SchedulerRig rig("fifo");
  rig.start();
  for (int i = 0; i < 36; ++i) rig.slurm.submit(1 + i % 3, 4, 10 + i % 7);
  const NoteOptions options;
  int64_t in_a_row = 0;
  for (int i = 0; i < 90 * kSteps_s; ++i) {
    const int64_t before = rig.slurm.annotations;
    rig.step();
    const int64_t now = rig.slurm.annotations - before;
    EXPECT_LE(now, options.step_max);
    in_a_row = now > 0 ? in_a_row + 1 : 0;
    EXPECT_LE(in_a_row, 1);
  }
  EXPECT_GT(rig.slurm.annotations, 36);
  EXPECT_EQ(rig.slurm.annotated_s[36].size(), 2U);  // after a quarter of a minute, and repeat_s
  for (const auto& [job, times] : rig.slurm.annotated_s) {
    for (size_t i = 1; i < times.size(); ++i) {
      EXPECT_GE(times[i] - times[i - 1], options.pause_s) << job;
    }
  }
  EXPECT_THAT(note_on(rig, 36), HasSubstr(" in the queue"));
  EXPECT_TRUE(rig.run_out(3000));
}

TEST(JobNotes, NameNoPlaceThatChangesWithEveryStartFarBehind) {
  SchedulerRig rig("fifo");
  rig.start();
  submit_wide(rig, 100);
  rig.steps(4);
  std::vector<int64_t> jobs;
  for (int i = 0; i < 45; ++i) jobs.push_back(submit_wide(rig, 1));
  rig.steps(20 * kSteps_s);
  EXPECT_THAT(note_on(rig, jobs[9]), HasSubstr("; place 10 in the queue"));
  EXPECT_THAT(note_on(rig, jobs[10]), HasSubstr("; behind at least 10 others in the queue"));
  EXPECT_THAT(note_on(rig, jobs[19]), HasSubstr("; behind at least 10 others in the queue"));
  EXPECT_THAT(note_on(rig, jobs[20]), HasSubstr("; behind at least 20 others in the queue"));
  EXPECT_THAT(note_on(rig, jobs[44]), HasSubstr("; behind at least 40 others in the queue"));
}

TEST(JobNotes, SayThatTasksWaitInTheirArray) {
  SchedulerRig rig("fifo");
  rig.start();
  submit_wide(rig, 20);
  rig.steps(4);
  const int64_t all = rig.slurm.submit_array(40, 1, 2, 0);
  const int64_t few = rig.slurm.submit_array(40, 1, 2, 3);
  const int64_t mistyped = rig.slurm.submit_array(40, 1, 2, 0);
  rig.slurm.jobs()[mistyped].seen.comment = "jige lenght=3";
  const int64_t cut = rig.slurm.submit_array(40, 1, 2, 1);
  rig.slurm.jobs()[cut].tasks = {};
  rig.slurm.jobs()[cut].seen.array.tasks = "0,2,4,...";
  rig.steps(8 * kSteps_s);
  EXPECT_EQ(note_on(rig, all),
            "tasks become jobs of their own, at most 16 that wait; 16 wait and 0 run now");
  EXPECT_EQ(note_on(rig, few),
            "tasks become jobs of their own, at most 3 at once (%3); 3 wait and 0 run now");
  EXPECT_THAT(note_on(rig, mistyped), StartsWith("is left alone: comment: \"lenght=3\" is not"));
  EXPECT_EQ(note_on(rig, cut), "") << "its other tasks cannot be named";
  for (const auto& [id, job] : rig.slurm.jobs()) {
    if (job.seen.array.task < 0) continue;
    EXPECT_THAT(job.seen.note, Not(HasSubstr("tasks become"))) << id;
  }
  rig.slurm.person_cancels(mistyped);
  rig.slurm.person_cancels(cut);
  EXPECT_TRUE(rig.run_out(3000));
  for (const auto& [id, job] : rig.slurm.jobs()) {
    if (job.seen.array.task < 0) continue;
    EXPECT_EQ(job.seen.note, "") << id;
  }
}

TEST(JobNotes, KeepWhatAnAdministratorWrote) {
  SchedulerRig rig("fifo");
  rig.start();
  submit_wide(rig, 20);
  rig.steps(4);
  const int64_t written = rig.slurm.submit(1, 1, 1), held = rig.slurm.submit(1, 1, 1);
  const int64_t own = rig.slurm.submit(1, 1, 1);
  rig.slurm.jobs()[written].seen.admin_comment = "wait for the audit";
  rig.slurm.jobs()[held].seen.admin_comment = "";
  rig.slurm.jobs()[held].seen.reason = "JobHeldAdmin";
  rig.slurm.jobs()[own].seen.admin_comment = "";
  rig.steps(6 * kSteps_s);
  EXPECT_EQ(note_on(rig, written), "");
  EXPECT_EQ(mark_on(rig, written), "wait for the audit");
  EXPECT_EQ(note_on(rig, held), "");
  EXPECT_EQ(mark_on(rig, held), "");
  EXPECT_THAT(note_on(rig, own), StartsWith("waits for 1 GPU on one node"));
}

TEST(JobNotes, GoWhereAPersonReleasesTheJob) {
  SchedulerRig rig("fifo");
  rig.start();
  submit_wide(rig, 20);
  rig.steps(4);
  const int64_t job = rig.slurm.submit(1, 1, 40);
  rig.steps(6 * kSteps_s);
  EXPECT_NE(note_on(rig, job), "");
  rig.slurm.person_releases(job);
  rig.steps(30 * kSteps_s);
  EXPECT_EQ(rig.slurm.jobs()[job].seen.state, SeenState::kRunning);
  EXPECT_EQ(note_on(rig, job), "");
  EXPECT_EQ(mark_on(rig, job), "jige hold");
}

// The mark says that the nodes it names are Jige's, and of which scheduler.
TEST(JobNotes, KeepTheMarkOfAJobThatRanBefore) {
  SchedulerRig rig("srtf");
  rig.start();
  const int64_t job = rig.slurm.submit(8, 4, 60, "jige length=1200");
  rig.steps(40);
  for (int i = 0; i < 3; ++i) rig.slurm.submit(8, 4, 10, "jige length=200");
  rig.steps(8 * kSteps_s);
  const std::string mark = mark_on(rig, job);
  EXPECT_THAT(note_on(rig, job), HasSubstr("; place 3 in the queue"));
  EXPECT_THAT(mark, HasSubstr("jige place epoch="));
  // A new scheduler finds its notes, and has no cause to write them again.
  const int64_t before = rig.slurm.annotations;
  rig.start();
  rig.steps(3);
  EXPECT_EQ(rig.slurm.annotations, before);
  EXPECT_EQ(mark_on(rig, job), mark);
  EXPECT_TRUE(rig.run_out(2000));
  EXPECT_EQ(rig.slurm.jobs()[job].runs, 2);
}

// Between two looks, and long before a note of a job that did not run would be written again.
TEST(JobNotes, AreWrittenAnewForAJobThatWasStoppedSoon) {
  SchedulerRig rig("srtf");
  rig.start();
  const int64_t first = submit_wide(rig, 3);
  rig.steps(4);
  const int64_t job = rig.slurm.submit(8, 4, 60, "jige length=1200");
  while (rig.slurm.jobs()[first].seen.state != SeenState::kGone) rig.step();
  ASSERT_THAT(note_on(rig, job), StartsWith("waits for"));
  while (rig.slurm.jobs()[job].seen.state != SeenState::kRunning) rig.step();
  rig.slurm.submit(8, 4, 9, "jige length=180");
  rig.steps(8 * kSteps_s);
  EXPECT_THAT(note_on(rig, job), StartsWith("waits for"));
  EXPECT_THAT(mark_on(rig, job), StartsWith("jige place"));
  ASSERT_EQ(rig.slurm.annotated_s[job].size(), 2U);
  EXPECT_LT(rig.slurm.annotated_s[job][1] - rig.slurm.annotated_s[job][0], NoteOptions{}.pause_s);
}

TEST(JobNotes, HoldNothingUpWhereTheyCannotBeWritten) {
  SchedulerRig rig("fifo");
  rig.slurm.refuses_annotations = true;
  rig.start();
  for (int i = 0; i < 20; ++i) submit_wide(rig, 2);
  rig.steps(40 * kSteps_s);
  // A few, and then none for a minute.
  EXPECT_EQ(rig.slurm.annotations, 8);
  EXPECT_TRUE(rig.run_out(3000));
  EXPECT_EQ(rig.scheduler->counts().failures, 0);
  EXPECT_THAT(rig.log(), Not(HasSubstr("disabled")));
}

TEST(JobNotes, CanBeTurnedOff) {
  SchedulerRig rig("fifo");
  rig.notes.on = false;
  rig.start();
  for (int i = 0; i < 5; ++i) submit_wide(rig, 5);
  EXPECT_TRUE(rig.run_out(1000));
  EXPECT_EQ(rig.slurm.annotations, 0);
}

}  // namespace
}  // namespace jige::slurm
