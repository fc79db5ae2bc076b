#include "slurm/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "base/json.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "cluster/traffic.h"
#include "slurm/host_list.h"
#include "slurm/job_request.h"
#include "slurm/layout.h"

namespace jige::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HostList, ExpandsWhatSlurmWrites) {
  EXPECT_THAT(*expand_hosts("n[1-3,07],gpu2"), ElementsAre("n1", "n2", "n3", "n07", "gpu2"));
  EXPECT_THAT(*expand_hosts("r[1-2]n[08-10]"),
              ElementsAre("r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"));
  EXPECT_THAT(*expand_hosts("a[3]-ib"), ElementsAre("a3-ib"));
  EXPECT_TRUE(expand_hosts("")->empty());
  EXPECT_TRUE(expand_hosts("(null)")->empty());
  EXPECT_EQ(join_hosts({"n1", "gpu2"}), "n1,gpu2");
}

TEST(HostList, RefusesWhatSlurmDoesNotWrite) {
  for (const char* text : {"n[1-3", "n1]", "n[]", "n[3-1]", "n[1-]", "n[a]", ",", "a,,b", "a,",
                           "n[1-999999999]", "n[[1]]", "n[1-100000]", "n[1-300][1-300]"}) {
    EXPECT_EQ(expand_hosts(text).error().code, Code::kCorrupt) << text;
  }
}

TEST(Snapshot, CountsGpusInEveryForm) {
  EXPECT_EQ(gpus_in("gpu:4"), 4);
  EXPECT_EQ(gpus_in("gres:gpu:2"), 2);
  EXPECT_EQ(gpus_in("gres/gpu=3"), 3);
  EXPECT_EQ(gpus_in("gpu:a100:4(S:0-1)"), 4);
  EXPECT_EQ(gpus_in("gpu:2(IDX:0-1)"), 2);
  EXPECT_EQ(gpus_in("nic:1,gpu:a100:2(IDX:0,3),gpu:h100:1"), 3);
  EXPECT_EQ(gpus_in("gres:gpu"), 1);
  EXPECT_EQ(gpus_in("gpu:99999999999"), 1);
  EXPECT_EQ(gpus_in("gpumem:80"), 0);
  EXPECT_EQ(gpus_in(""), 0);
}

// What squeue of 22.05.8 wrote, cut to the fields that are read.
constexpr const char* kJobs = R"json({"jobs": [
  {"job_id": 7, "job_state": "RUNNING", "name": "b", "user_name": "eve", "partition": "jige",
   "priority": 4294901758, "node_count": 2, "nodes": "n[3,5]", "tres_per_node": "gres:gpu:2",
   "gres_detail": ["gpu:2(IDX:0-1)", "gpu:2(IDX:2-3)"], "comment": "jige model=bert",
   "admin_comment": "jige place epoch=1 n=1", "time_limit": 30, "restart_cnt": 1,
   "submit_time": 1795303075, "state_reason": "None", "array_job_id": 0, "dependency": ""},
  {"job_id": 3, "job_state": "PENDING", "priority": 0, "node_count": 2, "nodes": "",
   "tres_per_node": "gres:gpu:2", "time_limit": null, "state_reason": "JobHeldUser",
   "requeue": false, "batch_flag": true, "eligible_time": 1795514963},
  {"job_id": 8, "job_state": "PENDING", "priority": 5, "tres_per_job": "gres:gpu:4",
   "requeue": true, "batch_flag": false},
  {"job_id": 9, "job_state": "COMPLETING", "nodes": "n3", "node_count": 1, "gres_detail": [],
   "priority": 0, "tres_per_node": "gres:gpu:2", "flags": ["JOB_RESIZED"]},
  {"job_id": 10, "job_state": ["PENDING"], "priority": {"set": true, "number": 0},
   "node_count": {"set": true, "infinite": false, "number": 4}, "tres_per_node": "gres/gpu:1",
   "time_limit": {"set": false, "number": 0}, "array_job_id": {"set": true, "number": 10},
   "array_task_string": "1,3-9%2", "array_max_tasks": 2, "cpus": 6, "memory_per_cpu": 100,
   "features": "fast", "excluded_nodes": "n[1-2]", "shared": "none", "resv_name": "r"},
  {"job_id": 11, "job_state": "CANCELLED", "tres_per_node": "gres:gpu:1",
   "dependency": "x"}]})json";

TEST(Snapshot, ReadsJobs) {
  const auto jobs = parse_jobs(kJobs);
  ASSERT_TRUE(jobs) << jobs.error().message;
  ASSERT_EQ(jobs->size(), 6u);
  const SeenJob& held = (*jobs)[0];
  EXPECT_EQ(held.id, 3);
  EXPECT_EQ(held.state, SeenState::kHeld);
  EXPECT_EQ(held.gpus_per_node, 2);
  EXPECT_EQ(held.time_limit_s, 0);
  EXPECT_EQ(held.other_request, "");
  EXPECT_FALSE(held.stoppable);
  EXPECT_EQ(held.begin_s, 1795514963);
  const SeenJob& running = (*jobs)[1];
  EXPECT_EQ(running.state, SeenState::kRunning);
  EXPECT_THAT(running.nodes, ElementsAre("n3", "n5"));
  EXPECT_THAT(running.node_gpus, ElementsAre(2, 2));
  EXPECT_EQ(running.time_limit_s, 1800);
  EXPECT_EQ(running.user, "eve");
  EXPECT_TRUE(running.stoppable);
  EXPECT_FALSE((*jobs)[2].stoppable);
  EXPECT_EQ((*jobs)[2].state, SeenState::kReleased);
  EXPECT_THAT((*jobs)[2].other_request, HasSubstr("use -N and --gres=gpu:N"));
  EXPECT_EQ((*jobs)[3].state, SeenState::kEnding);
  EXPECT_THAT((*jobs)[3].node_gpus, ElementsAre(2));
  EXPECT_FALSE((*jobs)[3].stoppable);
  EXPECT_EQ((*jobs)[4].state, SeenState::kHeld);
  EXPECT_EQ((*jobs)[4].node_count, 4);
  EXPECT_EQ((*jobs)[4].other_request, "");
  EXPECT_EQ((*jobs)[4].array.array, 10);
  EXPECT_EQ((*jobs)[4].array.task, -1);
  EXPECT_EQ((*jobs)[4].array.tasks, "1,3-9");
  EXPECT_EQ((*jobs)[4].array.at_once_max, 2);
  EXPECT_EQ((*jobs)[4].needs, (NodeNeeds{.cpus = 2,
                                         .memory_mb = 200,
                                         .whole = true,
                                         .features = "fast",
                                         .reservation = "r",
                                         .excluded = {"n1", "n2"}}));
  EXPECT_EQ((*jobs)[5].state, SeenState::kGone);
  EXPECT_THAT((*jobs)[5].other_request, HasSubstr("depends"));
}

// Slurm takes no task out of an array that has but one.
TEST(Snapshot, AnArrayOfOneTaskIsThatTask) {
  for (const auto& [tasks, task, left] : std::vector<std::tuple<std::string, int64_t, std::string>>{
           {"0%2", 0, ""},
           {"7", 7, ""},
           {"7-8", -1, "7-8"},
           {"99999999999999999999", -1, "99999999999999999999"}}) {
    const auto jobs = parse_jobs(R"({"jobs": [{"job_id": 4, "job_state": "PENDING", "priority": 0,)"
                                 R"( "array_job_id": 4, "array_task_string": ")" +
                                 tasks + R"("}]})");
    ASSERT_TRUE(jobs) << jobs.error().message;
    EXPECT_EQ(jobs->front().array.task, task) << tasks;
    EXPECT_EQ(jobs->front().array.tasks, left) << tasks;
  }
}

TEST(Snapshot, SaysWhatCannotBePlaced) {
  const auto why = [](const std::string& fields) {
    const auto jobs = parse_jobs(R"({"jobs": [{"job_id": 1, "job_state": "PENDING", "priority": 0,)"
                                 R"( "tres_per_node": "gres:gpu:1", )" +
                                 fields + "}]}");
    EXPECT_TRUE(jobs) << jobs.error().message;
    return jobs ? jobs->front().other_request : "";
  };
  EXPECT_EQ(why(R"("node_count": 2, "max_nodes": 2)"), "");
  EXPECT_EQ(why(R"("node_count": 1, "max_nodes": 4)"), "");
  EXPECT_THAT(why(R"("node_count": 2, "max_nodes": 1)"), HasSubstr("tasks need 2 nodes"));
  EXPECT_EQ(why(R"x("dependency": "afterok:2(unfulfilled)")x"), "it depends on other jobs");
  EXPECT_THAT(why(R"x("dependency": "afterok:2(failed)")x"), HasSubstr("it never runs; cancel it"));
  EXPECT_THAT(why(R"("required_nodes": "n3")"), HasSubstr("names nodes (n3), which Jige chooses"));
  EXPECT_EQ(why(R"("required_nodes": "n3", "admin_comment": "jige place epoch=1 n=1")"), "");
  EXPECT_EQ(why(R"("required_nodes": "n3", "admin_comment": "jige: waits | jige place n=1")"), "");
  EXPECT_NE(why(R"("required_nodes": "n3", "admin_comment": "jige: waits")"), "");
  EXPECT_THAT(why(R"("features": "[a|b]")"), HasSubstr("features [a|b]; join names by & or"));
  EXPECT_EQ(why(R"("features": "a&b")"), "");
}

constexpr const char* kNodes = R"({"nodes": [
    {"name": "a", "gres": "gpu:4", "state": "idle", "state_flags": ["RESERVED"],
     "partitions": ["jige"], "cpus": 32, "alloc_cpus": 4, "real_memory": 1000,
     "alloc_memory": 100, "active_features": "fast,new"},
    {"name": "b", "gres": "gpu:8", "state": "mixed", "state_flags": ["DRAIN"]},
    {"name": "c", "gres": "", "state": "down"},
    {"name": "d", "gres": "gpu:2", "state": ["ALLOCATED"]},
    {"name": "e", "gres": "gpu:2", "state": "idle", "state_flags": ["NOT_RESPONDING"]}]})";

TEST(Snapshot, ReadsNodes) {
  const auto nodes = parse_nodes(kNodes, "here");
  ASSERT_TRUE(nodes) << nodes.error().message;
  std::string up;
  for (const SeenNode& node : *nodes) {
    if (node.up) up += node.name;
  }
  EXPECT_EQ(up, "ad");
  EXPECT_TRUE((*nodes)[0].reserved);
  EXPECT_EQ((*nodes)[0].cpus - (*nodes)[0].cpus_used, 28);
  EXPECT_EQ((*nodes)[0].memory_mb - (*nodes)[0].memory_used_mb, 900);
  EXPECT_THAT((*nodes)[0].features, ElementsAre("fast", "new"));
  EXPECT_EQ((*nodes)[1].gpus, 8);
  EXPECT_THAT((*nodes)[0].partitions, ElementsAre("jige"));
}

// What scontrol of 24.11 writes of a node, cut to the fields that are read.
TEST(Snapshot, ReadsNodesOfLaterVersions) {
  const auto nodes = parse_nodes(R"json({"nodes": [
    {"name": "a", "gres": "gpu:a100:4(S:0-1)", "state": ["IDLE", "PLANNED"],
     "partitions": ["cpu", "jige"]},
    {"name": "b", "gres": "gpu:a100:4", "state": ["IDLE", "CLOUD", "POWERED_DOWN"],
     "partitions": ["jige"]}], "last_update": {"set": true, "infinite": false, "number": 3}})json",
                                 "here");
  ASSERT_TRUE(nodes) << nodes.error().message;
  EXPECT_TRUE((*nodes)[0].up);
  EXPECT_EQ((*nodes)[0].gpus, 4);
  EXPECT_THAT((*nodes)[0].partitions, ElementsAre("cpu", "jige"));
  EXPECT_FALSE((*nodes)[1].up);
  EXPECT_EQ(parse_nodes(R"({"sinfo": [{"nodes": {"nodes": ["a"]}}]})", "here").error().code,
            Code::kUnsupported);
}

TEST(Snapshot, CutsNumbersThatNoSlurmSays) {
  for (const char* number : {"18446744073709551615", "9223372036854775807", "1e300"}) {
    const auto jobs = parse_jobs(
        fmt::format(R"({{"jobs": [{{"job_id": 1, "job_state": "PENDING", "time_limit": {0},)"
                    R"( "submit_time": {0}, "restart_cnt": {0},)"
                    R"( "node_count": {{"set": true, "number": {0}}}}}]}})",
                    number));
    ASSERT_TRUE(jobs) << jobs.error().message;
    const SeenJob& job = jobs->front();
    EXPECT_EQ(job.time_limit_s, 60'000'000'000'000'000) << number;
    EXPECT_GT(job.submit_s, 0) << number;
    EXPECT_GT(job.restarts, 0) << number;
    EXPECT_GT(job.node_count, 1) << number;
  }
}

TEST(Snapshot, NeverFailsBadly) {
  for (const char* text : {"", "{}", "[]", "{\"jobs\": 3}", "{\"jobs\": [3]}", "{\"jobs\": [{}]}",
                           "{\"jobs\": [{\"job_id\": \"x\"}]}", "{\"jobs\": [{\"job_id\": 1}]}"}) {
    EXPECT_FALSE(parse_jobs(text)) << text;
  }
}

// Damage of every kind, up to the request that follows from a job.
TEST(Snapshot, DamagedAnswersAreRefusedOrHarmless) {
  const cluster::ClusterSpec spec{.leaf_count = 2, .nodes_per_leaf = 4, .gpus_per_node = 4};
  int jobs_read = 0, requests = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(2000); ++seed) {
    const auto jobs = parse_jobs(Mutator(seed).mutate(kJobs));
    if (!jobs) continue;
    ++jobs_read;
    for (const SeenJob& job : *jobs) {
      ASSERT_EQ(job.nodes.size(), job.node_gpus.size()) << seed;
      ASSERT_GE(job.node_count, 1) << seed;
      EXPECT_FALSE(slurm_date(job.begin_s).empty()) << seed;
      const auto request = read_request(job, spec, {});
      requests += request.has_value();
      ASSERT_TRUE(!request || request->job.iterations >= 0) << seed;
    }
  }
  EXPECT_GT(jobs_read, 100);
  EXPECT_GT(requests, 100);
  int layouts = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(2000); ++seed) {
    const auto nodes = parse_nodes(Mutator(seed).mutate(kNodes), "here");
    if (!nodes) continue;
    const auto layout = Layout::create(*nodes, "jige", "", {});
    if (!layout) continue;
    ++layouts;
    ASSERT_GE(layout->gpu_count(), 1) << seed;
    static_cast<void>(layout->why_never(2, 4));
  }
  EXPECT_GT(layouts, 100);
}

TEST(HostList, DamagedListsAreRefusedOrExpanded) {
  for (uint64_t seed = 0; seed < fuzz_rounds(3000); ++seed) {
    const auto hosts = expand_hosts(Mutator(seed).mutate("n[1-3,08-10],rack[1-2]node[3-4],x"));
    ASSERT_TRUE(!hosts || hosts->size() <= kHostsMax) << seed;
  }
}

std::vector<SeenNode> eight_nodes() {
  std::vector<SeenNode> nodes;
  for (const char* name : {"n1", "n2", "n3", "n10", "n5", "x1", "n4", "other"}) {
    nodes.push_back({.name = name, .gpus = 4, .partitions = {"jige"}});
  }
  nodes[1].gpus = 2;
  nodes[7].partitions = {"else"};
  return nodes;
}

TEST(Layout, FillsUnequalLeavesUp) {
  const auto layout = Layout::create(eight_nodes(), "jige",
                                     "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-4]\n"
                                     "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[5,10],other\n"
                                     "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-5,10]\n",
                                     {.nic_bytes_per_s = 1e9});
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_EQ(layout->spec().leaf_count, 3);  // x1 hangs on none
  EXPECT_EQ(layout->spec().nodes_per_leaf, 4);
  EXPECT_EQ(layout->spec().gpus_per_node, 4);
  EXPECT_EQ(layout->index_of("n3"), 2);
  EXPECT_EQ(layout->index_of("n5"), 4);
  EXPECT_EQ(layout->index_of("n10"), 5);
  EXPECT_EQ(layout->index_of("x1"), 8);
  EXPECT_EQ(layout->index_of("other"), -1);
  EXPECT_EQ(layout->gpus_of(1), 2);
  EXPECT_EQ(layout->gpus_of(6), 0);
  const cluster::Placement place = layout->placement_of({"n5", "other", "n1"}, {4, 4, 3});
  EXPECT_EQ(place, (cluster::Placement{{0, 3}, {4, 4}}));
  EXPECT_THAT(layout->names_of(place), ElementsAre("n1", "n5"));
  EXPECT_EQ(Layout::create(eight_nodes(), "none", "", {}).error().code, Code::kNotFound);
  EXPECT_EQ(Layout::create(eight_nodes(), "jige", "", {})->spec().leaf_count, 1);
}

TEST(JobRequest, ReadsTheComment) {
  const cluster::ClusterSpec spec{.leaf_count = 2, .nodes_per_leaf = 4, .gpus_per_node = 4};
  SeenJob seen{.id = 5,
               .comment = "jige model=bert length=300 restart=9 checkpoint=/a/%j/%j.b",
               .node_count = 2,
               .gpus_per_node = 4};
  const auto request = read_request(seen, spec, {});
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->job.gpus, 8);
  EXPECT_EQ(request->job.nodes, 2);
  EXPECT_EQ(request->job.restart_ns, 9 * cluster::kSecond);
  EXPECT_EQ(request->checkpoint, "/a/5/5.b");
  EXPECT_NEAR(request->job.iterations * cluster::ideal_iteration_ns(request->job, spec), 300e9, 1);
  // Lengths that are not told are the time limit's, or the default's.
  seen.comment = "my job";
  seen.time_limit_s = 600;
  EXPECT_NEAR(read_request(seen, spec, {})->job.iterations, 600, 1e-6);
  seen.time_limit_s = 0;
  EXPECT_NEAR(read_request(seen, spec, {.length_s = 50})->job.iterations, 50, 1e-6);
  for (const char* comment : {"jige model=nonsense", "jige lenght=4", "jige length=x",
                              "jige length=-1", "jige length=1e99", "jige model"}) {
    seen.comment = comment;
    EXPECT_EQ(read_request(seen, spec, {}).error().code, Code::kInvalidArgument) << comment;
  }
  seen.comment = "";
  seen.node_count = 9;
  EXPECT_EQ(read_request(seen, spec, {}).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace jige::slurm
