// What jobs ask of a real Slurm beside GPUs, and what people change while `jige cluster run` runs:
// each was seen to go wrong on real daemons. Skips where Slurm is missing (demo_slurm.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "integration/demo_slurm.h"

namespace jige::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::vector<std::string> run_forever(const DemoSlurm& slurm) {
  std::vector<std::string> words = slurm.run_words();
  std::erase(words, "--until-empty");
  return words;
}

bool comes_to(const DemoSlurm& slurm, int64_t job, const std::string& state) {
  return wait_for(15, [&] { return slurm.state_of(job).starts_with(state); });
}

bool is_logged(const DemoSlurm& slurm, const std::string& text) {
  return wait_for(10, [&] { return slurm.decisions().find(text) != std::string::npos; });
}

std::string number(int64_t job) { return std::to_string(job); }

void update(const std::string& what, const std::string& field) {
  must_run({"scontrol", "update", what, field});
}

TEST(SlurmRequests, JobsGetWhatTheyAskForAndAreStoppedOnlyIfTheyMay) {
  if (const std::string why = missing_for_slurm(); !why.empty()) GTEST_SKIP() << why;
  const TestFolder folder, out;
  DemoSlurm slurm(folder);
  for (const char* field : {"AvailableFeatures=fast", "ActiveFeatures=fast"}) {
    update("NodeName=n[5-8]", field);
  }
  Process scheduler(run_forever(slurm), out.path());
  // All CPUs of n1 go with one of its GPUs.
  const int64_t hog = slurm.submit_sleep(100, {"-N1", "--gres=gpu:1", "-c32"});
  ASSERT_TRUE(comes_to(slurm, hog, "RUNNING n1"));
  const int64_t whole = slurm.submit_sleep(100, {"-N1", "--gres=gpu:1", "--exclusive"});
  const int64_t fast = slurm.submit_sleep(100, {"-N1", "--gres=gpu:1", "-Cfast"});
  const int64_t apart = slurm.submit_sleep(100, {"-N1", "--gres=gpu:1", "-xn1,n2,n3"});
  const int64_t later = slurm.submit_sleep(1, {"-N1", "--gres=gpu:1", "--begin=now+1hour"});
  const int64_t range = slurm.submit_sleep(100, {"-N1-4", "--gres=gpu:1"});
  const int64_t array = slurm.submit_sleep(0.5, {"-N1", "--gres=gpu:1", "--array=0-4%2"});
  const int64_t single = slurm.submit_sleep(0.5, {"-N1", "--gres=gpu:1", "--array=3"});
  EXPECT_TRUE(comes_to(slurm, single, "COMPLETED"));
  EXPECT_TRUE(comes_to(slurm, range, "RUNNING"));
  for (const int64_t job : {whole, fast, apart}) EXPECT_TRUE(comes_to(slurm, job, "RUNNING"));
  EXPECT_THAT(slurm.state_of(fast), MatchesRegex("RUNNING n[5-8]"));
  EXPECT_THAT(slurm.state_of(apart), MatchesRegex("RUNNING n[4-8]"));
  EXPECT_TRUE(wait_for(30, [&] {
    const std::string tasks =
        must_run({"squeue", "-h", "-r", "-t", "CD", "-j", number(array), "-o", "%i"}).out;
    return std::count(tasks.begin(), tasks.end(), '\n') == 5;
  })) << slurm.decisions();
  EXPECT_EQ(slurm.state_of(later), "PENDING");
  EXPECT_THAT(slurm.state_of(range), MatchesRegex("RUNNING n[1-8]"));
  EXPECT_THAT(slurm.decisions(),
              AllOf(HasSubstr("\"job\":" + number(later) + ",\"text\":\"it begins at"),
                    Not(HasSubstr("\"fail\"")), Not(HasSubstr("\"foreign\""))));
  must_run({"scancel", "-u", "root"});
  ASSERT_TRUE(wait_for(15, [&] { return slurm.running() == 0; }));
  // One that cannot be requeued keeps its GPUs before a shorter one; one that can gives them.
  const std::vector<std::string> all = {"-N8", "--gres=gpu:4", "--comment=jige length=100"};
  std::vector<std::string> firm_words = all;
  firm_words.emplace_back("--no-requeue");
  const std::vector<std::string> short_words = {"-N4", "--gres=gpu:4", "--comment=jige length=1"};
  const int64_t firm = slurm.submit_sleep(100, firm_words);
  ASSERT_TRUE(comes_to(slurm, firm, "RUNNING"));
  const int64_t behind = slurm.submit_sleep(1, short_words);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_EQ(slurm.state_of(firm), "RUNNING n[1-8]");
  EXPECT_EQ(slurm.state_of(behind), "PENDING");
  EXPECT_THAT(slurm.decisions(), Not(HasSubstr("\"step\":\"requeue\"")));
  // It gives four nodes back, which are used at once, and goes on.
  must_run({"bash", "-c",
            "cd '" + folder.path() + "' && scontrol update JobId=" + number(firm) + " NumNodes=4"});
  EXPECT_TRUE(comes_to(slurm, behind, "COMPLETED n[5-8]"));
  EXPECT_EQ(slurm.state_of(firm), "RUNNING n[1-4]");
  scheduler.send(SIGINT);
  EXPECT_EQ(scheduler.wait().exit_code, 0);
}

// In AdminComment, which everybody may read and no user may set.
TEST(SlurmRequests, UsersSeeInSlurmWhyTheirJobsWait) {
  if (const std::string why = missing_for_slurm(); !why.empty()) GTEST_SKIP() << why;
  const TestFolder folder, out;
  DemoSlurm slurm(folder);
  const std::vector<std::string> as_nobody = {"setpriv", "--reuid=65534", "--regid=65534",
                                              "--clear-groups"};
  const auto comment_of = [&](int64_t job) {
    std::vector<std::string> call = as_nobody;
    for (const char* word : {"squeue", "-h", "-t", "all", "-O", "admin_comment:200", "-j"}) {
      call.emplace_back(word);
    }
    call.push_back(number(job));
    std::string text = must_run(call).out;
    text.erase(text.find_last_not_of(" \n") + 1);
    return text;
  };
  const auto says = [&](int64_t job, const std::string& text) {
    return wait_for(15, [&] { return comment_of(job).find(text) != std::string::npos; });
  };
  Process scheduler(run_forever(slurm), out.path());
  const int64_t all = slurm.submit_sleep(100, {"-N8", "--gres=gpu:4", "--comment=jige length=9"});
  ASSERT_TRUE(comes_to(slurm, all, "RUNNING"));
  const int64_t waits =
      slurm.submit_sleep(100, {"-N2", "--gres=gpu:3", "--comment=jige length=50"});
  const int64_t task = slurm.submit_sleep(1, {"-N1", "--gres=gpu:1", "--array=7", "-t60"});
  const int64_t named = slurm.submit_sleep(1, {"-N1", "--gres=gpu:1", "--comment=jige model=x"});
  EXPECT_TRUE(says(waits,
                   "jige: waits for 3 GPUs on each of 2 nodes; 0 free on one at most; place "
                   "1 in the queue"))
      << comment_of(waits);
  EXPECT_TRUE(says(task, "jige: waits for 1 GPU on one node")) << comment_of(task);
  EXPECT_TRUE(says(named, "jige: is left alone: comment: model \"x\" is not one of "))
      << comment_of(named);
  EXPECT_EQ(must_run({"squeue", "-h", "-j", number(waits), "-o", "%k"}).out, "jige length=50\n");
  // A shorter one takes the place of this one, which keeps its mark and is placed again.
  must_run({"scancel", number(all)});
  ASSERT_TRUE(comes_to(slurm, waits, "RUNNING"));
  EXPECT_THAT(comment_of(waits), MatchesRegex("jige place epoch=[0-9]+ n=[0-9]+"));
  const int64_t brief = slurm.submit_sleep(8, {"-N8", "--gres=gpu:4", "--comment=jige length=8"});
  ASSERT_TRUE(comes_to(slurm, brief, "RUNNING"));
  EXPECT_TRUE(says(waits, " in the queue | jige place epoch=")) << comment_of(waits);
  EXPECT_TRUE(comes_to(slurm, waits, "RUNNING")) << slurm.decisions();
  EXPECT_THAT(comment_of(waits), MatchesRegex("jige place epoch=[0-9]+ n=[0-9]+"));
  EXPECT_THAT(slurm.decisions(),
              AllOf(Not(HasSubstr("\"fail\"")), Not(HasSubstr("taken in anew"))));
  scheduler.send(SIGINT);
  EXPECT_EQ(scheduler.wait().exit_code, 0);
}

TEST(SlurmRequests, NodesComeAndGoAndPartitionsCloseWhileItRuns) {
  if (const std::string why = missing_for_slurm(); !why.empty()) GTEST_SKIP() << why;
  const TestFolder folder, out;
  DemoSlurm slurm(folder);
  update("PartitionName=jige", "Nodes=n[1-4]");
  Process scheduler(run_forever(slurm), out.path());
  const int64_t first = slurm.submit_sleep(100, {"-N4", "--gres=gpu:4", "--no-requeue"});
  ASSERT_TRUE(comes_to(slurm, first, "RUNNING n[1-4]"));
  const int64_t wide = slurm.submit_sleep(1, {"-N6", "--gres=gpu:4"});
  const int64_t next = slurm.submit_sleep(1, {"-N4", "--gres=gpu:4"});
  const int64_t shaped = slurm.submit_sleep(1, {"-N2", "--gres=gpu:4"});
  ASSERT_TRUE(is_logged(slurm, "asks for 24 GPUs; the cluster has 16"));
  ASSERT_TRUE(is_logged(slurm, "\"arrive\",\"job\":" + number(shaped)));
  // Changed while it waits.
  update("JobId=" + number(shaped), "NumNodes=1");
  EXPECT_TRUE(is_logged(slurm, "its request was changed; taken in anew"));
  update("PartitionName=jige", "Nodes=n[1-8]");
  EXPECT_TRUE(comes_to(slurm, next, "COMPLETED n[5-8]"));
  EXPECT_TRUE(comes_to(slurm, shaped, "COMPLETED"));
  EXPECT_EQ(slurm.state_of(first), "RUNNING n[1-4]");
  must_run({"scancel", number(first)});
  EXPECT_TRUE(comes_to(slurm, wide, "COMPLETED"));
  update("PartitionName=jige", "State=DOWN");
  const int64_t waits = slurm.submit_sleep(1, {"-N1", "--gres=gpu:1"});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_EQ(slurm.state_of(waits), "PENDING");
  update("PartitionName=jige", "State=UP");
  EXPECT_TRUE(comes_to(slurm, waits, "COMPLETED"));
  // Nodes that are drained or reserved get no job.
  must_run({"scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test"});
  must_run({"scontrol", "create", "reservation=r", "StartTime=now", "Duration=10", "Users=root",
            "Nodes=n2,n3"});
  ASSERT_TRUE(wait_for(30, [&] {
    return must_run({"sinfo", "-h", "-N", "-t", "resv", "-o", "%N"}).out == "n2\nn3\n";
  }));
  const int64_t inside = slurm.submit_sleep(100, {"-N1", "--gres=gpu:1", "--reservation=r"});
  const int64_t outside = slurm.submit_sleep(100, {"-N1", "--gres=gpu:1"});
  EXPECT_TRUE(comes_to(slurm, inside, "RUNNING"));
  EXPECT_TRUE(comes_to(slurm, outside, "RUNNING"));
  EXPECT_THAT(slurm.state_of(inside), MatchesRegex("RUNNING n[23]"));
  EXPECT_THAT(slurm.state_of(outside), MatchesRegex("RUNNING n[4-8]"));
  EXPECT_THAT(slurm.decisions(), AllOf(Not(HasSubstr("\"fail\"")), Not(HasSubstr("\"foreign\""))));
  scheduler.send(SIGINT);
  EXPECT_EQ(scheduler.wait().exit_code, 0);
}

}  // namespace
}  // namespace jige::integration
