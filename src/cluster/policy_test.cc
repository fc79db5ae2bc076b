#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/rng.h"
#include "cluster/cluster_test_support.h"

namespace jige::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> ends_of(const std::string& policy, std::vector<Job> jobs, int32_t gpus,
                            PolicyContext context = {}) {
  return ends_s(run(cluster_of(1, 1, gpus), workload_of(std::move(jobs)),
                    *policy_of(policy, std::move(context))));
}

TEST(ClusterPolicy, SaysInWhichOrderJobsWait) {
  const ClusterSpec spec = cluster_of(1, 1, 2);
  const std::vector<Job> jobs = {plain_job(0, 2, 10), plain_job(0, 2, 20), plain_job(0, 1, 5)};
  for (const auto& [name, behind] :
       {std::pair{"fifo+skip", std::vector<JobId>{1, 2}}, {"srtf", {0, 1}}}) {
    const std::unique_ptr<Policy> policy = policy_of(name);
    ClusterState cluster(spec, jobs, make_no_contention(spec), nullptr);
    EXPECT_THAT(policy->queue(), ::testing::IsEmpty());
    for (const JobId id : {0, 1, 2}) {
      cluster.arrive(id);
      policy->arrived(cluster, id);
    }
    policy->schedule(cluster, true);
    EXPECT_EQ(policy->queue(), behind) << name;
  }
}

// A holds one of two GPUs until 10; B wants both; C wants one.
TEST(ClusterPolicy, FifoIsHeldUpByTheFirstThatDoesNotFit) {
  const std::vector<Job> jobs = {plain_job(0, 1, 10), plain_job(1, 2, 5), plain_job(2, 1, 3)};
  EXPECT_THAT(ends_of("fifo", jobs, 2), ElementsAre(10, 15, 18));
  EXPECT_THAT(ends_of("fifo+skip", jobs, 2), ElementsAre(10, 15, 5));
}

TEST(ClusterPolicy, EasyBackfillsWhatDoesNotDelayTheFirst) {
  std::vector<Job> jobs = {plain_job(0, 1, 10), plain_job(1, 2, 5), plain_job(2, 1, 8)};
  EXPECT_THAT(ends_of("fifo+easy", jobs, 2), ElementsAre(10, 15, 10));  // ends in time
  jobs[2] = plain_job(2, 1, 9);                                         // would end at 11
  EXPECT_THAT(ends_of("fifo+easy", jobs, 2), ElementsAre(10, 15, 24));
  // Of three GPUs B leaves one over at 10: C may take it, D may not.
  jobs = {plain_job(0, 2, 10), plain_job(1, 2, 5), plain_job(2, 1, 100), plain_job(3, 1, 100)};
  EXPECT_THAT(ends_of("fifo+easy", jobs, 3), ElementsAre(10, 15, 102, 115));
}

TEST(ClusterPolicy, SjfTakesTheShortestAndStopsNobody) {
  const std::vector<Job> jobs = {plain_job(0, 1, 10), plain_job(1, 1, 5), plain_job(2, 1, 2)};
  EXPECT_THAT(ends_of("sjf", jobs, 1), ElementsAre(10, 17, 12));
}

TEST(ClusterPolicy, SrtfStopsWhatHasMoreLeft) {
  const std::vector<Job> jobs = {plain_job(0, 1, 10), plain_job(1, 1, 5), plain_job(2, 1, 2)};
  EXPECT_THAT(ends_of("srtf", jobs, 1), ElementsAre(17, 8, 4));
}

// A has 5 s left on two GPUs when B comes with 9 s on one.
TEST(ClusterPolicy, SrsfCountsGpus) {
  const std::vector<Job> jobs = {plain_job(0, 2, 6), plain_job(1, 1, 9)};
  EXPECT_THAT(ends_of("srsf", jobs, 2), ElementsAre(15, 10));
  EXPECT_THAT(ends_of("srtf", jobs, 2), ElementsAre(6, 15));
}

// A leaves the first queue at 3250 GPU seconds and is stopped in the next round.
TEST(ClusterPolicy, LasPrefersWhoHadLess) {
  const std::vector<Job> jobs = {plain_job(0, 1, 5000), plain_job(1000, 1, 100)};
  EXPECT_THAT(ends_of("las", jobs, 1), ElementsAre(5100, 3400));
}

// Three of four jobs are known to end at 100 s: one that did not is likely to take long.
TEST(ClusterPolicy, GittinsPrefersWhoIsLikelyToEnd) {
  const std::vector<Job> jobs = {plain_job(0, 1, 10'000), plain_job(500, 1, 100)};
  const PolicyContext context{.history_gpu_s = {100, 100, 100, 10'000}};
  EXPECT_THAT(ends_of("gittins", jobs, 1, context), ElementsAre(10'100, 700));
}

// Rounds of 300 s: A, B, A, B, A and then B alone.
TEST(ClusterPolicy, MaxMinSharesTime) {
  const std::vector<Job> jobs = {plain_job(0, 1, 900), plain_job(0, 1, 900)};
  EXPECT_THAT(ends_of("max-min", jobs, 1), ElementsAre(1500, 1800));
}

// At 300 s B, of 100 s, would end four times as late as alone, and A as late as alone.
TEST(ClusterPolicy, FinishTimeFairnessHelpsTheWorstOff) {
  const std::vector<Job> jobs = {plain_job(0, 1, 1000), plain_job(0, 1, 100)};
  EXPECT_THAT(ends_of("ftf", jobs, 1), ElementsAre(1100, 400));
}

TEST(ClusterPolicy, StopsNobodyWhereThatMakesNoRoom) {
  // C wants a GPU on each of two nodes. Stopping B, who comes behind it, frees one node only.
  Job wide = plain_job(1, 2, 6);
  wide.nodes = 2;
  const auto result = run(cluster_of(1, 2, 1),
                          workload_of({plain_job(0, 1, 5), plain_job(0, 1, 100), wide}), "srtf");
  EXPECT_THAT(ends_s(result), ElementsAre(5, 106, 11));
  EXPECT_EQ(result.outcomes[1].preemptions, 1);  // at 5, when it does make room
}

TEST(ClusterPolicy, NamesSayWhatIsWrong) {
  for (const char* name : {"", "srft", "fifo+", "fifo+lazy", "fifo/", "fifo/everywhere", "a/b/c"}) {
    const auto policy = make_policy(name, "--policy", {});
    ASSERT_FALSE(policy) << name;
    EXPECT_EQ(policy.error().code, Code::kInvalidArgument);
    EXPECT_THAT(policy.error().message, HasSubstr("--policy"));
    EXPECT_THAT(policy.error().message, HasSubstr("srtf, srsf, las"));
  }
}

// G at nothing attained: ending the three short ones takes 100 s a job for 3/4 endings.
TEST(GittinsIndex, EqualsTheDefinition) {
  const GittinsIndex index({100, 100, 100, 10'000});
  EXPECT_DOUBLE_EQ(index.at(0), 0.75 / 100);
  EXPECT_DOUBLE_EQ(index.at(99), 0.75 / 100);
  EXPECT_DOUBLE_EQ(index.at(100), 1.0 / 9900);
  EXPECT_EQ(GittinsIndex({}).at(5), 0);
  Rng rng(derive_key(4, "gittins"));
  std::vector<double> lengths(40);
  for (double& length : lengths) length = std::exp(3 * rng.normal());
  const GittinsIndex drawn(lengths);
  for (const double attained : lengths) {
    double best = 0;
    for (const double until : lengths) {
      double ended = 0, spent = 0;
      for (const double length : lengths) {
        if (length <= attained || until <= attained) continue;
        ended += length <= until;
        spent += std::min(length, until) - attained;
      }
      if (spent > 0) best = std::max(best, ended / spent);
    }
    EXPECT_NEAR(drawn.at(attained), best, 1e-12 * best);
  }
}

// The least sum of ends over all schedules that run one unit of one job at a time.
class Optimum {
 public:
  explicit Optimum(const std::vector<Job>& jobs) : jobs_(jobs) {}
  int best(int now, std::vector<int> left) {
    const auto key = std::pair(now, left);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    int least = 1 << 20;
    bool any = false, done = true;
    for (size_t i = 0; i < left.size(); ++i) {
      done = done && left[i] == 0;
      if (left[i] == 0 || jobs_[i].arrival_ns > now * kSecond) continue;
      any = true;
      std::vector<int> next = left;
      --next[i];
      least = std::min(least, best(now + 1, next) + (next[i] == 0 ? now + 1 : 0));
    }
    if (done) return 0;
    if (!any) least = best(now + 1, left);
    return known_[key] = least;
  }

 private:
  const std::vector<Job>& jobs_;
  std::map<std::pair<int, std::vector<int>>, int> known_;
};

TEST(ClusterPolicy, SrtfIsOptimalOnOneGpu) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Rng rng(derive_key(seed, "srtf optimum"));
    std::vector<Job> jobs;
    std::vector<int> lengths;
    for (uint64_t i = 0, count = 2 + rng.below(4); i < count; ++i) {
      lengths.push_back(1 + static_cast<int>(rng.below(5)));
      jobs.push_back(plain_job(static_cast<double>(rng.below(7)), 1, lengths.back()));
    }
    // Arrivals in order, lengths with them.
    std::vector<size_t> by_arrival(jobs.size());
    for (size_t i = 0; i < jobs.size(); ++i) by_arrival[i] = i;
    std::ranges::stable_sort(by_arrival, {}, [&](size_t i) { return jobs[i].arrival_ns; });
    std::vector<Job> sorted;
    std::vector<int> left;
    for (const size_t i : by_arrival) {
      sorted.push_back(jobs[i]);
      left.push_back(lengths[i]);
    }
    double sum = 0;
    for (const double end : ends_of("srtf", sorted, 1)) sum += end;
    EXPECT_EQ(sum, Optimum(sorted).best(0, left)) << seed;
  }
}

// Short jobs that hold two of four GPUs at any time, and one that wants all four.
std::vector<Job> stream_with_a_wide_job() {
  std::vector<Job> jobs;
  for (int i = 0; i < 2000; ++i) {
    jobs.push_back(plain_job(5 * i, 1, 10));
    if (i == 2) jobs.push_back(plain_job(11, 4, 60));
  }
  return jobs;
}

TEST(ClusterPolicy, AgeingEndsStarvation) {
  const auto wide_start_s = [&](double urgent_factor) {
    QueuePolicy policy(
        {.round_ns = 10 * kSecond, .urgent_factor = urgent_factor, .urgent_min_ns = 100 * kSecond},
        make_order({.kind = OrderKind::kSjf}), make_blind_placer(PlacementKind::kPack, 1));
    const auto result = run(cluster_of(1, 1, 4), workload_of(stream_with_a_wide_job()), policy);
    return static_cast<double>(result.outcomes[3].first_start_ns) / kSecond;
  };
  EXPECT_GT(wide_start_s(-1), 9000);
  // Urgent after 100 + 60 s, seen in the next round; then what runs ends within 10 s.
  EXPECT_LE(wide_start_s(1), 11 + 160 + 10 + 10);
}

Job talking_pair(double arrival_s, double length_s) {
  Job job = plain_job(arrival_s, 2, length_s / 2);  // a second each of computing and talking
  job.nodes = 2;
  job.bytes[0] = 1e9;
  return job;
}

TEST(ContentionPlacer, GoesWhereNobodyTalks) {
  const Workload pair = workload_of({talking_pair(0, 20), talking_pair(0, 20)});
  EXPECT_THAT(ends_s(run(cluster_of(1, 4, 2), pair, "fifo/pack")), ElementsAre(30, 30));
  EXPECT_THAT(ends_s(run(cluster_of(1, 4, 2), pair, "fifo/contention")), ElementsAre(20, 20));
}

// Beside the first the second would do 2/3 and cost it 1/3: a score of 1/3.
TEST(ContentionPlacer, WaitsWhereStartingDoesNotPay) {
  const Workload pair = workload_of({talking_pair(0, 20), talking_pair(0, 20)});
  EXPECT_THAT(ends_s(run(cluster_of(1, 2, 2), pair, "fifo/contention")), ElementsAre(20, 40));
  // A threshold of 0.7 falls to nothing in an hour, so it passes 1/3 at 1886 s; rounds are every
  // 300 s.
  const Workload longer = workload_of({talking_pair(0, 4000), talking_pair(0, 100)});
  const auto result = run(cluster_of(1, 2, 2), longer, "fifo/contention");
  EXPECT_EQ(result.outcomes[1].first_start_ns, 2100 * kSecond);
}

// X and Y must share two nodes until Z frees the others at 90 s. The first round that sees it is at
// 120 s; the plan holds in the next and one of them moves at 180 s.
TEST(ContentionPlacer, MovesWhatStandsBadlyWhenThePlanHolds) {
  Job z = plain_job(0, 4, 90);
  z.nodes = 2;
  Job x = talking_pair(1, 6000), y = talking_pair(1, 6000);
  x.restart_ns = y.restart_ns = 30 * kSecond;
  QueuePolicy policy({.round_ns = 60 * kSecond}, make_order({}),
                     make_contention_placer({.threshold = 0}));
  const auto result = run(cluster_of(1, 4, 2), workload_of({z, x, y}), policy);
  EXPECT_EQ(result.outcomes[1].migrations + result.outcomes[2].migrations, 1);
  // 179 s at 2/3 of the speed, then a restart for one of them.
  const double done_s = 179 * 2 / 3.0;
  std::vector<double> ends = ends_s(result);
  std::ranges::sort(ends);
  EXPECT_NEAR(ends[1], 180 + 6000 - done_s, 1e-3);
  EXPECT_NEAR(ends[2], 180 + 6000 - done_s + 30, 1e-3);
}

TEST(ContentionPlacer, MovesNobodyWhoCannotBeStopped) {
  Job z = plain_job(0, 4, 90);
  z.nodes = 2;
  Job x = talking_pair(1, 6000), y = talking_pair(1, 6000);
  x.restart_ns = y.restart_ns = 30 * kSecond;
  x.stoppable = y.stoppable = false;
  QueuePolicy policy({.round_ns = 60 * kSecond}, make_order({}),
                     make_contention_placer({.threshold = 0}));
  const auto result = run(cluster_of(1, 4, 2), workload_of({z, x, y}), policy);
  EXPECT_EQ(result.outcomes[1].migrations + result.outcomes[2].migrations, 0);
}

TEST(ContentionPlacer, StaysWhereAMoveCostsMoreThanItGains) {
  Job z = plain_job(0, 4, 90);
  z.nodes = 2;
  Job x = talking_pair(1, 400), y = talking_pair(1, 400);
  x.restart_ns = y.restart_ns = 200 * kSecond;
  QueuePolicy policy({.round_ns = 60 * kSecond}, make_order({}),
                     make_contention_placer({.threshold = 0}));
  const auto result = run(cluster_of(1, 4, 2), workload_of({z, x, y}), policy);
  EXPECT_EQ(result.outcomes[1].migrations + result.outcomes[2].migrations, 0);
}

// As above, but told that the jobs are much longer than they are.
TEST(ContentionPlacer, GoesByLengthsAsTheyAreEstimated) {
  LengthEstimates told{.noise = 1000};
  while (told.factor(1) < 100 || told.factor(2) < 100) ++told.seed;
  Job z = plain_job(0, 4, 90);
  z.nodes = 2;
  Job x = talking_pair(1, 400), y = talking_pair(1, 400);
  x.restart_ns = y.restart_ns = 200 * kSecond;
  QueuePolicy moves({.round_ns = 60 * kSecond}, make_order({}),
                    make_contention_placer({.threshold = 0, .lengths = told}));
  const auto moved = run(cluster_of(1, 4, 2), workload_of({z, x, y}), moves);
  EXPECT_EQ(moved.outcomes[1].migrations + moved.outcomes[2].migrations, 1);
  // Of a job of 100 s and more the threshold would be passed at 2100 s; of a longer one not before
  // the other has ended.
  QueuePolicy waits({.round_ns = 300 * kSecond}, make_order({}),
                    make_contention_placer({.lengths = told}));
  const Workload pair = workload_of({talking_pair(0, 4000), talking_pair(0, 100)});
  EXPECT_EQ(run(cluster_of(1, 2, 2), pair, waits).outcomes[1].first_start_ns, 4000 * kSecond);
}

}  // namespace
}  // namespace jige::cluster
