#include "cluster/published_rounds.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>

#include "base/file.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "cluster/cluster_test_support.h"
#include "cluster/schedule_report.h"
#include "cluster/trace_fields.h"

namespace jige::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kRates = ",rate\n\"A,2,2\",10\n\"A,4,2\",20\n\"A,4,4\",12\n";
constexpr const char* kHalf =
    ",\"A,2,2\",\"A,4,2\",\"A,4,4\"\n\"A,2,2\",0.5,0.5,0.5\n\"A,4,2\",0.5,0.5,0.5\n"
    "\"A,4,4\",0.5,0.5,0.5\n";

RateTable rates_of(std::string_view text) {
  auto rates = RateTable::parse(text, "rates");
  EXPECT_TRUE(rates) << rates.error().message;
  return std::move(*rates);
}

SlowdownTable table_of(std::string_view text) {
  auto table = SlowdownTable::parse(text, "table");
  EXPECT_TRUE(table) << table.error().message;
  return std::move(*table);
}

SimulationResult rounds_of(const ClusterSpec& spec, const std::vector<SampleJob>& jobs,
                           const std::string& policy) {
  auto result =
      simulate_rounds(spec, jobs, rates_of(kRates), table_of(kHalf), *round_rules(policy));
  EXPECT_TRUE(result) << result.error().message;
  return std::move(*result);
}

std::vector<int64_t> held_rounds(const SimulationResult& result) {
  std::vector<int64_t> rounds;
  for (const JobOutcome& job : result.outcomes) rounds.push_back(job.held_ns / kSecond / 300);
  return rounds;
}

std::vector<int64_t> end_rounds(const SimulationResult& result) {
  std::vector<int64_t> rounds;
  for (const JobOutcome& job : result.outcomes) rounds.push_back(job.finish_ns / kSecond / 300);
  return rounds;
}

// Two nodes of two GPUs. Jobs 0 and 1 run beside each other at half speed, 1500 samples a round,
// and stay in front since they have the most time; job 2 holds up nobody but itself. When job 0
// leaves behind the fourth round, job 1 behind it gets nothing: it ends a round later, with four.
TEST(PublishedRounds, LasRunsWhatHasRunMost) {
  const std::vector<SampleJob> jobs = {
      {"0", "A", 2, 6000}, {"1", "A", 2, 6000}, {"2", "A", 4, 12000}};
  const SimulationResult result = rounds_of(cluster_of(1, 2, 2), jobs, "published-las");
  EXPECT_THAT(held_rounds(result), ElementsAre(4, 4, 2));
  EXPECT_THAT(end_rounds(result), ElementsAre(4, 5, 7));
}

// One job of two GPUs fits beside no other of four: the queue is gone through by the part done, so
// that all take turns, and the head holds up those that would fit.
TEST(PublishedRounds, SrtfTakesTurns) {
  const std::vector<SampleJob> jobs = {
      {"0", "A", 4, 12000}, {"1", "A", 4, 12000}, {"2", "A", 2, 3000}};
  const SimulationResult result = rounds_of(cluster_of(1, 2, 2), jobs, "published-srtf");
  // 0, 1, 2; then 0 and 1 again, each with 6000 of 12000.
  EXPECT_THAT(end_rounds(result), ElementsAre(4, 5, 3));
  EXPECT_EQ(result.outcomes[0].preemptions, 1);
}

TEST(PublishedRounds, FifoSkipsAndKeepsTheWorstShare) {
  const std::vector<SampleJob> jobs = {
      {"0", "A", 2, 9000}, {"1", "A", 4, 12000}, {"2", "A", 2, 1500}};
  const SimulationResult result = rounds_of(cluster_of(1, 2, 2), jobs, "published-fifo");
  // Job 2 leaves after one round; job 0 goes on at half speed all the same, 1500 a round.
  EXPECT_THAT(held_rounds(result), ElementsAre(6, 2, 1));
  EXPECT_THAT(end_rounds(result), ElementsAre(6, 8, 1));
  EXPECT_EQ(result.outcomes[0].preemptions, 0);
}

// Four nodes: 12 a second on all, 20 on two. Less than 300 samples left count as done.
TEST(PublishedRounds, WidestOrNarrowest) {
  const std::vector<SampleJob> jobs = {{"0", "A", 4, 12200}};
  EXPECT_THAT(held_rounds(rounds_of(cluster_of(1, 4, 2), jobs, "published-fifo")), ElementsAre(4));
  EXPECT_THAT(held_rounds(rounds_of(cluster_of(1, 4, 2), jobs, "published-fifo-narrow")),
              ElementsAre(2));
}

TEST(PublishedRounds, RefusesWhatCannotRun) {
  const auto result = simulate_rounds(cluster_of(1, 2, 2), {{"7", "B", 2, 1}}, rates_of(kRates),
                                      table_of(kHalf), {});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("job 7: no rate of B on 2 GPUs"));
  EXPECT_FALSE(round_rules("las"));
}

TEST(SampleTrace, ReadsAndRefuses) {
  const auto jobs = parse_sample_trace(
      R"({"3": {"model": "A", "gpu_demand": 4, "total_samples_to_train": 240.0},
          "1": {"model": "B", "gpu_demand": 2, "total_samples_to_train": 7}})",
      "t");
  ASSERT_TRUE(jobs) << jobs.error().message;
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[0].name, "3");  // the order of the file
  const auto narrow =
      to_workload({jobs->front()}, rates_of(kRates), Spread::kFewest, cluster_of(1, 4, 2), "t");
  ASSERT_TRUE(narrow) << narrow.error().message;
  EXPECT_EQ(narrow->jobs[0].nodes, 2);
  EXPECT_EQ(narrow->jobs[0].iterations, 12);
  const auto wide =
      to_workload({jobs->front()}, rates_of(kRates), Spread::kWidest, cluster_of(1, 4, 2), "t");
  EXPECT_EQ(wide->jobs[0].nodes, 4);
  EXPECT_EQ(wide->jobs[0].iterations, 20);
  for (const char* bad :
       {"[]", "{}", "{\"0\": 1}", "{\"0\": {\"model\": \"A\"}}",
        R"({"0": {"model": 1, "gpu_demand": 2, "total_samples_to_train": 1}})",
        R"({"0": {"model": "A", "gpu_demand": 0, "total_samples_to_train": 1}})",
        R"({"0": {"model": "A", "gpu_demand": 2, "total_samples_to_train": 0}})",
        R"({"0": {"model": "A", "gpu_demand": 2, "total_samples_to_train": 1})"}) {
    const auto result = parse_sample_trace(bad, "t");
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().code, Code::kCorrupt) << bad;
    EXPECT_THAT(result.error().message, HasSubstr("t"));
  }
  for (const char* bad : {"", ",r\n", ",r\nA,1\n", ",r\n\"A,2,2\",0\n", ",r\n\"A,2,2\",1,2\n",
                          ",r\n\"A,2,2\",1\n\"A,2,2\",1\n"}) {
    const auto result = RateTable::parse(bad, "r");
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().code, Code::kCorrupt);
  }
}

// Of the trace, the rates and the shares of two jobs beside each other.
TEST(SampleTrace, DamagedFilesAreRefusedOrGiveJobsThatEnd) {
  const std::string trace =
      R"({"3": {"model": "A", "gpu_demand": 4, "total_samples_to_train": 240.0},
          "1": {"model": "A", "gpu_demand": 2, "total_samples_to_train": 7}})";
  int workloads = 0, tables = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(6000); ++seed) {
    Mutator mutator(seed);
    const auto jobs = parse_sample_trace(seed % 2 ? mutator.mutate(trace) : trace, "trace.json");
    const auto rates = RateTable::parse(seed % 2 ? kRates : mutator.mutate(kRates), "rates.csv");
    if (jobs && rates) {
      const auto made = to_workload(*jobs, *rates, Spread::kWidest, cluster_of(1, 4, 2), "t");
      workloads += made.has_value();
      for (size_t i = 0; made && i < made->jobs.size(); ++i) {
        ASSERT_GT(made->jobs[i].iterations, 0) << seed;
        ASSERT_GE(made->jobs[i].nodes, 2) << seed;
      }
    }
    const auto table = SlowdownTable::parse(mutator.mutate(kHalf), "shares.csv");
    tables += table.has_value();
    ASSERT_TRUE(table || table.error().message.starts_with("shares.csv")) << seed;
  }
  EXPECT_GT(workloads, 100);
  EXPECT_GT(tables, 100);
}

std::string fixture(const std::string& name) {
  const auto text = read_file(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/cluster/" + name);
  EXPECT_TRUE(text) << name;
  return text ? *text : "";
}

std::vector<std::vector<std::string>> rows_of(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  Lines lines(text);
  while (lines.next()) {
    if (lines.number() > 1) rows.push_back(split_csv(lines.line()));
  }
  return rows;
}

const ClusterSpec kPublishedCluster = cluster_of(1, 4, 8);

// What the published scheduler itself made of a drawn trace (tests/tools/
// record_published_rounds.py): every job, to the second.
TEST(PublishedRounds, EqualThePublishedSchedulerOnDrawnJobs) {
  const auto jobs = parse_sample_trace(fixture("trace.json"), "trace.json");
  ASSERT_TRUE(jobs) << jobs.error().message;
  const RateTable rates = rates_of(fixture("rates.csv"));
  const SlowdownTable table = table_of(fixture("shares.csv"));
  std::string policy;
  std::vector<JobOutcome> outcomes;
  size_t compared = 0;
  for (const std::vector<std::string>& row : rows_of(fixture("drawn_outcomes.csv"))) {
    if (row[0] != policy) {
      policy = row[0];
      auto run = simulate_rounds(kPublishedCluster, *jobs, rates, table,
                                 *round_rules("published-" + policy));
      ASSERT_TRUE(run) << run.error().message;
      outcomes = run->outcomes;
    }
    const JobOutcome& job = outcomes[static_cast<size_t>(std::stoi(row[1]))];
    EXPECT_EQ(job.held_ns / kSecond, std::stoll(row[2])) << policy << " job " << row[1];
    EXPECT_EQ(job.finish_ns / kSecond, std::stoll(row[3])) << policy << " job " << row[1];
    ++compared;
  }
  EXPECT_EQ(compared, 4 * jobs->size());
}

TEST(PublishedRounds, RefusesJobsThatNeverEnd) {
  const RateTable rates = rates_of("type,rate\n\"A,2,2\",1\n\"B,2,2\",1e-300\n");
  const SlowdownTable table = table_of(",\"A,2,2\"\n\"A,2,2\",0.5\n");
  for (const char* model : {"A", "B"}) {
    const auto jobs = parse_sample_trace(
        fmt::format(
            R"({{"7": {{"model": "{}", "gpu_demand": 2, "total_samples_to_train": 1e15}}}})",
            model),
        "t");
    ASSERT_TRUE(jobs) << jobs.error().message;
    const auto run =
        simulate_rounds(kPublishedCluster, *jobs, rates, table, *round_rules("published-las"));
    ASSERT_FALSE(run);
    EXPECT_EQ(run.error().code, Code::kCorrupt);
    EXPECT_NE(run.error().message.find("job 7: 1e+15 samples"), std::string::npos);
  }
}

uint64_t checksum(const std::vector<SampleJob>& jobs, const SimulationResult& result) {
  uint64_t value = 0xcbf29ce484222325;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const JobOutcome& job = result.outcomes[i];
    for (const char c :
         fmt::format("{},{},{};", jobs[i].name, job.held_ns / kSecond, job.finish_ns / kSecond)) {
      value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
  }
  return value;
}

// The same on its own traces and tables, which are not ours to keep: JIGE_TEST_DEEPSHARE names a
// copy of its repository.
TEST(PublishedRounds, EqualThePublishedSchedulerOnItsTraces) {
  const char* checkout = std::getenv("JIGE_TEST_DEEPSHARE");
  if (!checkout) GTEST_SKIP() << "JIGE_TEST_DEEPSHARE names no copy of the published scheduler";
  const std::string folder = std::string(checkout) + "/scheduler/";
  const auto rates_text = read_file(folder + "jobs/isolated_thp.csv");
  const auto table_text = read_file(folder + "jobs/shared_thp_ratio.csv");
  ASSERT_TRUE(rates_text && table_text) << folder;
  const RateTable rates = rates_of(*rates_text);
  const SlowdownTable table = table_of(*table_text);
  for (const std::vector<std::string>& row : rows_of(fixture("published_outcomes.csv"))) {
    const auto text = read_file(folder + "traces/" + row[0]);
    ASSERT_TRUE(text) << row[0];
    const auto jobs = parse_sample_trace(*text, row[0]);
    ASSERT_TRUE(jobs) << jobs.error().message;
    const auto result = simulate_rounds(kPublishedCluster, *jobs, rates, table,
                                        *round_rules("published-" + row[1]));
    ASSERT_TRUE(result) << result.error().message;
    const ScheduleReport report = make_schedule_report(*result, kPublishedCluster, 0);
    EXPECT_EQ(report.finished, std::stoll(row[2])) << row[0];
    EXPECT_NEAR(report.service_mean_s, std::stod(row[3]), 1e-3) << row[0] << " " << row[1];
    EXPECT_NEAR(report.jct_mean_s, std::stod(row[4]), 1e-3) << row[0] << " " << row[1];
    EXPECT_NEAR(report.utilisation, std::stod(row[5]), 1e-5) << row[0] << " " << row[1];
    EXPECT_EQ(result->decisions, std::stoll(row[6])) << row[0] << " " << row[1];
    EXPECT_EQ(checksum(*jobs, *result), std::stoull(row[7], nullptr, 16)) << row[0] << row[1];
  }
}

}  // namespace
}  // namespace jige::cluster
