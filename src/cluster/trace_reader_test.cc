// Files as they are published: heads, comments, line ends and gaps as the real ones have them, with
// jobs of our own.
#include "cluster/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/cluster_test_support.h"

namespace jige::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Workload read_guessed(const std::string& text, TraceFormat expected) {
  const auto format = guess_trace_format(text, "t");
  EXPECT_TRUE(format) << format.error().message;
  EXPECT_EQ(*format, expected);
  auto read = read_trace(text, "t", {.format = *format, .models = {1, 0, 0, 0, 0, 0, 0, 0, 0}},
                         cluster_of(2, 4, 8));
  EXPECT_TRUE(read) << read.error().message;
  return std::move(*read);
}

std::vector<int32_t> gpus_of(const Workload& workload) {
  std::vector<int32_t> gpus;
  for (const Job& job : workload.jobs) gpus.push_back(job.gpus);
  return gpus;
}

// A head of comments in an order of their own, columns aligned with blanks, gaps of -1, a job that
// was cancelled, one that ran for less than a second, and blank lines at the end.
TEST(PublishedTraces, StandardWorkloadFormat) {
  const Workload load = read_guessed(
      "; Version: 2.2\n; Computer: a cluster\n;\n;   MaxNodes: 64\n"
      "; Note: submit times; are seconds\n ; UnixStartTime: 0\n"
      "    1     5094    -1   12072    16    -1    -1    16 -1 -1  1 -1 -1 -1  0 -1 -1 -1\n"
      "    2     5170    12       0     1  0.00    -1     1 36000 -1  0  3  1 -1  1 -1 -1 -1\n"
      "    3     6742     0      -1    -1    -1    -1     8 36000 -1  5  3  1 -1  1 -1 -1 -1\n"
      "    4     7287     3     905    -1    12.5  -1     4 36000 -1  1  3  1 -1  1 -1  3 60\r\n"
      "\n   \n",
      TraceFormat::kSwf);
  EXPECT_THAT(gpus_of(load), ElementsAre(16, 4));
  EXPECT_EQ(load.skipped, 2);
  EXPECT_EQ(load.jobs[0].name, "1");
  EXPECT_EQ(load.jobs[1].arrival_ns, (7287 - 5094) * kSecond);
}

// Pods with a part of a GPU or none, without a place, and a list of kinds in quotes; times of pods
// that the trace began with, and with a fraction.
TEST(PublishedTraces, AlibabaPods) {
  const Workload load = read_guessed(
      "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
      "deletion_time,scheduled_time\n"
      "pod-0,12000,16384,1,1000,,LS,Running,0,12537496,0\n"
      "pod-1,6000,12288,1,460,,BE,Running,427061,12902960,427061.0\n"
      "pod-2,20000,65536,0,0,,LS,Running,2759674,12902960,2759676\n"
      "pod-3,88000,327680,8,1000,\"V100M16|V100M32,T4\",Burstable,Succeeded,9437497,10769854,"
      "9437499\n"
      "pod-4,11908,47104,1,1000,,BE,Pending,10001278,10001403,\n"
      "pod-5,11908,47104,1,1000,,Guaranteed,Running,10001279,,10001280\n"
      "pod-6,3152,5600,1,1000,,BE,Failed,10001573,10001573,10001573\n",
      TraceFormat::kAlibaba);
  EXPECT_THAT(gpus_of(load), ElementsAre(1, 1, 8));
  EXPECT_EQ(load.skipped, 4);
  EXPECT_NEAR(load.jobs[2].iterations * ideal_iteration_ns(load.jobs[2], cluster_of(2, 4, 8)),
              (10769854 - 9437499) * 1e9, 1e3);
}

// Carriage returns, a byte order mark, blank lines, columns that no one asks for, models with
// versions.
TEST(PublishedTraces, TiresiasJobs) {
  const Workload load = read_guessed(
      "\xef\xbb\xbf\r\n \njob_id,num_gpu,submit_time,iterations,model_name,duration,interval\r\n"
      "0,1,0,606,vgg19,164,30\r\n1,8,30,133,resnet152,147,23\r\n2,2,53,157,inception4,127,26\r\n"
      "3,4,79,513,nobody-knows,121,20\r\n\r\n",
      TraceFormat::kTiresias);
  EXPECT_THAT(gpus_of(load), ElementsAre(1, 8, 2, 4));
  EXPECT_EQ(load.models[static_cast<size_t>(load.jobs[2].model)], "resnet");
  EXPECT_THAT(load.provenance, HasSubstr("models of 3 jobs as the trace has them, of 1 assigned"));
}

}  // namespace
}  // namespace jige::cluster
