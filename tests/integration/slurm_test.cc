// `jige cluster run` on a real Slurm (tools/demo-slurm): jobs under a policy, and what happens when
// the scheduler, the controller, a node or people interfere. Needs Debian's slurmctld, slurmd,
// munge and slurm-client, and root; skips where they are missing.
//
// JIGE_TEST_SLURM_LONG=1 adds the drills (half a minute) and the comparison with the simulation
// (ten minutes).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "base/process.h"
#include "integration/demo_slurm.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

double unix_now_s() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

// What the jobs themselves say: each ended once, no node ever had more than 4 GPUs in use, no
// restart lost more than a checkpoint's interval. A job whose end came as its node failed, at
// `failure_s`, is run again by Slurm, which never heard of it; `forgetful`: so are others.
void check_logs(const DemoSlurm& slurm, const std::set<int64_t>& cancelled, double interval_s,
                double failure_s = -1, bool forgetful = false) {
  std::map<std::string, std::vector<std::pair<double, int>>> changes;
  for (const auto& [id, gpus] : slurm.jobs()) {
    std::istringstream lines(slurm.log(id));
    std::string line;
    std::vector<std::string> nodes;
    int ends = 0;
    double stopped_at_us = -1;
    bool unheard = false;
    const auto leave = [&](double at) {
      for (const std::string& node : nodes) changes[node].emplace_back(at, -gpus);
      nodes.clear();
    };
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      double at = 0;
      std::string what;
      words >> at >> what;
      if (what == "start") {
        leave(at);
        std::string list, numbers;
        int restarts = 0;
        double from_us = 0;
        words >> list >> numbers >> restarts >> from_us;
        const ProcessOutcome names = must_run({"scontrol", "show", "hostnames", list});
        std::istringstream each(names.out);
        for (std::string node; each >> node;) nodes.push_back(node);
        for (const std::string& node : nodes) changes[node].emplace_back(at, gpus);
        if (stopped_at_us >= 0) {
          EXPECT_GE(from_us, stopped_at_us - interval_s * 1e6) << "job " << id;
        }
      } else {
        words >> stopped_at_us;
        unheard = what == "end" && ends == 0 && std::abs(at - failure_s) < 1;
        ends += what == "end" && !unheard;
        leave(at);
      }
    }
    if (unheard || (forgetful && ends > 1)) ends = 1;
    EXPECT_EQ(ends, cancelled.contains(id) ? 0 : 1) << "job " << id << "\n" << slurm.log(id);
  }
  for (auto& [node, list] : changes) {
    std::sort(list.begin(), list.end());
    int used = 0;
    for (const auto& [at, gpus] : list) {
      used += gpus;
      EXPECT_LE(used, 4) << node << " at " << std::to_string(at);
    }
  }
}

// Runs of jobs as Slurm's own records have them, whole seconds: never more GPUs than there are.
void check_records(const DemoSlurm& slurm) {
  std::istringstream lines(read_text(slurm.folder() + "/log/jobs.txt"));
  std::map<std::string, std::vector<std::pair<std::string, int>>> changes;
  int64_t runs = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto field = [&](const std::string& key) {
      const size_t at = line.find(" " + key + "=");
      if (at == std::string::npos) return std::string();
      const size_t begin = at + key.size() + 2;
      return line.substr(begin, line.find(' ', begin) - begin);
    };
    const int64_t id = std::atoll(line.c_str() + std::string("JobId=").size());
    const auto gpus = slurm.jobs().find(id);
    if (gpus == slurm.jobs().end() || field("NodeList") == "(null)") continue;
    if (field("StartTime") >= field("EndTime")) continue;
    ++runs;
    const ProcessOutcome names = must_run({"scontrol", "show", "hostnames", field("NodeList")});
    std::istringstream each(names.out);
    for (std::string node; each >> node;) {
      changes[node].emplace_back(field("StartTime"), gpus->second);
      changes[node].emplace_back(field("EndTime"), -gpus->second);
    }
  }
  EXPECT_GE(runs, std::ssize(slurm.jobs()) / 2);
  for (auto& [node, list] : changes) {
    std::sort(list.begin(), list.end());
    int used = 0;
    for (const auto& [at, gpus] : list) EXPECT_LE(used += gpus, 4) << node << " at " << at;
  }
}

void expect_sound(const Json& report, int64_t jobs) {
  EXPECT_EQ(report["jobs"], jobs);
  EXPECT_EQ(report["unfinished"], 0) << report.dump(2);
  EXPECT_EQ(report["double_booked"], 0) << report.dump(2);
  // A job whose last words fall together with its requeue is run again from its checkpoint.
  EXPECT_LE(report["twice_ended"], 2);
  EXPECT_LT(report["start_p50_s"], 1.5);
  EXPECT_GE(report["starts"], jobs);
  // A checkpoint is written when it is asked for; what is computed behind it is lost.
  EXPECT_LT(report["rolled_back_s_max"], 5.0);
}

TEST(Slurm, RunsSixtyJobsUnderThePolicy) {
  if (const std::string why = missing_for_slurm(); !why.empty()) GTEST_SKIP() << why;
  const Outcome outcome =
      run_jige({"cluster", "run", "--demo", "--json", "--jobs", "60", "--load", "3", "--length",
                "100", "--policy", "srtf/contention", "--interval", "0.2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  const Json report = outcome.json();
  expect_sound(report, 60);
  EXPECT_GT(report["restarts"], 0);
  EXPECT_EQ(processes_of(report["folder"]), 0);
  std::filesystem::remove_all(report["folder"].get<std::string>());
}

TEST(Slurm, SurvivesItsOwnEndTheControllersAndPeoples) {
  if (!std::getenv("JIGE_TEST_SLURM_LONG")) GTEST_SKIP() << "JIGE_TEST_SLURM_LONG is not set";
  if (const std::string why = missing_for_slurm(); !why.empty()) GTEST_SKIP() << why;
  const TestFolder folder, first_out, second_out;
  DemoSlurm slurm(folder);
  for (int i = 0; i < 6; ++i) slurm.submit(4, 4, 5);
  Process first(slurm.run_words(), first_out.path());
  ASSERT_TRUE(wait_for(20, [&] { return slurm.running() >= 2; }));
  // Old enough to be asked for a checkpoint.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  // Shorter jobs evict them; the scheduler dies in the middle of it.
  for (int i = 0; i < 12; ++i) slurm.submit(1 + i % 2, 2, 1.5);
  const auto decided = [&] {
    const std::string log = read_text(slurm.state() + "/decisions.jsonl");
    return log.find("\"step\":\"checkpoint\"") != std::string::npos ||
           log.find("\"step\":\"requeue\"") != std::string::npos;
  };
  ASSERT_TRUE(wait_for(20, decided));
  first.send(SIGKILL);
  EXPECT_EQ(first.wait().exit_code, 137);
  // Meanwhile a person releases one job and cancels another.
  const int64_t released = slurm.submit(1, 1, 2), cancelled = slurm.submit(1, 1, 2);
  must_run({"scontrol", "release", std::to_string(released)});
  must_run({"scancel", std::to_string(cancelled)});
  Process second(slurm.run_words(), second_out.path());
  std::this_thread::sleep_for(std::chrono::seconds(2));
  slurm.control({"controller-restart"});
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const double failure_s = unix_now_s();
  slurm.control({"node-down", "n2"});
  must_run({"scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=drill"});
  // It stays away: to one that is back within seconds Slurm itself delivers launches late, of jobs
  // that it has started elsewhere meanwhile.
  const Outcome outcome = second.wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["left"], 0);
  ASSERT_TRUE(wait_for(20, [&] { return slurm.running() == 0; }));
  check_logs(slurm, {cancelled}, 1.0, failure_s);
  check_records(slurm);
  const std::string one = std::to_string(slurm.jobs().begin()->first);
  const Outcome story = run_jige({"cluster", "explain", one, "--state", slurm.state()});
  EXPECT_EQ(story.exit_code, 0) << story.err;
  EXPECT_THAT(story.out, HasSubstr("placed on n"));
  const Outcome top = run_jige({"cluster", "top", "--once", "--state", slurm.state()});
  EXPECT_EQ(top.exit_code, 0) << top.err;
  EXPECT_THAT(top.out, HasSubstr("32 GPUs, "));
}

// Slurm forgets what happened up to five seconds before its controller is killed: also jobs that
// came then. Jobs that it does not know to run are killed when their node reports, or their node is
// drained as they are started once more, until an administrator resumes it.
TEST(Slurm, SurvivesAKilledController) {
  if (!std::getenv("JIGE_TEST_SLURM_LONG")) GTEST_SKIP() << "JIGE_TEST_SLURM_LONG is not set";
  if (const std::string why = missing_for_slurm(); !why.empty()) GTEST_SKIP() << why;
  const TestFolder folder, out;
  DemoSlurm slurm(folder);
  for (int i = 0; i < 14; ++i) slurm.submit(1 + i % 4, 4, 6);
  std::this_thread::sleep_for(std::chrono::seconds(7));
  Process scheduler(slurm.run_words(), out.path());
  for (int kill = 0; kill < 2; ++kill) {
    ASSERT_TRUE(wait_for(30, [&] { return slurm.running() >= 2; }));
    slurm.control({"controller-kill"});
    std::this_thread::sleep_for(std::chrono::seconds(6));
    must_run({"bash", "-c", "scontrol update NodeName=n[1-8] State=RESUME || true"});
  }
  const Outcome outcome = scheduler.wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["left"], 0);
  check_logs(slurm, {}, 1.0, -1, true);
}

TEST(Slurm, ReleasesHeldJobsWhenTheSchedulerIsGone) {
  if (const std::string why = missing_for_slurm(); !why.empty()) GTEST_SKIP() << why;
  const TestFolder folder, out;
  DemoSlurm slurm(folder);
  std::vector<std::string> words = slurm.run_words();
  *(std::find(words.begin(), words.end(), "--dead-man") + 1) = "1";
  for (int i = 0; i < 3; ++i) slurm.submit(8, 4, 1);
  Process scheduler(words, out.path());
  ASSERT_TRUE(wait_for(20, [&] { return slurm.running() >= 1; }));
  scheduler.send(SIGKILL);
  scheduler.wait();
  ASSERT_TRUE(wait_for(30, [&] {
    const ProcessOutcome all = must_run({"squeue", "-h", "-o", "%i"});
    return all.out.empty();
  }));
  check_logs(slurm, {}, 1.0);
  EXPECT_THAT(read_text(slurm.state() + "/dead-man.log"), HasSubstr("no heartbeat"));
}

TEST(Slurm, RefusesReleasesByUsers) {
  if (const std::string why = missing_for_slurm(); !why.empty()) GTEST_SKIP() << why;
  const TestFolder folder;
  DemoSlurm slurm(folder);
  if (read_text(slurm.folder() + "/mode") != "plugin\n") GTEST_SKIP() << "no Lua plugin";
  const std::string id = std::to_string(slurm.submit(1, 1, 1));
  // The job becomes one of nobody, who then tries to start it.
  const std::vector<std::string> as_nobody = {"setpriv", "--reuid=65534", "--regid=65534",
                                              "--clear-groups"};
  auto call = as_nobody;
  for (const char* word : {"sbatch", "--parsable", "--chdir=/tmp", "-o", "/dev/null", "--wrap",
                           "sleep 1", "--gres=gpu:1"}) {
    call.emplace_back(word);
  }
  const std::string theirs = std::to_string(std::atoll(must_run(call).out.c_str()));
  for (const std::vector<std::string>& change : {std::vector<std::string>{"release", theirs},
                                                 {"update", "JobId=" + theirs, "Priority=5"},
                                                 {"update", "JobId=" + theirs, "ReqNodeList=n1"},
                                                 {"update", "JobId=" + theirs, "StartTime=now"}}) {
    call = as_nobody;
    call.emplace_back("scontrol");
    call.insert(call.end(), change.begin(), change.end());
    const Result<ProcessOutcome> outcome = run_process(call);
    ASSERT_TRUE(outcome);
    EXPECT_NE(outcome->exit_code, 0) << change[0];
  }
  EXPECT_EQ(must_run({"squeue", "-h", "-j", theirs, "-o", "%T %Q"}).out, "PENDING 0\n");
  const Result<ProcessOutcome> named = run_process(
      {"sbatch", "--chdir=/tmp", "-o", "/dev/null", "-N1", "--gres=gpu:1", "-wn2", "--wrap=true"});
  ASSERT_TRUE(named);
  EXPECT_NE(named->exit_code, 0);
  EXPECT_THAT(named->err, HasSubstr("nodes in this partition are chosen by Jige"));
  const Outcome plan =
      run_jige({"cluster", "run", "--dry-run", "--json", "--state", folder / "dry"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(plan.json()["actions"].size(), 2u);
  EXPECT_EQ(must_run({"squeue", "-h", "-j", id, "-o", "%T %Q"}).out, "PENDING 0\n");
  must_run({"scancel", id, theirs});
}

TEST(Slurm, GivesTheTimesOfTheSimulation) {
  if (!std::getenv("JIGE_TEST_SLURM_LONG")) GTEST_SKIP() << "JIGE_TEST_SLURM_LONG is not set";
  if (const std::string why = missing_for_slurm(); !why.empty()) GTEST_SKIP() << why;
  const TestFolder out;
  Process demo({"cluster", "run", "--demo", "--json", "--jobs", "80", "--load", "0.9", "--length",
                "1800", "--policy", "srtf/contention"},
               out.path());
  ASSERT_TRUE(wait_for(1800, [&] { return !demo.running(); }));
  const Outcome outcome = demo.wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  const Json report = outcome.json();
  expect_sound(report, 80);
  const double slurm_s = report["jct_mean_s"], simulated_s = report["simulated_jct_mean_s"];
  EXPECT_NEAR(slurm_s / simulated_s, 1, 0.1) << report.dump(2);
  std::filesystem::remove_all(report["folder"].get<std::string>());
}

}  // namespace
}  // namespace jige::integration
