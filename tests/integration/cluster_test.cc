// Simulated clusters through the binary: one policy, comparisons, traces, training, bad input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "integration/process.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> small(std::vector<std::string> words) {
  for (const char* word : {"--cluster", "2x2x4@100/4", "--jobs", "60", "--sizes", "2:1,4:1,8:1",
                           "--fixed-shapes", "0.5"}) {
    words.emplace_back(word);
  }
  return words;
}

TEST(Cluster, SimulatesTheSameTwice) {
  const TestFolder folder;
  const auto once = [&](const std::string& file) {
    const Outcome outcome = run_jige(small(
        {"cluster", "simulate", "--policy", "greedy", "--json", "--schedule", folder / file}));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["finished"], 60);
    EXPECT_EQ(outcome.json()["simulated"], true);
    return *read_file(folder / file);
  };
  const std::string schedule = once("a.jsonl");
  EXPECT_EQ(schedule, once("b.jsonl"));
  EXPECT_EQ(std::count(schedule.begin(), schedule.end(), '\n'), 60);
}

TEST(Cluster, ComparesOnAPage) {
  const TestFolder folder;
  const Outcome outcome =
      run_jige(small({"cluster", "compare", "--policies", "srtf,greedy", "--loads", "0.5,0.9",
                      "--seeds", "2", "--html", folder / "page.html"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("SIMULATED"));
  EXPECT_THAT(outcome.out, HasSubstr("mean vs srtf"));
  const auto page = read_file(folder / "page.html");
  ASSERT_TRUE(page);
  EXPECT_THAT(*page, HasSubstr("Congestion: greedy"));
  EXPECT_THAT(*page, HasSubstr("Distribution of job completion times"));
  EXPECT_THAT(*page, Not(HasSubstr("<script")));
}

TEST(Cluster, ReadsTracesAndNamesWhatIsWrong) {
  const TestFolder folder;
  const std::string head = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n";
  ASSERT_TRUE(write_file_atomic(folder / "good.csv", head + "1,4,0,10,resnet50,300,0\n"
                                                            "2,99,5,10,bert,300,0\n"));
  const Outcome good = run_jige({"cluster", "simulate", "--policy", "fifo", "--cluster", "1x2x4",
                                 "--trace", folder / "good.csv", "--trim", "0", "--json"});
  ASSERT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(good.json()["finished"], 1);
  EXPECT_EQ(good.json()["refused"], 1);
  EXPECT_THAT(good.json()["scene"].get<std::string>(), HasSubstr("traffic assigned by model"));
  ASSERT_TRUE(write_file_atomic(folder / "bad.csv", head + "1,4,zero,10,resnet50,300,0\n"));
  const Outcome bad = run_jige({"cluster", "simulate", "--trace", folder / "bad.csv"});
  EXPECT_EQ(bad.exit_code, 4);
  EXPECT_THAT(bad.err, HasSubstr("bad.csv:2: field submit_time: \"zero\""));
  EXPECT_EQ(run_jige({"cluster", "simulate", "--policy", "best"}).exit_code, 2);
  EXPECT_EQ(run_jige({"cluster", "compare", "--base", "las", "--policies", "fifo"}).exit_code, 2);
  EXPECT_EQ(run_jige({"cluster", "simulate", "--policy", "learned"}).exit_code, 2);
}

TEST(Cluster, AFileWithoutAnEndIsRefusedBeforeItFillsTheMemory) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--colocate"},
                                             {"--contention", "table", "--table"},
                                             {"--policy", "learned", "--learned"}}) {
    std::vector<std::string> command = {"cluster", "simulate", "--jobs", "5"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.push_back("/dev/zero");
    expect_error(run_jige(command), 6, {"/dev/zero: is larger than the limit of"});
  }
}

// What is wrong with a policy is said before a Slurm is asked or started.
TEST(Cluster, RunLooksAtItsPolicyFirst) {
  const TestFolder folder;
  for (const char* where : {"--dry-run", "--demo"}) {
    const Outcome missing = run_jige(
        {"cluster", "run", where, "--policy", "learned", "--policy-file", folder / "none.json"});
    EXPECT_EQ(missing.exit_code, 3) << where;
    EXPECT_THAT(missing.err, HasSubstr("none.json: cannot open"));
    EXPECT_EQ(run_jige({"cluster", "run", where, "--policy", "learned"}).exit_code, 2);
  }
}

TEST(Cluster, RunSaysThatItsTimerIsShorterThanACall) {
  const auto said = [](const std::string& limit_s) {
    return run_jige({"cluster", "run", "--command-limit", limit_s, "--policy", "learned",
                     "--policy-file", "/none.json"})
        .err;
  };
  EXPECT_THAT(said("30"), HasSubstr("--dead-man 60 is less than 3 tries of --command-limit 30"));
  EXPECT_THAT(said("10"), ::testing::Not(HasSubstr("--dead-man")));
}

TEST(Cluster, RefusesFlagsThatWouldDoNothing) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"run", "--jobs", "4"}, "--jobs is about the jobs of --demo"},
      {{"run", "--policy-file", "p.json"}, "--policy-file is for the policy learned"},
      {{"run", "--demo", "--dry-run"}, "--dry-run is about a Slurm that is there"},
      {{"simulate", "--table", "t.csv"}, "--table t.csv is for --contention table"},
      {{"simulate", "--trace", "t", "--sizes", "single"}, "--sizes is about generated jobs"},
      {{"simulate", "--rates", "r.csv"}, "--rates is about a trace"},
      {{"compare", "--contention", "none", "--phases", "spread"},
       "--phases is about --contention"}};
  for (const auto& [words, said] : cases) {
    std::vector<std::string> command = {"cluster"};
    command.insert(command.end(), words.begin(), words.end());
    const Outcome outcome = run_jige(command);
    EXPECT_EQ(outcome.exit_code, 2) << said;
    EXPECT_THAT(outcome.err, HasSubstr(said));
  }
}

TEST(Cluster, ViewsSayWhatFolderTheyNeed) {
  const TestFolder folder;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"top", "--once"}, std::vector<std::string>{"explain", "7"}}) {
    std::vector<std::string> command = {"cluster"};
    command.insert(command.end(), words.begin(), words.end());
    command.insert(command.end(), {"--state", folder.path()});
    const Outcome outcome = run_jige(command);
    EXPECT_EQ(outcome.exit_code, 3);
    EXPECT_THAT(outcome.err, HasSubstr("no such file; give the folder of a jige cluster run"));
  }
}

TEST(Cluster, ExplainGivesTheLinesAboutAJobAsJson) {
  const TestFolder folder;
  const std::string about = R"({"cluster_s":1.0,"event":"wait","job":7,"text":"no GPU is free"})"
                            "\n"
                            R"({"cluster_s":3.0,"event":"start","job":7})"
                            "\n";
  ASSERT_TRUE(
      write_file_atomic(folder / "decisions.jsonl", R"({"cluster_s":0.5,"event":"wait","job":77})"
                                                    "\n" +
                                                        about));
  const std::vector<std::string> explain = {"cluster", "explain", "7", "--state", folder.path()};
  EXPECT_THAT(run_jige(explain).out, HasSubstr("waits: no GPU is free"));
  std::vector<std::string> lines = explain;
  lines.push_back("--json");
  EXPECT_EQ(run_jige(lines).out, about);
  lines[2] = "8";
  expect_error(run_jige(lines), 3, {"nothing about job 8"});
}

// The published baselines beside our own on one trace, on a drawn one (its tables are not ours).
TEST(Cluster, ComparesWithPublishedBaselines) {
  const std::string fixtures = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/cluster/";
  const TestFolder folder;
  std::vector<std::string> words = {"cluster",
                                    "compare",
                                    "--policies",
                                    "published-las,las,greedy",
                                    "--base",
                                    "las",
                                    "--cluster",
                                    "deepshare",
                                    "--trace",
                                    fixtures + "trace.json",
                                    "--contention",
                                    "table",
                                    "--table",
                                    fixtures + "shares.csv",
                                    "--loads",
                                    "1",
                                    "--seeds",
                                    "1",
                                    "--trim",
                                    "0",
                                    "--json",
                                    "--html",
                                    folder / "page.html"};
  EXPECT_EQ(run_jige(words).exit_code, 2);  // samples without rates
  words.insert(words.end(), {"--rates", fixtures + "rates.csv"});
  const Outcome outcome = run_jige(words);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonLines lines = outcome.json_lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0]["scene"].get<std::string>(), HasSubstr("samples traced"));
  EXPECT_EQ(lines[1]["policy"], "published-las");
  // Its own figure leaves queueing out; beside it stands what its users waited.
  EXPECT_GT(lines[1]["jct_mean_s"]["mean"], lines[1]["service_mean_s"]["mean"]);
  EXPECT_GT(lines[1]["jct_mean_s"]["mean"], lines[2]["jct_mean_s"]["mean"]);
  const Outcome without =
      run_jige({"cluster", "simulate", "--policy", "published-las", "--jobs", "5"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_THAT(without.err, HasSubstr("needs --trace-format deepshare"));
}

TEST(Cluster, SharesGpusWhereAskedTo) {
  const TestFolder folder;
  const std::string pairs = folder / "pairs.csv";
  ASSERT_TRUE(write_file_atomic(
      pairs, ",\"bert,1,1\",\"vgg,1,1\"\n\"bert,1,1\",0.6,0.9\n\"vgg,1,1\",0.8,0.6\n"));
  std::vector<std::string> words = small(
      {"cluster", "simulate", "--policy", "srtf", "--load", "1.1", "--models", "all", "--json"});
  const Outcome alone = run_jige(words);
  words.insert(words.end(), {"--colocate", pairs});
  const Outcome shared = run_jige(words);
  ASSERT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_EQ(shared.json()["finished"], 60);
  EXPECT_THAT(shared.json()["scene"].get<std::string>(), HasSubstr("share GPUs"));
  EXPECT_NE(shared.json()["jct_s"], alone.json()["jct_s"]);
}

TEST(Cluster, TrainsAPolicyThatRuns) {
  const TestFolder folder;
  const std::string policy = folder / "policy.json";
  const Outcome trained =
      run_jige(small({"cluster", "train-policy", "--iterations", "2", "--episodes", "1", "--json",
                      "--out", policy, "--svg", folder / "curve.svg"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.json_lines().size(), 2u);
  EXPECT_TRUE(read_file(folder / "curve.svg"));
  const Outcome used = run_jige(
      small({"cluster", "simulate", "--policy", "learned", "--learned", policy, "--json"}));
  EXPECT_EQ(used.exit_code, 0) << used.err;
  const std::string other = folder / "other.json";
  const Outcome published =
      run_jige(small({"cluster", "train-policy", "--iterations", "1", "--episodes", "1", "--reward",
                      "published", "--quiet", "--out", other}));
  ASSERT_EQ(published.exit_code, 0) << published.err;
  const Outcome both =
      run_jige(small({"cluster", "compare", "--policies", "greedy,learned:ours,learned:theirs",
                      "--base", "greedy", "--learned", "ours=" + policy + ",theirs=" + other,
                      "--loads", "0.9", "--seeds", "2", "--json"}));
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(both.json_lines().size(), 4u);
  const Outcome unknown =
      run_jige(small({"cluster", "simulate", "--policy", "learned:mine", "--learned", policy}));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--learned names no \"mine\""));
  ASSERT_TRUE(write_file_atomic(policy, "{\"jige_policy\": 7}"));
  EXPECT_EQ(run_jige(small({"cluster", "simulate", "--learned", policy})).exit_code, 3);
}

TEST(Cluster, ASignalLeavesThePolicySoFar) {
  const TestFolder folder, streams;
  const std::string policy = folder / "policy.json";
  Process process(small({"cluster", "train-policy", "--iterations", "100000", "--episodes", "1",
                         "--json", "--out", policy}),
                  streams.path());
  const std::string out = streams / "out";
  while (process.running() && (!exists(out) || read_text(out).empty())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  process.send(SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("policy.json has the policy so far"));
  const Outcome used = run_jige(
      small({"cluster", "simulate", "--policy", "learned", "--learned", policy, "--json"}));
  EXPECT_EQ(used.exit_code, 0) << used.err;
}

// Whose jobs it would release, since what is not there gives no sign of life.
TEST(Cluster, TheDeadManTimerRefusesAFolderThatNoSchedulerUsed) {
  const TestFolder folder;
  const Outcome outcome =
      run_jige({"cluster", "dead-man", "--state", folder.path(), "--after", "0.5"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err,
              HasSubstr("/heartbeat: no such file; give the folder of a jige cluster"));
}

}  // namespace
}  // namespace jige::integration
