#include "cluster/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/test_fuzz_rounds.h"
#include "cluster/cluster_test_support.h"
#include "cluster/model_catalogue.h"
#include "cluster/schedule_report.h"
#include "cluster/time_series.h"
#include "cluster/trace_reader.h"

namespace jige::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WorkloadOptions options_of(double load, uint64_t seed) {
  WorkloadOptions options{.job_count = 500, .load = load, .seed = seed};
  options.sizes = *parse_sizes("philly", "test");
  options.models = *model_mix("all", "test");
  return options;
}

TEST(ClusterWorkload, MeetsItsLoadAndKeepsItsJobs) {
  const ClusterSpec spec = cluster_of(2, 4, 8);
  const Workload half = make_workload(options_of(0.5, 3), spec);
  const Workload full = make_workload(options_of(1.0, 3), spec);
  EXPECT_NEAR(offered_load(half, spec), 0.5, 1e-6);
  EXPECT_NEAR(offered_load(full, spec), 1.0, 1e-6);
  for (size_t i = 0; i < half.jobs.size(); ++i) {
    EXPECT_EQ(half.jobs[i].iterations, full.jobs[i].iterations);
    EXPECT_EQ(half.jobs[i].gpus, full.jobs[i].gpus);
    EXPECT_NEAR(static_cast<double>(half.jobs[i].arrival_ns),
                2.0 * static_cast<double>(full.jobs[i].arrival_ns), 4);
  }
  EXPECT_NE(make_workload(options_of(0.5, 4), spec).jobs[0].iterations, half.jobs[0].iterations);
  EXPECT_THAT(half.provenance, HasSubstr("assumptions"));
}

TEST(ClusterWorkload, LengthsAreTimesAlone) {
  const ClusterSpec spec = cluster_of(2, 4, 8);
  WorkloadOptions options = options_of(0.5, 3);
  options.lengths = *parse_lengths("600", "test");
  for (const Job& job : make_workload(options, spec).jobs) {
    EXPECT_NEAR(job.iterations * ideal_iteration_ns(job, spec), 600e9, 1);
  }
}

TEST(ClusterWorkload, FixedShapesCanRun) {
  const ClusterSpec spec = cluster_of(2, 4, 8);
  WorkloadOptions options = options_of(0.5, 3);
  options.fixed_share = 0.5;
  int fixed = 0, several = 0;
  for (const Job& job : make_workload(options, spec).jobs) {
    fixed += job.nodes > 1;
    several += job.gpus > 1;
    EXPECT_EQ(why_never(job, spec), "");
  }
  EXPECT_NEAR(static_cast<double>(fixed) / several, 0.5, 0.12);
}

TEST(ClusterWorkload, DrawsWhatIsAsked) {
  Rng rng(1);
  const auto mean_of = [&](const char* text) {
    const LengthDistribution lengths = *parse_lengths(text, "test");
    double sum = 0;
    for (int i = 0; i < 20'000; ++i) sum += lengths.draw_s(rng);
    return sum / 20'000;
  };
  EXPECT_EQ(mean_of("600"), 600);
  EXPECT_NEAR(mean_of("uniform:100:300"), 200, 3);
  EXPECT_NEAR(mean_of("exp:100"), 100, 4);
  EXPECT_NEAR(mean_of("lognormal:100:0.5"), 100 * std::exp(0.125), 3);
  WorkloadOptions bursts = options_of(0.5, 1);
  bursts.burst = 5;
  const Workload workload = make_workload(bursts, cluster_of(2, 4, 8));
  int together = 0;
  for (size_t i = 1; i < workload.jobs.size(); ++i) {
    together += workload.jobs[i].arrival_ns == workload.jobs[i - 1].arrival_ns;
  }
  EXPECT_NEAR(together / 499.0, 0.8, 0.06);
}

TEST(ClusterWorkload, RefusesWhatItCannotRead) {
  for (const char* text : {"", "abc", "0", "-5", "exp", "exp:0", "uniform:5", "uniform:9:3",
                           "lognormal:10", "lognormal:10:99", "1e99", "exp:1:2"}) {
    const auto lengths = parse_lengths(text, "--lengths");
    ASSERT_FALSE(lengths) << text;
    EXPECT_THAT(lengths.error().message, HasSubstr("--lengths"));
  }
  for (const char* text : {"", "x", "0", "2.5", "4:0", "4:1:1", "4:-1", "1,,2"}) {
    ASSERT_FALSE(parse_sizes(text, "--sizes")) << text;
  }
  EXPECT_EQ(parse_sizes("4:2,8", "--sizes")->size(), 2u);
  for (const char* text : {"", "8", "8x8", "0x1x1", "8x8x8@", "8x8x8@0", "8x8x8/0", "fat-tree:3",
                           "fat-tree:999", "8x8x8 ", "99999x999x999"}) {
    const auto spec = parse_cluster(text, "--cluster");
    ASSERT_FALSE(spec) << text;
    EXPECT_THAT(spec.error().message, HasSubstr("--cluster"));
  }
  EXPECT_EQ(parse_cluster("fat-tree:4", "test")->node_count(), 16);
  EXPECT_EQ(parse_cluster("deepshare", "test")->gpu_count(), 32);
  EXPECT_EQ(parse_cluster("2x3x4@40/2", "test")->uplink_bytes_per_s(), 7.5e9);
}

TEST(Traffic, LoadsFollowTheFormulas) {
  ClusterSpec spec = cluster_of(2, 2, 2);
  Job job = plain_job(0, 4, 1);
  job.bytes = {8, 0, 0};
  // Three nodes, two leaves: 2 * 2/3 * 8 on three cards and both uplinks.
  const auto ring = traffic(job, 0, {{0, 2}, {1, 1}, {2, 1}}, spec);
  ASSERT_EQ(ring.size(), 5u);
  for (const LinkLoad& load : ring) EXPECT_DOUBLE_EQ(load.bytes, 32.0 / 3);
  job.bytes = {0, 8, 0};
  EXPECT_DOUBLE_EQ(traffic(job, 0, {{0, 2}, {1, 2}}, spec)[0].bytes, 12);
  EXPECT_EQ(traffic(job, 0, {{0, 2}, {1, 2}}, spec).size(), 2u);
  job.bytes = {0, 0, 8};
  const auto all = traffic(job, 0, {{0, 2}, {1, 1}, {2, 1}}, spec);
  EXPECT_DOUBLE_EQ(all[0].bytes, 2 * 8 * 0.5);  // two GPUs to two others
  EXPECT_DOUBLE_EQ(all[1].bytes, 8 * 0.75);
  EXPECT_DOUBLE_EQ(all[3].bytes, 3 * 8 * 0.25);  // leaf of three GPUs
  EXPECT_TRUE(traffic(job, 0, {{0, 4}}, spec).empty());
}

TEST(Traffic, HashedCrossingsCarryAsMuchAsEvenOnes) {
  ClusterSpec spec = cluster_of(3, 2, 2);
  spec.spine_count = 4;
  Job job = plain_job(0, 6, 1);
  job.bytes = {10, 0, 3};
  const Placement placement = {{0, 2}, {2, 2}, {4, 2}};
  const auto sum_up = [&](Ecmp ecmp) {
    spec.ecmp = ecmp;
    double sum = 0;
    for (const LinkLoad& load : traffic(job, 5, placement, spec)) {
      EXPECT_LT(load.link, spec.link_count());
      const bool down = ecmp == Ecmp::kHash && (load.link - spec.node_count()) % 2 == 1;
      if (load.link >= spec.node_count() && !down) sum += load.bytes;
    }
    return sum;
  };
  EXPECT_NEAR(sum_up(Ecmp::kHash), sum_up(Ecmp::kSplit), 1e-9);
}

Result<Workload> read(TraceFormat format, const std::string& text) {
  return read_trace(text, "t", {.format = format, .models = {1, 0, 0, 0, 0, 0, 0, 0, 0}},
                    cluster_of(2, 4, 8));
}

TEST(TraceReader, ReadsEachFormat) {
  const auto gavel = read(TraceFormat::kGavel,
                          "ResNet-18 (batch size 64)\tpython x\t-n\t1\t1000\t50.5\t2\n"
                          "Mystery\tpython y\t-n\t0\t10\t40.5\t1\r\n");
  ASSERT_TRUE(gavel) << gavel.error().message;
  ASSERT_EQ(gavel->jobs.size(), 2u);
  EXPECT_EQ(gavel->jobs[0].arrival_ns, 0);  // sorted, from 0 on
  EXPECT_EQ(gavel->jobs[1].arrival_ns, 10 * kSecond);
  EXPECT_EQ(gavel->jobs[1].iterations, 1000);
  EXPECT_EQ(gavel->models[static_cast<size_t>(gavel->jobs[1].model)], "resnet");
  EXPECT_THAT(gavel->provenance, HasSubstr("models and steps assigned"));
  EXPECT_THAT(gavel->provenance,
              HasSubstr("models of 1 jobs as the trace has them, of 1 assigned"));

  const auto newer = read(TraceFormat::kGavel, "LM (batch size 5)\tc\t-n\t0\t10\t4\t1.0\t-1\t7\n");
  ASSERT_TRUE(newer) << newer.error().message;
  EXPECT_EQ(newer->jobs[0].gpus, 4);

  const auto muri = read(TraceFormat::kMuri,
                         "job_id,num_gpu,submit_time,iterations,model_name,duration\n"
                         "7,8,2000,99,vgg16,60000\n");
  ASSERT_TRUE(muri) << muri.error().message;
  EXPECT_EQ(muri->jobs[0].name, "7");
  EXPECT_NEAR(muri->jobs[0].iterations * ideal_iteration_ns(muri->jobs[0], cluster_of(2, 4, 8)),
              60e9, 1);
  EXPECT_THAT(muri->provenance, HasSubstr("arrivals and GPUs and lengths traced"));

  const auto tiresias =
      read(TraceFormat::kTiresias,
           "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\r\n"
           "1,4,0,10,resnet50,300,0\r\n2,2,60,10,bert,100,60\r\n");
  ASSERT_TRUE(tiresias) << tiresias.error().message;
  EXPECT_EQ(tiresias->jobs[1].arrival_ns, 60 * kSecond);

  const auto alibaba =
      read(TraceFormat::kAlibaba,
           "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
           "deletion_time,scheduled_time\n"
           "a,1,1,1,500,,LS,Running,100,900,200\nb,1,1,0,0,,LS,Running,100,900,200\n"
           "c,1,1,8,1000,\"V100M16,V100\",LS,Pending,100,900,\n");
  ASSERT_TRUE(alibaba) << alibaba.error().message;
  EXPECT_EQ(alibaba->jobs.size(), 1u);
  EXPECT_EQ(alibaba->skipped, 2);

  const auto swf = read(TraceFormat::kSwf,
                        "; a comment\n1 0 5 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1\n"
                        "  2 10 5 -1 4 -1 -1 4 200 -1 0 1 1 -1 1 -1 -1 -1\n"
                        "3 20 5 50 -1 -1 -1 2 200 -1 1 1 1 -1 1 -1 -1 -1\n");
  ASSERT_TRUE(swf) << swf.error().message;
  ASSERT_EQ(swf->jobs.size(), 2u);
  EXPECT_EQ(swf->jobs[1].gpus, 2);
  EXPECT_EQ(swf->skipped, 1);
}

TEST(TraceReader, NamesLineAndFieldOfWhatIsWrong) {
  struct Case {
    TraceFormat format;
    std::string text;
    const char* says;
  };
  const std::string head = "num_gpu,submit_time,duration,model_name\n";
  const Case cases[] = {
      {TraceFormat::kGavel, "a\tb\tc\t0\t10\t0\t1\na\tb\tc\t0\tten\t0\t1\n",
       "t:2: field total_steps: \"ten\""},
      {TraceFormat::kGavel, "a\tb\tc\n", "t:1: has 3 fields; gavel has 7"},
      {TraceFormat::kGavel, "a\tb\tc\t0\t10\t0\t1.5\n", "field scale_factor: 1.5 must be a whole"},
      {TraceFormat::kTiresias, head + "1,0,5,x\n2,-1,5,x\n", "t:3: field submit_time: \"-1\""},
      {TraceFormat::kTiresias, head + "1,0,nan,x\n", "field duration: \"nan\""},
      {TraceFormat::kTiresias, head + "1,1e300,5,x\n", "field submit_time"},
      {TraceFormat::kTiresias, "num_gpu,submit_time\n", "lacks the columns duration model_name"},
      {TraceFormat::kSwf, "1 0 5\n", "has 3 fields; swf has 18"},
      {TraceFormat::kSwf, "; nothing\n", "holds no job"},
      {TraceFormat::kTiresias, "", "holds no job"}};
  for (const Case& c : cases) {
    const auto result = read(c.format, c.text);
    ASSERT_FALSE(result) << c.says;
    EXPECT_EQ(result.error().code, Code::kCorrupt);
    EXPECT_THAT(result.error().message, HasSubstr(c.says));
  }
}

TEST(TraceReader, SurvivesDamage) {
  const std::string good[kTraceFormatCount] = {
      "ResNet-18\tc\t-n\t1\t1000\t50.5\t2\nLM\tc\t-n\t0\t10\t60\t1\n",
      "num_gpu,submit_time,duration,model_name,iteration_time\n8,2000,60000,vgg16,5\n1,3000,5,a,"
      "1\n",
      "num_gpu,submit_time,duration,model_name\n8,2000,600,vgg16\n1,3000,5,a\n",
      "num_gpu,creation_time,deletion_time,scheduled_time\n1,100,900,200\n8,1,9,2\n",
      "1 0 5 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1\n2 9 5 100 4 -1 -1 4 2 -1 1 1 1 -1 1 -1 -1 "
      "-1\n"};
  const ClusterSpec spec = cluster_of(1, 2, 4);
  int read_well = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(3000); ++seed) {
    Rng rng(derive_key(seed, "trace damage"));
    const auto format = static_cast<TraceFormat>(seed % kTraceFormatCount);
    std::string text = good[seed % kTraceFormatCount];
    EXPECT_EQ(*guess_trace_format(text, "t"), format);
    for (uint64_t i = 0, count = 1 + rng.below(4); i < count; ++i) {
      const size_t at = rng.below(text.size());
      static constexpr std::string_view kBytes = "019-.,\te\n\"; x";
      if (rng.below(2) == 0)
        text[at] = kBytes[rng.below(kBytes.size())];
      else
        text.erase(at, rng.below(5));
    }
    (void)guess_trace_format(text, "t");
    const auto workload = read_trace(text, "t", {.format = format, .models = {1}}, spec);
    if (!workload) {
      EXPECT_FALSE(workload.error().message.empty());
      continue;
    }
    ++read_well;
    auto policy = policy_of("srtf");
    const auto result = simulate(spec, *workload, make_no_contention(spec), *policy, {});
    EXPECT_TRUE(result || result.error().code == Code::kExhausted);
  }
  EXPECT_GT(read_well, 100);
}

constexpr const char* kTable =
    ",\"MoE,2,2\",\"DLRM,2,2\"\n\"MoE,2,2\",0.5,0.9\n\"DLRM,2,2\",0.2,1.0\n";

TEST(SlowdownTable, ReadsAndRefuses) {
  const auto table = SlowdownTable::parse(kTable, "t");
  ASSERT_TRUE(table) << table.error().message;
  const int32_t moe = table->type_of("MoE", 2, 2), dlrm = table->type_of("DLRM", 2, 2);
  EXPECT_EQ(table->share(moe, dlrm), 0.9);
  EXPECT_EQ(table->share(dlrm, moe), 0.2);
  EXPECT_EQ(table->type_of("MoE", 4, 2), -1);
  EXPECT_THAT(table->models(), ElementsAre("DLRM", "MoE"));
  for (const char* bad :
       {"", "x", ",\"A,1,1\"\n", ",\"A,1\"\n\"A,1\",1\n", ",\"A,1,1\"\n\"A,1,1\",x\n",
        ",\"A,1,1\"\n\"B,1,1\",1\n", ",\"A,1,1\"\n\"A,1,1\",1,2\n", ",\"A,1,1\"\n\"A,1,1\",-1\n",
        ",\"A,1,1\"\n\"A,1,1\",1\n\"A,1,1\",1\n",
        ",\"A,1,1\",\"A,1,1\"\n\"A,1,1\",1,1\n\"B,1,1\",1,1\n"}) {
    const auto result = SlowdownTable::parse(bad, "t");
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().code, Code::kCorrupt);
    EXPECT_THAT(result.error().message, HasSubstr("t"));
  }
}

// MoE beside DLRM runs at 0.9, DLRM beside MoE at the floor of 0.35, both of two seconds... and one
// on a single node is not slowed.
TEST(SlowdownTable, SlowsPairsThatShareANode) {
  const ClusterSpec spec = cluster_of(1, 2, 4);
  std::vector<Job> jobs = {plain_job(0, 2, 90), plain_job(0, 2, 35), plain_job(0, 1, 50)};
  jobs[0].nodes = jobs[1].nodes = 2;
  jobs[1].model = 1;
  Workload workload = workload_of(jobs);
  workload.models = {"MoE", "DLRM"};
  auto policy = policy_of("fifo/pack");
  auto result =
      simulate(spec, workload,
               make_table_contention(spec, *SlowdownTable::parse(kTable, "t"), workload.models),
               *policy, {});
  ASSERT_TRUE(result);
  const std::vector<double> ends = ends_s(*result);
  EXPECT_NEAR(ends[1], 100, 1e-6);
  EXPECT_NEAR(ends[0], 100, 1e-6);
  EXPECT_EQ(ends[2], 50);
}

TEST(TimeSeries, KeepsTheAmountWhateverTheSpan) {
  TimeSeries series(10, 4);
  series.add(5, 15, 100);
  EXPECT_THAT(series.amounts(), ElementsAre(50, 50));
  series.add(60, 80, 40);
  EXPECT_EQ(series.width_ns(), 20);
  EXPECT_THAT(series.amounts(), ElementsAre(100, 0, 0, 40));
  EXPECT_THAT(series.at_width(40), ElementsAre(100, 40));
  series.add(1000, 1001, 1);
  EXPECT_DOUBLE_EQ(series.total(), 141);
  EXPECT_LE(series.amounts().size(), 4u);
}

TEST(ScheduleReport, CountsQueueingAndNeverLess) {
  const ClusterSpec spec = cluster_of(1, 1, 1);
  const auto result = run(
      spec, workload_of({plain_job(0, 1, 10), plain_job(0, 1, 30), plain_job(0, 2, 1)}), "fifo");
  const ScheduleReport report = make_schedule_report(result, spec, 0);
  EXPECT_EQ(report.finished, 2);
  EXPECT_EQ(report.refused, 1);
  EXPECT_DOUBLE_EQ(report.jct_mean_s, 25);  // 10 and 40
  EXPECT_DOUBLE_EQ(report.service_mean_s, 20);
  EXPECT_DOUBLE_EQ(report.wait_mean_s, 5);
  EXPECT_DOUBLE_EQ(report.makespan_s, 40);
  EXPECT_DOUBLE_EQ(report.useful, 1);
  EXPECT_DOUBLE_EQ(report.jct_p50_s, 25);
  EXPECT_NEAR(report.jain, 1.75 * 1.75 / (2 * (1 + 0.75 * 0.75)), 1e-12);
}

TEST(ScheduleReport, IntervalsAreStudents) {
  const std::vector<double> values = {1, 2, 3, 4, 5};
  EXPECT_DOUBLE_EQ(estimate(values).mean, 3);
  EXPECT_NEAR(estimate(values).half_width, 2.776 * std::sqrt(2.5 / 5), 1e-12);
  EXPECT_TRUE(std::isinf(estimate(std::vector<double>{1}).half_width));
  const std::vector<double> base = {2, 4, 6, 8, 10};
  EXPECT_DOUBLE_EQ(estimate_change(values, base).mean, -0.5);
  EXPECT_DOUBLE_EQ(estimate_change(values, base).half_width, 0);
}

}  // namespace
}  // namespace jige::cluster
