#include "cluster/lateness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>

#include "cluster/cluster_test_support.h"
#include "cluster/workload.h"

namespace jige::cluster {
namespace {

// Jobs of 1, 2, ... seconds on one GPU each, all there at 0.
std::vector<Job> ladder(int count) {
  std::vector<Job> jobs;
  for (int i = 0; i < count; ++i) jobs.push_back(plain_job(0, 1, i + 1));
  return jobs;
}

class LatenessTest : public ::testing::Test {
 protected:
  void come(std::vector<Job> jobs, LatenessOptions options = {}) {
    waiting_.clear();
    jobs_ = std::move(jobs);
    const ClusterSpec spec = cluster_of(1, 1, 4);
    state_ = std::make_unique<ClusterState>(spec, jobs_, make_no_contention(spec), nullptr);
    lateness_ = std::make_unique<Lateness>(options);
    for (JobId id = 0; id < std::ssize(jobs_); ++id) {
      state_->arrive(id);
      lateness_->came(*state_, id);
      waiting_.push_back(id);
    }
    lateness_->look(*state_, waiting_);
  }

  std::vector<Job> jobs_;
  std::unique_ptr<ClusterState> state_;
  std::unique_ptr<Lateness> lateness_;
  std::vector<JobId> waiting_;
};

// The longest, of 40 s, is a giant. The others have up to 39 s and 780 s together, for which two of
// the four GPUs take 390 s: the deadline is 39 + 0.8 * 390.
TEST_F(LatenessTest, DeadlineIsTheLongestLengthAndTheBacklog) {
  come(ladder(40));
  EXPECT_NEAR(lateness_->deadline_ns(), 351e9, 1);
  state_->advance_to(312 * kSecond);  // 312 + 1.3 * 30 = 351
  EXPECT_FALSE(lateness_->late(*state_, 29));
  state_->advance_to(313 * kSecond);
  EXPECT_TRUE(lateness_->late(*state_, 29));
  EXPECT_FALSE(lateness_->late(*state_, 0));
  state_->advance_to(100'000 * kSecond);
  EXPECT_TRUE(lateness_->late(*state_, 0));
  EXPECT_FALSE(lateness_->late(*state_, 39));
}

TEST_F(LatenessTest, QuickHaveLessServiceThanMost) {
  std::vector<Job> jobs = ladder(40);
  jobs[0].gpus = 4;
  jobs[0].iterations = 100;
  come(std::move(jobs));
  EXPECT_TRUE(lateness_->quick(*state_, 31));  // 32 s; sorted, 33 s are 80 % up
  EXPECT_FALSE(lateness_->quick(*state_, 32));
  EXPECT_FALSE(lateness_->quick(*state_, 0));  // 400 GPU seconds
}

TEST_F(LatenessTest, GoesByLengthsAsTheyAreEstimated) {
  const LengthEstimates told{.noise = 4, .seed = 3};
  std::vector<Job> estimated = ladder(40);
  for (JobId id = 0; id < 40; ++id)
    estimated[static_cast<size_t>(id)].iterations *= told.factor(id);
  const auto seen = [&](std::vector<Job> jobs, const LengthEstimates& lengths) {
    come(std::move(jobs), {.lengths = lengths});
    std::vector<int64_t> all = {std::llround(lateness_->deadline_ns())};
    for (int64_t at_s = 0; at_s < 2000; at_s += 10) {
      state_->advance_to(at_s * kSecond);
      for (JobId id = 0; id < 40; ++id) {
        all.push_back(lateness_->late(*state_, id) + 2 * lateness_->quick(*state_, id));
      }
    }
    return all;
  };
  const auto by_estimates = seen(ladder(40), told);
  EXPECT_EQ(by_estimates, seen(estimated, {}));
  EXPECT_NE(by_estimates, seen(ladder(40), {}));
}

TEST_F(LatenessTest, SaysNothingOfAFewJobs) {
  come(ladder(29));
  EXPECT_EQ(lateness_->deadline_ns(), 0);
  state_->advance_to(1'000'000 * kSecond);
  EXPECT_FALSE(lateness_->late(*state_, 5));
  EXPECT_FALSE(lateness_->quick(*state_, 0));
}

TEST_F(LatenessTest, ForgetsJobsOfLongAgo) {
  std::vector<Job> jobs(100, plain_job(0, 1, 1000));
  jobs.push_back(plain_job(0, 1, 5));
  come(jobs);
  EXPECT_TRUE(lateness_->quick(*state_, 100));
  jobs.insert(jobs.end(), Lateness::kSeenMax, plain_job(0, 1, 1));
  come(jobs);
  EXPECT_FALSE(lateness_->quick(*state_, 100));
  // One that comes again is not counted again.
  const double before_ns = lateness_->deadline_ns();
  for (int i = 0; i < 2000; ++i) lateness_->came(*state_, 0);
  lateness_->look(*state_, waiting_);
  EXPECT_EQ(lateness_->deadline_ns(), before_ns);
}

// One GPU, a job of 10 s every 10 s, and among them one of 30 s.
double long_start_s(std::optional<LatenessOptions> deadlines) {
  std::vector<Job> jobs;
  for (int i = 0; i < 100; ++i) {
    jobs.push_back(plain_job(10 * i, 1, 10));
    if (i == 0) jobs.push_back(plain_job(1, 1, 30));
  }
  QueuePolicy policy({.round_ns = 10 * kSecond, .deadlines = deadlines},
                     make_order({.kind = OrderKind::kSjf}),
                     make_blind_placer(PlacementKind::kPack, 1));
  const auto result = run(cluster_of(1, 1, 1), workload_of(std::move(jobs)), policy);
  return static_cast<double>(result.outcomes[1].first_start_ns) / kSecond;
}

// 30 jobs have come at 280 s. The deadline is 30 s and the 40 to 50 s that are left here twice.
TEST(QueuePolicyDeadlines, TheLatePassOthers) {
  EXPECT_EQ(long_start_s(std::nullopt), 1000);
  EXPECT_EQ(long_start_s(LatenessOptions{.quick = 0, .giants = 0, .backlog = 1}), 280);
  // What is quick goes first, and nobody waits for a giant.
  EXPECT_EQ(long_start_s(LatenessOptions{.quick = 1, .giants = 0, .backlog = 1}), 1000);
  EXPECT_EQ(long_start_s(LatenessOptions{.quick = 0, .giants = 0.1, .backlog = 1}), 1000);
}

}  // namespace
}  // namespace jige::cluster
