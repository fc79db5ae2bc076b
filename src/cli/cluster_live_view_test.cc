// What a person is shown of a scheduler at work: the story of a job, a picture of the cluster, and
// the check of a demonstration's logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "cli/cluster_demo_check.h"
#include "cli/cluster_explain.h"
#include "cli/cluster_frame.h"

namespace jige::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kLog =
    R"({"cluster_s":10,"event":"arrive","job":4,"text":"1 nodes x 2 GPUs"})"
    "\n"
    R"({"cluster_s":10,"event":"wait","job":4,"why":"room","text":"needs 2 GPUs"})"
    "\n"
    R"({"cluster_s":11,"event":"arrive","job":44,"text":"another"})"
    "\n"
    R"({"cluster_s":12,"event":"place","job":4,"nodes":["n1"],"gpus_per_node":2,"waited_s":2,)"
    R"("class":"late","class_text":"3.0 h too late","for_shape":true,)"
    R"("score":{"score":0.9,"progress":0.95,"loss_of_others":0.05,"slowed":1},)"
    R"("alternatives":[{"nodes":["n2"],"score":0.4,"progress":0.5,"loss_of_others":0.1,)"
    R"("slowed":2}],)"
    R"("evicted":[{"job":3,"left_s":500,"restart_s":30}],"earlier_s":500,"restart_cost_s":30})"
    "\n"
    R"({"cluster_s":12,"event":"preempt","job":3,"nodes":["n1"],"left_s":500,"restart_s":30})"
    "\n"
    R"({"cluster_s":12,"event":"action","step":"place","job":4,"nodes":["n1"],"error":"no"})"
    "\n"
    R"({"cluster_s":13,"event":"start","job":4,"seconds":0.7})"
    "\n"
    R"({"cluster_s":99,"event":"fin)";

TEST(ClusterExplain, TellsWhatWasChosenAndWhatItCost) {
  const auto lines = lines_about(kLog, 4, "log");
  EXPECT_EQ(lines.size(), 5u);
  EXPECT_THAT(
      explain_text(lines, 4),
      AllOf(HasSubstr("waits: needs 2 GPUs"), HasSubstr("placed on n1 (2 GPUs each) after 2 s"),
            HasSubstr("here: score 0.900: 95 % of its full speed"),
            HasSubstr("rather than n2: score 0.400"), HasSubstr("late: 3.0 h too late"),
            HasSubstr("for its shape: GPUs enough were there"),
            HasSubstr("evicted job 3, which had 8.33 min left"),
            HasSubstr("up to 8.33 min earlier for that, and 30 s of restarts"),
            HasSubstr("Slurm: place n1 failed: no"), HasSubstr("seen 0.70 s after its release"),
            Not(HasSubstr("another"))));
  const auto victim = lines_about(kLog, 3, "log");
  ASSERT_EQ(victim.size(), 2u);
  EXPECT_THAT(explain_text(victim, 3), AllOf(HasSubstr("evicted for job 4"),
                                             HasSubstr("loses n1 with 8.33 min of work left")));
  EXPECT_TRUE(lines_about(kLog, 5, "log").empty());
}

TEST(ClusterExplain, LeavesOutLinesThatWereCutShort) {
  const auto lines = lines_about("{\"job\":5,\n{\"job\":5}\n[{\"job\":5}]\n", 5, "log");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], (Json{{"job", 5}}));
}

TEST(ClusterExplain, DamagedLogsAreToldAsFarAsTheyGo) {
  set_log_level(LogLevel::kError);
  const std::string log =
      R"({"cluster_s":9,"event":"wait","job":4,"text":"\u001b[2J"})" + std::string("\n") + kLog;
  size_t told = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(1000); ++seed) {
    const auto lines = lines_about(Mutator(seed).mutate(log), 4, "log");
    const std::string text = explain_text(lines, 4);
    told += lines.size();
    ASSERT_EQ(text.find('\x1b'), std::string::npos) << seed;
  }
  EXPECT_GT(told, 1000u);
  set_log_level(LogLevel::kInfo);
}

TEST(ClusterFrame, DrawsNodesAndJobs) {
  const Json status = {
      {"decisions", 7},
      {"preemptions", 2},
      {"nodes",
       {{{"name", "n1"}, {"leaf", 0}, {"gpus", 4}, {"free", 1}, {"blocked", 0}},
        {{"name", "n2"}, {"leaf", 1}, {"gpus", 4}, {"free", 0}, {"blocked", 4}}}},
      {"jobs",
       {{{"job", 1}, {"name", "wa\x1b[2Jit"}, {"gpus", 8}, {"seen", "held"}, {"why", "no room"}},
        {{"job", 2},
         {"name", "run"},
         {"gpus", 3},
         {"seen", "running"},
         {"wanted", {"n1", "\x1b[2J"}},
         {"progress", 0.5}}}},
      {"refused", {{{"job", 3}, {"why", "array"}}}}};
  const std::string frame = render_cluster(status, 100, 200);
  EXPECT_THAT(frame, AllOf(HasSubstr("8 GPUs, 7 in use; 1 jobs run, 1 do not"),
                           HasSubstr("leaf 1  n1 [###.]"), HasSubstr("leaf 2  n2 [xxxx]"),
                           HasSubstr("n1,\\x1b[2J at 50 %"), HasSubstr("no room"),
                           HasSubstr("left alone: array"), Not(HasSubstr("\x1b"))));
  EXPECT_LT(frame.find("run  "), frame.find("no room"));
  const std::string small = render_cluster(status, 5, 20);
  EXPECT_EQ(std::count(small.begin(), small.end(), '\n'), 4);
  EXPECT_THAT(small, HasSubstr("more"));
  for (const Json& odd :
       {Json(), Json(3), Json::object(), Json{{"nodes", 3}, {"jobs", {1, "x"}}}}) {
    EXPECT_FALSE(render_cluster(odd, 40, 80).empty());
  }
  const std::string good = dump_json(status);
  for (uint64_t seed = 0; seed < fuzz_rounds(1000); ++seed) {
    const auto damaged = parse_json(Mutator(seed).mutate(good), "status");
    if (!damaged) continue;
    ASSERT_EQ(render_cluster(*damaged, 40, 80).find('\x1b'), std::string::npos) << seed;
  }
}

DemoJob job_of(int64_t id, int32_t gpus, std::string_view log) {
  auto stints = read_job_log(log, "log");
  EXPECT_TRUE(stints) << stints.error().message;
  return {.id = id, .gpus_per_node = gpus, .stints = std::move(*stints)};
}

TEST(DemoCheck, FindsNothingWrongWithGoodLogs) {
  const DemoFindings findings = check_demo_jobs(
      {job_of(1, 2,
              "10.5 start n[1-2] 0,1 0 0\n12.0 stop 1500000\n13.0 start n1 2,3 1 1500000\n"
              "14.0 end 2000000\n"),
       job_of(2, 4, "12.0 start n2 0,1,2,3 0 0\n15 end 5\n")},
      4, 20);
  EXPECT_EQ(findings.double_booked + findings.unfinished + findings.twice_ended, 0);
  EXPECT_EQ(findings.rolled_back_s_max, 0);
}

TEST(DemoCheck, FindsGpusGivenTwice) {
  // Too many on n2, though their numbers on the first node differ.
  EXPECT_EQ(check_demo_jobs({job_of(1, 3, "10 start n[1-2] 0,1,2 0 0\n12 end 5\n"),
                             job_of(2, 2, "11.9 start n2 0,1 0 0\n15 end 5\n")},
                            4, 20)
                .double_booked,
            1);
  // One number twice, though few are in use; the first never said that it stopped.
  EXPECT_EQ(check_demo_jobs({job_of(1, 1, "10 start n1 2 0 0\n"),
                             job_of(2, 1, "11 start n1 2 0 0\n15 end 5\n")},
                            4, 20)
                .double_booked,
            1);
}

TEST(DemoCheck, FindsLostJobsAndLostWork) {
  const DemoFindings findings = check_demo_jobs(
      {job_of(1, 1, "10 start n1 0 0 0\n12 stop 2000000\n13 start n1 0 1 500000\n"),
       job_of(2, 1, ""), job_of(3, 1, "1 start n3 0 0 0\n2 end 9\n3 start n3 0 1 0\n4 end 9\n")},
      4, 20);
  EXPECT_EQ(findings.unfinished, 2);
  EXPECT_EQ(findings.twice_ended, 1);
  EXPECT_DOUBLE_EQ(findings.rolled_back_s_max, 1.5);
  EXPECT_FALSE(read_job_log("10 stop 3\n", "log"));
  EXPECT_FALSE(read_job_log("x start n1 0 0 0\n", "log"));
  EXPECT_FALSE(read_job_log("10 start n[1 0 0 0\n", "log"));
  EXPECT_FALSE(read_job_log("10 start (null) 0 0 0\n", "log")) << "GPUs of no node";
  EXPECT_FALSE(read_job_log("10 start n1 1e300 0 0\n", "log"));
}

TEST(DemoCheck, DamagedLogsAreRefusedOrChecked) {
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(2000); ++seed) {
    auto stints = read_job_log(
        Mutator(seed).mutate("10.5 start n[1-2] 0,1 0 0\n12.0 stop 1500000\n13.0 start n1 2,3 1 "
                             "1500000\n14.0 end 2000000\n"),
        "log");
    if (!stints) continue;
    ++read;
    const DemoFindings findings =
        check_demo_jobs({{.id = 1, .gpus_per_node = 2, .stints = std::move(*stints)}}, 4, 20);
    ASSERT_GE(findings.unfinished, 0) << seed;
  }
  EXPECT_GT(read, 100);
}

TEST(DemoCheck, MeasuresFromTheLastReleaseBeforeAStart) {
  const auto latencies = start_latencies_s(
      R"({"event":"action","step":"place","job":1,"time_s":9.5,"took_s":0.1})"
      "\n"
      R"({"event":"action","step":"place","job":1,"time_s":12.9,"took_s":0.4})"
      "\n"
      R"({"event":"wait","job":1})"
      "\n",
      {job_of(1, 1, "10 start n1 0 0 0\n12 stop 1\n13.5 start n1 0 1 1\n14 end 2\n")});
  ASSERT_TRUE(latencies) << latencies.error().message;
  ASSERT_EQ(latencies->size(), 2u);
  EXPECT_NEAR((*latencies)[0], 0.6, 1e-9);
  EXPECT_NEAR((*latencies)[1], 1.0, 1e-9);
}

}  // namespace
}  // namespace jige::cli
