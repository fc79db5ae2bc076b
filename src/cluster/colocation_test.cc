#include "cluster/colocation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cluster/cluster_test_support.h"
#include "cluster/model_catalogue.h"
#include "cluster/workload.h"

namespace jige::cluster {
namespace {

using testing::ElementsAre;

// A keeps 0.6 beside B, B keeps 0.7 beside A; C and A keep half each.
constexpr const char* kPairs =
    ",\"A,1,1\",\"B,1,1\",\"C,1,1\"\n\"A,1,1\",0.5,0.6,0.5\n\"B,1,1\",0.7,0.5,0.5\n"
    "\"C,1,1\",0.5,0.5,0.5\n";

std::shared_ptr<const Colocation> pairs(const std::string& text, std::vector<std::string> models) {
  auto table = SlowdownTable::parse(text, "pairs");
  EXPECT_TRUE(table) << table.error().message;
  return std::make_shared<Colocation>(std::move(*table), std::move(models));
}

Job job_of(int32_t model, double arrival_s, double length_s, int32_t gpus = 1) {
  Job job = plain_job(arrival_s, gpus, length_s);
  job.model = model;
  return job;
}

SimulationResult run_shared(const ClusterSpec& spec, std::vector<Job> jobs,
                            const std::string& policy, bool shared = true) {
  Workload workload = workload_of(std::move(jobs));
  workload.models = {"A", "B", "C", "D"};
  SimulationOptions options;
  if (shared) options.colocation = pairs(kPairs, workload.models);
  auto result = simulate(spec, workload, make_no_contention(spec), *policy_of(policy), options);
  EXPECT_TRUE(result) << result.error().message;
  return std::move(*result);
}

const ClusterSpec kOneGpu = cluster_of(1, 1, 1);

TEST(Colocation, TwoShareAGpuAndEachKeepsItsShare) {
  EXPECT_THAT(ends_s(run_shared(kOneGpu, {job_of(0, 0, 60), job_of(1, 0, 70)}, "fifo")),
              ElementsAre(100, 100));
}

TEST(Colocation, IsOffByDefault) {
  EXPECT_THAT(ends_s(run_shared(kOneGpu, {job_of(0, 0, 60), job_of(1, 0, 70)}, "fifo", false)),
              ElementsAre(60, 130));
}

// A and C would keep 1.0 together, which is not worth it, and D was not measured.
TEST(Colocation, NeedsCompatibleJobs) {
  EXPECT_THAT(ends_s(run_shared(kOneGpu, {job_of(0, 0, 60), job_of(2, 0, 70)}, "fifo")),
              ElementsAre(60, 130));
  EXPECT_THAT(ends_s(run_shared(kOneGpu, {job_of(0, 0, 60), job_of(3, 0, 70)}, "fifo")),
              ElementsAre(60, 130));
}

// B has the GPU for itself from 100 to 110, where it has 63 left; then another A joins it. What is
// free at the end is a whole GPU: D gets it.
TEST(Colocation, APartnerGoesOnAlone) {
  const auto result = run_shared(
      kOneGpu, {job_of(0, 0, 60), job_of(1, 0, 143), job_of(0, 110, 54), job_of(3, 111, 5)},
      "fifo");
  EXPECT_THAT(ends_s(result), ElementsAre(100, 200, 200, 205));
  EXPECT_EQ(result.outcomes[1].held_ns, 200 * kSecond);
}

// A of two GPUs takes part of a node; who joins it has as many.
TEST(Colocation, JoinsJobsOfItsSize) {
  const auto result = run_shared(
      cluster_of(1, 1, 3),
      {job_of(0, 0, 60, 2), job_of(0, 0, 30), job_of(1, 0, 70, 2), job_of(1, 0, 7)}, "fifo+skip");
  // Job 3 joins job 1 for 10 s, in which that does 6 of 30.
  EXPECT_THAT(ends_s(result), ElementsAre(100, 34, 100, 10));
}

// The short job stops both that share the GPU; both come back, and nothing is lost.
TEST(Colocation, PreemptionStopsBoth) {
  const auto result =
      run_shared(kOneGpu, {job_of(0, 0, 1000), job_of(1, 0, 2000), job_of(3, 10, 5)}, "srtf");
  const std::vector<double> ends = ends_s(result);
  EXPECT_NEAR(ends[2], 15, 1e-6);
  EXPECT_NEAR(ends[0], 15 + 994 / 0.6, 1e-5);
  EXPECT_NEAR(ends[1], ends[0] + 2000 - 7 - 0.7 * 994 / 0.6, 1e-5);
  EXPECT_EQ(result.outcomes[0].preemptions, 1);
  EXPECT_EQ(result.outcomes[1].preemptions, 1);
}

// What the network leaves and what the GPU leaves are multiplied.
TEST(Colocation, MultipliesWithTheNetwork) {
  const char* network = ",\"A,2,2\",\"B,2,2\"\n\"A,2,2\",1,0.9\n\"B,2,2\",0.5,1\n";
  const ClusterSpec spec = cluster_of(1, 2, 1);
  Workload workload = workload_of({job_of(0, 0, 54, 2), job_of(1, 0, 35, 2)});
  workload.models = {"A", "B"};
  auto result =
      simulate(spec, workload,
               make_table_contention(spec, *SlowdownTable::parse(network, "t"), workload.models),
               *policy_of("fifo"), {.colocation = pairs(kPairs, workload.models)});
  ASSERT_TRUE(result);
  EXPECT_NEAR(ends_s(*result)[0], 100, 1e-6);  // 54 / (0.9 * 0.6)
  EXPECT_NEAR(ends_s(*result)[1], 100, 1e-6);  // 35 / (0.5 * 0.7)
}

// Drawn jobs under every kind of policy: all end, nobody gets more than his own speed, and GPUs are
// never given twice beyond partners (ClusterState and FreeGpus check each step).
TEST(Colocation, HoldsUnderEveryPolicy) {
  for (const char* policy : {"fifo+easy", "srtf", "las", "ftf", "srtf/contention", "greedy"}) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const ClusterSpec spec = cluster_of(2, 2, 4);
      WorkloadOptions options{.job_count = 150, .load = 1.1, .seed = seed};
      options.sizes = {{1, 2}, {2, 2}, {4, 1}, {8, 1}};
      options.models = *model_mix("all", "test");
      Workload workload = make_workload(options, spec);
      std::string text;
      for (const std::string& name : workload.models) text += fmt::format(",\"{},1,1\"", name);
      text += "\n";
      for (const std::string& name : workload.models) {
        text += fmt::format("\"{},1,1\"", name);
        for (size_t i = 0; i < workload.models.size(); ++i) text += i % 2 == 0 ? ",0.7" : ",0.45";
        text += "\n";
      }
      auto result = simulate(spec, workload, make_link_contention(spec, {}), *policy_of(policy),
                             {.colocation = pairs(text, workload.models)});
      ASSERT_TRUE(result) << policy << ": " << result.error().message;
      for (const JobOutcome& job : result->outcomes) {
        ASSERT_GE(job.finish_ns, 0) << policy;
        // Uneven places can be a little better than the ideal one.
        EXPECT_GE(static_cast<double>(job.held_ns), job.alone_ns * 0.9) << policy;
      }
    }
  }
}

}  // namespace
}  // namespace jige::cluster
