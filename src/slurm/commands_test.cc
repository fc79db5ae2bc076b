#include "slurm/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/file.h"

namespace jige::slurm {
namespace {

using ::testing::HasSubstr;

// Slurm commands that are not there: scripts of a folder. Each writes its words to `calls`.
class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = temporary_pattern(::testing::TempDir() + "/commands-");
    folder_ = mkdtemp(pattern.data());
    options_ = {.limit_s = 5, .tries = 3, .pause_s = 0.01};
    options_.squeue = folder_ + "/squeue";
    options_.sinfo = folder_ + "/sinfo";
    options_.scontrol = folder_ + "/scontrol";
    options_.scancel = folder_ + "/scancel";
    script("squeue", "echo '{\"jobs\": []}'");
    script("sinfo", "echo '{\"nodes\": []}'");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void script(const std::string& name, const std::string& body) {
    const std::string path = folder_ + "/" + name;
    ASSERT_TRUE(write_file_atomic(path, "#!/bin/sh\nD=" + folder_ + "\necho " + name +
                                            " \"$@\" >> $D/calls\n" + body + "\n"));
    chmod(path.c_str(), 0755);
  }
  std::string calls() {
    const auto text = read_file(folder_ + "/calls");
    return text ? *text : "";
  }

  std::string folder_;
  CommandOptions options_;
};

TEST_F(Commands, PlacesWithAnUpdateAndARelease) {
  script("scontrol", "exit 0");
  SlurmCommands slurm(options_);
  EXPECT_TRUE(slurm.place(7, {"n1", "n3"}, "jige place epoch=1 n=2"));
  EXPECT_EQ(calls(),
            "scontrol update JobId=7 ReqNodeList=n1,n3 AdminComment=jige place epoch=1 n=2\n"
            "scontrol release 7\n");
}

// It is not worth waiting for a controller that does not answer.
TEST_F(Commands, WritesAnAdminCommentAndTriesOnce) {
  script("scontrol", "echo 'Socket timed out' >&2; exit 1");
  SlurmCommands slurm(options_);
  EXPECT_EQ(slurm.annotate(7, "jige: waits, for a while").error().code, Code::kUnavailable);
  EXPECT_EQ(calls(), "scontrol update JobId=7 AdminComment=jige: waits, for a while\n");
}

TEST_F(Commands, GivesAJobThatWouldTakeMoreNodesThoseThatWereChosen) {
  script("squeue", R"(echo '{"jobs": [
    {"job_id": 5, "job_state": "PENDING", "node_count": 1, "max_nodes": 4},
    {"job_id": 6, "job_state": "PENDING", "node_count": 2, "max_nodes": 2}]}')");
  script("scontrol", "exit 0");
  SlurmCommands slurm(options_);
  ASSERT_TRUE(slurm.snapshot());
  EXPECT_TRUE(slurm.place(5, {"n1"}, "x"));
  EXPECT_TRUE(slurm.place(6, {"n1", "n2"}, "x"));
  EXPECT_THAT(calls(), HasSubstr("update JobId=5 NumNodes=1-1 ReqNodeList=n1 AdminComment=x"));
  EXPECT_THAT(calls(), HasSubstr("update JobId=6 ReqNodeList=n1,n2 AdminComment=x"));
}

// Others would wait where this machine's clock is ahead of the controller's.
TEST_F(Commands, SetsTheStartTimeOnlyOfJobsThatMayNotBeginYet) {
  const auto now_s = static_cast<int64_t>(unix_now_s());
  script("squeue", fmt::format(R"(echo '{{"jobs": [
    {{"job_id": 5, "job_state": "PENDING", "eligible_time": {}}},
    {{"job_id": 6, "job_state": "PENDING", "eligible_time": {}}}]}}')",
                               now_s + 120, now_s - 1));
  script("scontrol", "exit 0");
  SlurmCommands slurm(options_);
  ASSERT_TRUE(slurm.snapshot());
  EXPECT_TRUE(slurm.place(5, {"n1"}, "x"));
  EXPECT_TRUE(slurm.place(6, {"n2"}, "x"));
  EXPECT_THAT(calls(), HasSubstr("update JobId=5 ReqNodeList=n1 StartTime=now AdminComment=x"));
  EXPECT_THAT(calls(), HasSubstr("update JobId=6 ReqNodeList=n2 AdminComment=x"));
}

// By the number alone Slurm would change all tasks.
TEST_F(Commands, CallsTasksOfArraysByArrayAndTask) {
  script("squeue", R"(echo '{"jobs": [
    {"job_id": 5, "job_state": "PENDING", "array_job_id": 5, "array_task_string": "0,2-3%2"},
    {"job_id": 6, "job_state": "RUNNING", "array_job_id": 5, "array_task_id": 1},
    {"job_id": 7, "job_state": "RUNNING", "array_job_id": 0, "array_task_id": null}]}')");
  script("scontrol", "exit 0");
  SlurmCommands slurm(options_);
  ASSERT_TRUE(slurm.snapshot());
  EXPECT_TRUE(slurm.split(5, 2));
  EXPECT_TRUE(slurm.requeue_held(6));
  EXPECT_TRUE(slurm.hold(7));
  EXPECT_TRUE(slurm.release(5, "x"));
  EXPECT_EQ(calls(),
            "squeue --json -t all\nsinfo --json\n"
            "scontrol update JobId=5_2 AdminComment=jige hold\nscontrol requeuehold 5_1\n"
            "scontrol hold 7\nscontrol update JobId=5_[0,2-3] ReqNodeList= AdminComment=x\n"
            "scontrol release 5_[0,2-3]\n");
}

TEST_F(Commands, AsksWhetherThePartitionStartsJobs) {
  options_.partition = "gpu";
  for (const auto& [said, closed] : std::vector<std::pair<std::string, std::string>>{
           {"up", ""}, {"down", "down"}, {"inact", "inactive"}, {"drain", ""}}) {
    script("sinfo", "case \"$*\" in *%a) echo " + said + ";; *) echo '{\"nodes\": []}';; esac");
    SlurmCommands slurm(options_);
    const auto snapshot = slurm.snapshot();
    ASSERT_TRUE(snapshot) << snapshot.error().message;
    EXPECT_EQ(snapshot->closed, closed);
  }
  EXPECT_THAT(calls(), HasSubstr("sinfo -h -p gpu -o %a\n"));
}

TEST_F(Commands, SignalsTheScriptItself) {
  script("scancel", "exit 0");
  SlurmCommands slurm(options_);
  EXPECT_TRUE(slurm.checkpoint(7));
  EXPECT_EQ(calls(), "scancel --signal=USR1 --batch 7\n");
}

TEST_F(Commands, TriesAgainWhenSlurmDoesNotAnswer) {
  script("scontrol",
         "[ -e $D/second ] && exit 0\ntouch $D/second\n"
         "echo 'slurm_update error: Unable to contact slurm controller (connect failure)' >&2\n"
         "exit 1");
  SlurmCommands slurm(options_);
  EXPECT_TRUE(slurm.hold(3));
  EXPECT_EQ(slurm.retries(), 1);
  EXPECT_EQ(calls(), "scontrol hold 3\nscontrol hold 3\n");
}

TEST_F(Commands, DoesNotReleaseWhatItCouldNotPin) {
  script("scontrol", "echo 'Invalid node name specified' >&2\nexit 1");
  SlurmCommands slurm(options_);
  const Status status = slurm.place(3, {"nope"}, "x");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  EXPECT_THAT(status.error().message, HasSubstr("Invalid node name"));
  EXPECT_EQ(slurm.retries(), 0);
  EXPECT_THAT(calls(), ::testing::Not(HasSubstr("release")));
}

TEST_F(Commands, EndsCommandsThatHang) {
  script("squeue", "sleep 60");
  options_.limit_s = 0.2;
  options_.tries = 2;
  SlurmCommands slurm(options_);
  const StopWatch watch;
  EXPECT_EQ(slurm.snapshot().error().code, Code::kUnavailable);
  EXPECT_LT(watch.seconds(), 5);
  EXPECT_EQ(slurm.retries(), 1);
}

TEST_F(Commands, WaitsNoLongerWhenItIsCancelled) {
  script("squeue", "sleep 60");
  const std::atomic<bool> cancel{true};
  options_.cancel = &cancel;
  SlurmCommands slurm(options_);
  const StopWatch watch;
  EXPECT_EQ(slurm.snapshot().error().code, Code::kCancelled);
  EXPECT_LT(watch.seconds(), 5);
  EXPECT_EQ(slurm.retries(), 0);
}

TEST_F(Commands, TakesNoHalfAnswer) {
  script("squeue", "echo '{\"jobs\": [{\"job_id\": 1'");
  SlurmCommands slurm(options_);
  EXPECT_EQ(slurm.snapshot().error().code, Code::kCorrupt);
  options_.squeue = "no-such-squeue";
  EXPECT_EQ(SlurmCommands(options_).snapshot().error().code, Code::kNotFound);
}

// From 23.02 on.
TEST_F(Commands, AsksForNodesWhereSinfoOnlyGroupsThem) {
  script("sinfo", R"(echo '{"sinfo": [{"nodes": {"nodes": ["a"]}, "gres": {"total": "gpu:4"}}]}')");
  script("scontrol", R"(echo '{"nodes": [{"name": "a", "gres": "gpu:4", "state": ["IDLE"]}]}')");
  SlurmCommands slurm(options_);
  for (int i = 0; i < 2; ++i) {
    const auto snapshot = slurm.snapshot();
    ASSERT_TRUE(snapshot) << snapshot.error().message;
    ASSERT_EQ(snapshot->nodes.size(), 1u);
    EXPECT_EQ(snapshot->nodes[0].gpus, 4);
  }
  EXPECT_EQ(calls(),
            "squeue --json -t all\nsinfo --json\nscontrol --all --json show nodes\n"
            "squeue --json -t all\nscontrol --all --json show nodes\n");
}

TEST_F(Commands, KnowsClustersWithoutATopology) {
  script("scontrol", "echo 'invalid entity: topology' >&2\nexit 1");
  EXPECT_EQ(*SlurmCommands(options_).topology(), "");
  script("scontrol", "echo 'Unable to contact slurm controller' >&2\nexit 1");
  EXPECT_EQ(SlurmCommands(options_).topology().error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace jige::slurm
