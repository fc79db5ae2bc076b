#include "slurm/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "cluster/policy_list.h"
#include "slurm/dead_man.h"
#include "slurm/scheduler_rig.h"

namespace jige::slurm {
namespace {

using ::testing::HasSubstr;

using Rig = SchedulerRig;

void submit_mixed(FakeSlurm& slurm, int count, uint64_t seed) {
  Rng rng(seed);
  for (int i = 0; i < count; ++i) {
    const int nodes = 1 << rng.below(3);
    const int gpus = 1 << rng.below(3);
    const char* model = rng.below(2) == 0 ? " model=bert" : "";
    const double length_s = 1 + static_cast<double>(rng.below(12));
    slurm.submit(nodes, gpus, length_s,
                 fmt::format("jige length={}{} checkpoint=/none", 20 * length_s, model));
  }
}

class EveryPolicy : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryPolicy, RunsEveryJobOnFreeNodesOnly) {
  Rig rig(GetParam());
  rig.start();
  submit_mixed(rig.slurm, 25, 7);
  for (int i = 0; i < 20; ++i) rig.step();
  submit_mixed(rig.slurm, 15, 8);
  EXPECT_TRUE(rig.run_out(3000));
  EXPECT_EQ(rig.slurm.placed_on_busy, 0);
  EXPECT_EQ(rig.slurm.revoked + rig.slurm.ended_by_signal, 0);
  for (const auto& [id, job] : rig.slurm.jobs()) {
    EXPECT_EQ(job.seen.slurm_state, "COMPLETED") << id;
    EXPECT_LE(job.lost_s, 1 + 3 * kStep_s) << id;  // too young to be asked, or behind the request
  }
  for (int i = 0; i < 3; ++i) rig.step();
  EXPECT_EQ(rig.scheduler->take_outcomes().size(), 40u);
  EXPECT_TRUE(rig.scheduler->live().jobs().empty());
}

TEST(Scheduler, KeepsTheEndOfALongLog) {
  Rig rig("greedy");
  rig.log_bytes_max = 8000;
  rig.start();
  submit_mixed(rig.slurm, 40, 9);
  EXPECT_TRUE(rig.run_out(5000));
  for (int i = 0; i < 3; ++i) rig.step();
  EXPECT_LE(rig.log().size(), 16000u);
  EXPECT_GE(rig.log().size(), 4000u);
  EXPECT_NE(rig.log().find("\"finish\""), std::string::npos);
  EXPECT_EQ(rig.log().find("\"arrive\",\"job\":1,"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Scheduler, EveryPolicy,
                         ::testing::Values("fifo", "fifo+easy/pack", "srtf", "las", "greedy",
                                           "srtf/contention"));

TEST(Scheduler, PreemptsWithACheckpoint) {
  Rig rig("srtf");
  rig.start();
  const int64_t large = rig.slurm.submit(8, 4, 60, "jige length=1200 checkpoint=/none");
  for (int i = 0; i < 20; ++i) rig.step();
  const int64_t small = rig.slurm.submit(1, 2, 2, "jige length=40");
  EXPECT_TRUE(rig.run_out(1000));
  EXPECT_EQ(rig.slurm.jobs()[large].runs, 2);
  EXPECT_EQ(rig.slurm.jobs()[small].runs, 1);
  EXPECT_EQ(rig.slurm.requeues, 1);
  EXPECT_NEAR(rig.slurm.jobs()[large].lost_s, 0, 3 * kStep_s);
  EXPECT_EQ(rig.slurm.checkpoints, 1);
  EXPECT_THAT(rig.log(), HasSubstr("\"evicted\":[{\"job\":1,"));
  EXPECT_THAT(rig.log(), HasSubstr("\"event\":\"preempt\""));
}

TEST(Scheduler, SendsNoSignalToAJobThatDoesNotExpectOne) {
  Rig rig("srtf");
  rig.start();
  rig.slurm.submit(8, 4, 60, "jige length=1200");
  for (int i = 0; i < 20; ++i) rig.step();
  rig.slurm.submit(1, 2, 2, "jige length=40");
  EXPECT_TRUE(rig.run_out(1000));
  EXPECT_EQ(rig.slurm.requeues, 1);
  EXPECT_EQ(rig.slurm.checkpoints, 0);
}

TEST(Scheduler, KnowsWhetherAMarkerHasChanged) {
  Rig rig("srtf");
  rig.start();
  rig.scheduler.reset();
  const std::string marker = rig.folder + "/marker";
  ASSERT_TRUE(write_file_atomic(marker, "1"));
  const int64_t before_ns = RealClock().now_ns();
  EXPECT_TRUE(marker_changed_since(marker, before_ns - 1'000'000'000));
  EXPECT_FALSE(marker_changed_since(marker, before_ns + 3'600'000'000'000));
  EXPECT_FALSE(marker_changed_since(marker + "s", 0));  // is not there
}

// Each may take as long as three tries of a command.
TEST(Scheduler, GivesASignOfLifeWithEveryAction) {
  Rig rig("fifo");
  rig.start();
  for (int i = 0; i < 5; ++i) rig.slurm.submit(1, 1, 2);
  std::set<std::string> heartbeats;
  rig.slurm.on_call = [&] { heartbeats.insert(*read_file(rig.folder + "/heartbeat")); };
  rig.step();
  EXPECT_EQ(heartbeats.size(), 6u);
}

TEST(Scheduler, DoesNotGoOnAskingWhoDoesNotAnswer) {
  Rig rig("fifo");
  rig.start();
  for (int i = 0; i < 5; ++i) rig.slurm.submit(1, 1, 2);
  rig.slurm.calls_left = 2;
  rig.step();
  EXPECT_EQ(rig.scheduler->counts().failures, 1);
  rig.slurm.calls_left = -1;
  EXPECT_TRUE(rig.run_out(100));
  for (const auto& [id, job] : rig.slurm.jobs()) EXPECT_EQ(job.runs, 1) << id;
}

TEST(Scheduler, GoesOnWithAFullDisk) {
  Rig rig("fifo");
  rig.start();
  rig.slurm.submit(1, 1, 2);
  rig.steps(6);
  const std::string heartbeat = *read_file(rig.folder + "/heartbeat");
  // No file can be made or grow; what is there can be written.
  std::filesystem::create_directory(rig.folder + "/heartbeat.new");
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{.rlim_cur = 64, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const int64_t job = rig.slurm.submit(8, 4, 2);
  EXPECT_TRUE(rig.run_out(100));
  EXPECT_NE(*read_file(rig.folder + "/heartbeat"), heartbeat) << "the timer would release all";
  EXPECT_EQ(rig.slurm.jobs()[job].runs, 1);
  setrlimit(RLIMIT_FSIZE, &before);
  rig.slurm.submit(1, 1, 1);
  EXPECT_TRUE(rig.run_out(100));
  EXPECT_THAT(rig.log(), HasSubstr("lines before this one could not be written"));
}

// With unequal nodes only GPUs that are there count.
TEST(Scheduler, CountsGpusInService) {
  Rig rig("fifo");
  rig.slurm.nodes()[3].gpus = 8;
  rig.start();
  rig.slurm.submit(8, 4, 10);
  rig.slurm.submit(1, 8, 10);
  rig.steps(4);
  EXPECT_THAT(rig.log(), HasSubstr("4 GPUs free in all, 36 of 36 in service"));
}

TEST(Scheduler, SaysWhyAJobWaits) {
  Rig rig("fifo");
  rig.start();
  rig.slurm.submit(8, 3, 10);
  rig.slurm.submit(8, 2, 10);
  rig.slurm.submit(1, 1, 10);
  for (int i = 0; i < 4; ++i) rig.step();
  EXPECT_THAT(rig.log(),
              HasSubstr("\"job\":2,\"why\":\"room\",\"text\":\"needs 2 GPUs on each of 8 "
                        "nodes; 0 nodes have so many free (8 GPUs free in all"));
  EXPECT_THAT(rig.log(), HasSubstr("\"job\":3,\"why\":\"order\""));
}

TEST(Scheduler, LeavesAloneWhatItCannotPlace) {
  Rig rig("fifo");
  rig.start();
  const int64_t huge = rig.slurm.submit(9, 4, 1);
  const int64_t wrong = rig.slurm.submit(1, 1, 1, "jige lenght=3");
  const int64_t array = rig.slurm.submit(1, 1, 1);
  rig.slurm.jobs()[array].seen.other_request = "it belongs to a job array";
  const int64_t either = rig.slurm.submit(1, 1, 1);
  rig.slurm.jobs()[either].seen.partition = "cpu,jige";
  const int64_t other = rig.slurm.submit(1, 1, 1);
  rig.slurm.jobs()[other].seen.partition = "jige2";
  const int64_t good = rig.slurm.submit(1, 1, 1);
  for (int i = 0; i < 20; ++i) rig.step();
  EXPECT_EQ(rig.slurm.jobs()[good].seen.state, SeenState::kGone);
  EXPECT_FALSE(rig.scheduler->live().refused().contains(other));
  for (const int64_t id : {huge, wrong, array, either}) {
    EXPECT_EQ(rig.slurm.jobs()[id].seen.state, SeenState::kHeld);
    EXPECT_TRUE(rig.scheduler->live().refused().contains(id));
  }
  EXPECT_THAT(rig.scheduler->live().refused().at(wrong), HasSubstr("lenght=3"));
}

TEST(Scheduler, TakesJobsThatWereCorrected) {
  Rig rig("fifo");
  rig.start();
  const int64_t wrong = rig.slurm.submit(1, 1, 1, "jige lenght=3");
  const int64_t later = rig.slurm.submit(1, 1, 1);
  rig.slurm.jobs()[later].seen.other_request = "it depends on other jobs";
  for (int i = 0; i < 4; ++i) rig.step();
  EXPECT_EQ(rig.scheduler->live().refused().size(), 2u);
  rig.slurm.jobs()[wrong].seen.comment = "jige length=3";
  rig.slurm.jobs()[later].seen.other_request = "";
  EXPECT_TRUE(rig.run_out(100));
  EXPECT_TRUE(rig.scheduler->live().refused().empty());
  const std::string log = rig.log();
  size_t refusals = 0;
  for (size_t at = 0; (at = log.find("\"refuse\"", at)) != std::string::npos; ++at) ++refusals;
  EXPECT_EQ(refusals, 2u) << "each is said once";
}

TEST(Scheduler, ForgetsJobsThatEndedWhileItWasAway) {
  Rig rig("fifo");
  rig.start();
  rig.slurm.submit(1, 1, 20);
  for (int i = 0; i < 10; ++i) rig.step();
  EXPECT_THAT(*read_file(rig.folder + "/state.json"), HasSubstr("\"job\":1"));
  rig.scheduler.reset();
  for (int i = 0; i < 200; ++i) rig.slurm.tick(kStep_s);
  rig.slurm.forgets_gone = true;
  rig.start();
  for (int i = 0; i < 10; ++i) rig.step();
  EXPECT_THAT(*read_file(rig.folder + "/state.json"), HasSubstr("\"jobs\":[]"));
}

TEST(Scheduler, LeavesReleasesByPeopleToSlurm) {
  Rig rig("fifo");
  rig.start();
  rig.slurm.submit(8, 4, 5);
  const int64_t mine = rig.slurm.submit(4, 4, 5);
  const int64_t theirs = rig.slurm.submit(2, 3, 20);
  for (int i = 0; i < 4; ++i) rig.step();
  rig.slurm.person_releases(theirs);
  EXPECT_TRUE(rig.run_out(400));
  EXPECT_EQ(rig.slurm.placed_on_busy, 0);
  EXPECT_EQ(rig.slurm.jobs()[mine].runs, 1);
  EXPECT_EQ(rig.slurm.jobs()[theirs].runs, 1);
  EXPECT_THAT(rig.log(), HasSubstr("\"event\":\"foreign\",\"job\":3"));
}

TEST(Scheduler, ChangesNothingInADryRun) {
  Rig rig("fifo");
  rig.start(true);
  const int64_t job = rig.slurm.submit(2, 4, 5);
  rig.step();
  ASSERT_EQ(rig.scheduler->last_actions().size(), 1u);
  EXPECT_EQ(rig.scheduler->last_actions()[0].step, Step::kPlace);
  EXPECT_EQ(rig.slurm.jobs()[job].seen.state, SeenState::kHeld);
  EXPECT_TRUE(std::filesystem::is_empty(rig.folder));
  rig.scheduler.reset();
  std::filesystem::remove(rig.folder);
  rig.start(true);
  EXPECT_FALSE(std::filesystem::exists(rig.folder));
}

TEST(Scheduler, SaysThatItLivesBeforeItLooks) {
  Rig rig("fifo");
  ASSERT_TRUE(write_file_atomic(rig.folder + "/heartbeat", "ended 3 17\n"));
  rig.start();
  EXPECT_THAT(*read_file(rig.folder + "/heartbeat"), HasSubstr("alive"));
}

TEST(Scheduler, RestsJobsThatSlurmDoesNotStart) {
  Rig rig("fifo");
  rig.start();
  const int64_t job = rig.slurm.submit(1, 4, 5);
  for (int i = 0; i < 200; ++i) {
    FakeJob& fake = rig.slurm.jobs()[job];
    fake.due_ns = rig.clock.now_ns() + 1'000'000'000'000;  // never
    rig.step();
  }
  EXPECT_GE(rig.scheduler->counts().places, 2);
  EXPECT_LE(rig.scheduler->counts().places, 4);
  EXPECT_THAT(rig.log(), HasSubstr("not started by Slurm (Priority); rests 4 s"));
  rig.slurm.jobs()[job].due_ns = 0;
  EXPECT_TRUE(rig.run_out(400));
}

TEST(Scheduler, OnlyOneHasAFolderAndALaterOneWins) {
  Rig rig("fifo");
  rig.start();
  rig.slurm.submit(1, 1, 50);
  rig.step();
  auto layout = Layout::create(rig.slurm.nodes(), "jige", "", {});
  SchedulerOptions options{.folder = rig.folder};
  options.live.partition = "jige";
  SchedulerParts parts;
  parts.contention = [](const Layout& used) { return cluster::make_no_contention(used.spec()); };
  const auto second =
      Scheduler::create(rig.slurm, rig.clock, std::move(*layout), options, std::move(parts));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  // Elsewhere, with another folder, somebody of a later epoch has placed a job.
  const int64_t epoch = rig.scheduler->epoch();
  rig.slurm.jobs()[1].seen.admin_comment = fmt::format("jige place epoch={} n=1", epoch + 8);
  const Status status = rig.scheduler->step();
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              HasSubstr(fmt::format("epoch {}, ours {}", epoch + 8, epoch)));
}

// Its jobs carry the epoch of the one before, which nobody remembers.
TEST(Scheduler, TakesOverWithoutTheStateOfTheOneBefore) {
  Rig rig("fifo");
  rig.start();
  const int64_t job = rig.slurm.submit(1, 1, 20);
  rig.steps(6);
  rig.slurm.jobs()[job].seen.admin_comment = "jige place epoch=7 n=1";
  rig.scheduler.reset();
  std::filesystem::remove_all(rig.folder);
  rig.start();
  EXPECT_TRUE(rig.run_out(200));
  EXPECT_EQ(rig.slurm.jobs()[job].runs, 1);
}

TEST(Scheduler, GoesOnWhenItsListIsFull) {
  Rig rig("srtf");
  rig.jobs_max = 12;
  rig.start();
  submit_mixed(rig.slurm, 10, 3);
  EXPECT_TRUE(rig.run_out(2000));
  submit_mixed(rig.slurm, 10, 4);
  EXPECT_TRUE(rig.run_out(2000));
  EXPECT_THAT(rig.log(), HasSubstr("the list of jobs was full"));
}

// What a policy remembers is by the numbers that jobs have in the list.
TEST(Scheduler, TellsTheJobsOfANewListFromThoseOfTheOld) {
  Rig rig("greedy");
  rig.jobs_max = 4;
  rig.start();
  // Without a time of submission: as old as can be.
  for (int i = 0; i < 4; ++i) {
    rig.slurm.submit(1, 1, 1);
    EXPECT_TRUE(rig.run_out(100));
    rig.step();
  }
  EXPECT_THAT(rig.log(), HasSubstr("\"class\":\"overdue\""));
  const size_t old_end = rig.log().size();
  const int64_t fresh = rig.slurm.submit(1, 1, 1);
  rig.slurm.jobs()[fresh].seen.submit_s = static_cast<int64_t>(unix_now_s());
  EXPECT_TRUE(rig.run_out(100));
  EXPECT_THAT(rig.log(), HasSubstr("the list of jobs was full"));
  const std::string log = rig.log().substr(old_end);
  EXPECT_THAT(log, HasSubstr("\"event\":\"place\""));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("\"class\":\"overdue\"")));
}

TEST(Scheduler, ReadsStateOfAnyClock) {
  for (const char* unix_s : {"0", "99999999999", "-5"}) {
    Rig rig("greedy");
    ASSERT_TRUE(write_file_atomic(
        rig.folder + "/state.json",
        fmt::format(
            R"({{"version":1,"epoch":99999999999,"unix_s":{},"cluster_ns":7000000000,"jobs":[)"
            R"({{"job":1,"arrival_ns":99000000000000,"left":3,"held_ns":5,)"
            R"("first_start_ns":1,"starts":1,"preemptions":1,"migrations":0}}]}})",
            unix_s)));
    rig.start();
    rig.slurm.submit(2, 2, 3);
    EXPECT_TRUE(rig.run_out(200)) << unix_s;
    EXPECT_THAT(rig.slurm.jobs()[1].seen.admin_comment, HasSubstr("epoch=100000000000 "));
  }
}

TEST(Scheduler, RefusesStateThatIsBroken) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"version":2})",
        R"({"version":1,"epoch":1,"unix_s":1,"cluster_ns":1})",
        R"({"version":1,"epoch":1,"unix_s":1,"cluster_ns":1,"jobs":[3]})",
        R"({"version":1,"epoch":9223372036854775807,"unix_s":1,"cluster_ns":1,)"
        R"("jobs":[]})",
        R"({"version":1,"epoch":1,"unix_s":1,"cluster_ns":9000000000000000000,"jobs":[]})",
        R"({"version":1,"epoch":1,"unix_s":1,"cluster_ns":1,"jobs":[{"job":1,)"
        R"("arrival_ns":0,"left":3,"held_ns":5,"first_start_ns":1,)"
        R"("starts":-1,"preemptions":1,"migrations":0}]})"}) {
    Rig rig("fifo");
    ASSERT_TRUE(write_file_atomic(rig.folder + "/state.json", text));
    auto layout = Layout::create(rig.slurm.nodes(), "jige", "", {});
    SchedulerParts parts;
    parts.policy = [] { return std::move(*cluster::make_policy("fifo", "test", {})); };
    parts.contention = [](const Layout& used) { return cluster::make_no_contention(used.spec()); };
    SchedulerOptions options{.folder = rig.folder};
    EXPECT_FALSE(
        Scheduler::create(rig.slurm, rig.clock, std::move(*layout), options, std::move(parts)))
        << text;
  }
}

TEST(Scheduler, RefusesDamagedStateOrGoesOnWithIt) {
  std::string good;
  {
    Rig rig("greedy");
    rig.start();
    submit_mixed(rig.slurm, 8, 3);
    rig.steps(8);
    good = *read_file(rig.folder + "/state.json");
  }
  int went_on = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(600); ++seed) {
    Rig rig("greedy");
    submit_mixed(rig.slurm, 8, 3);
    ASSERT_TRUE(write_file_atomic(rig.folder + "/state.json", Mutator(seed).mutate(good)));
    if (const Status started = rig.try_start(); !started) {
      ASSERT_THAT(started.error().message, HasSubstr("state.json")) << seed;
      continue;
    }
    ++went_on;
    rig.steps(6);
    ASSERT_FALSE(testing::Test::HasFatalFailure()) << seed;
  }
  EXPECT_GT(went_on, 16);
}

// Everything that goes wrong, at once and in random order: Slurm is silent, the scheduler is killed
// between any two calls, nodes fail, people release, hold and cancel.
TEST(Scheduler, LosesNoJobWhateverHappens) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const char* policies[] = {"srtf", "greedy", "las", "fifo+skip"};
    Rig rig(policies[seed % 4], seed);
    rig.slurm.silence = seed % 3 == 0 ? 0.2 : 0;
    rig.slurm.forgets_gone = seed % 2 == 0;
    Rng rng(derive_key(seed, "chaos"));
    rig.start();
    submit_mixed(rig.slurm, 20, seed);
    for (int i = 0; i < 150; ++i) {
      const auto job = static_cast<int64_t>(1 + rng.below(20));
      const auto node = static_cast<size_t>(rng.below(8));
      switch (rng.below(40)) {
        case 0:
          rig.slurm.node_down(node);
          break;
        case 1:
          rig.slurm.node_up(node);
          break;
        case 2:
          rig.slurm.person_releases(job);
          break;
        case 3:
          rig.slurm.person_holds(job);
          break;
        case 4:
          if (rng.below(4) == 0) rig.slurm.person_cancels(job);
          break;
        case 5:
          if (rig.slurm.nodes().size() < 10) rig.slurm.node_comes("n");
          break;
        case 6:
          rig.slurm.person_reshapes(job, 1 + static_cast<int>(rng.below(2)),
                                    1 + static_cast<int>(rng.below(4)));
          break;
        case 7:
          rig.slurm.calls_left = static_cast<int64_t>(rng.below(6));
          rig.step();
          rig.slurm.calls_left = -1;
          rig.start();
          break;
        default:
          break;
      }
      rig.step();
    }
    for (size_t node = 0; node < 8; ++node) rig.slurm.node_up(node);
    rig.slurm.silence = 0;
    EXPECT_TRUE(rig.run_out(6000)) << "seed " << seed << ": " << rig.slurm.unfinished() << " left";
    for (const auto& [id, job] : rig.slurm.jobs()) {
      const bool ended = job.cancelled || job.seen.slurm_state == "COMPLETED" ||
                         job.seen.slurm_state == "NODE_FAIL";
      EXPECT_TRUE(ended) << "seed " << seed << ", job " << id << " " << job.seen.slurm_state;
    }
  }
}

TEST(DeadMan, WaitsForTheHeartbeatByItsOwnClock) {
  using Verdict = DeadManTimer::Verdict;
  constexpr int64_t kS = 1'000'000'000;
  DeadManTimer timer(10, std::nullopt, 0);
  EXPECT_EQ(timer.look("alive 1 1", 9 * kS), Verdict::kAlive);
  EXPECT_EQ(timer.look("alive 1 2", 18 * kS), Verdict::kAlive);
  EXPECT_EQ(timer.look("alive 1 2", 28 * kS), Verdict::kAlive);
  EXPECT_EQ(timer.look("", 28 * kS), Verdict::kAlive);
  EXPECT_EQ(timer.look("alive 1 2", 29 * kS), Verdict::kDead);
  EXPECT_EQ(timer.look("alive 2 0", 30 * kS), Verdict::kAlive);
  EXPECT_EQ(timer.look("ended 2 9", 31 * kS), Verdict::kEnded);
  EXPECT_EQ(DeadManTimer(10, std::nullopt, 0).look("", 11 * kS), Verdict::kDead);
}

TEST(DeadMan, OfASchedulerEndsWhenALaterOneHasBegun) {
  using enum DeadManTimer::Verdict;
  DeadManTimer own(10, 4, 0), free_standing(10, std::nullopt, 0);
  EXPECT_EQ(own.look("alive 4 17\n", 1), kAlive);
  EXPECT_EQ(own.look("alive 4\n", 2), kAlive);
  EXPECT_EQ(own.look("alive 5 0\n", 3), kFollowed);
  EXPECT_EQ(own.look("ended 5 9\n", 4), kFollowed);
  EXPECT_EQ(free_standing.look("alive 5 0\n", 1), kAlive);
  EXPECT_EQ(free_standing.look("ended 5 9\n", 2), kEnded);
}

TEST(DeadMan, ReleasesJobsThatASchedulerThenTakesBack) {
  Rig rig("fifo");
  rig.start();
  rig.slurm.submit(8, 4, 3);
  for (int i = 0; i < 6; ++i) rig.step();
  submit_mixed(rig.slurm, 12, 5);
  const int64_t by_hand = rig.slurm.submit(1, 1, 1);
  rig.slurm.jobs()[by_hand].seen.reason = "JobHeldAdmin";
  rig.slurm.jobs()[by_hand].seen.admin_comment = "wait for the audit";
  rig.step();
  rig.scheduler.reset();
  const auto released = release_held(rig.slurm, "jige");
  ASSERT_TRUE(released);
  EXPECT_EQ(*released, 12);
  EXPECT_EQ(rig.slurm.jobs()[by_hand].seen.state, SeenState::kHeld);
  for (int i = 0; i < 20; ++i) rig.slurm.tick(kStep_s);
  rig.start();
  EXPECT_TRUE(rig.run_out(1000));
  rig.slurm.silence = 2;
  EXPECT_EQ(release_held(rig.slurm, "jige").error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace jige::slurm
