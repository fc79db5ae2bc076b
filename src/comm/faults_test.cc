// Groups of real processes: joining, death, silence, and what is left behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "comm/join.h"
#include "comm/local_ranks.h"
#include "comm/test_support.h"

namespace jige::comm {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kTreeBytesMax = 100'000;

// What each process has to say, in memory that all share.
struct Reports {
  struct Page {
    std::atomic<int> state;  // 1: joined, 2: there is an error
    int64_t failed_ns;
    char error[1000];
  };
  Page* pages;

  Reports() {
    pages = static_cast<Page*>(mmap(nullptr, sizeof(Page) * 16, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~Reports() { munmap(pages, sizeof(Page) * 16); }
  void put(int rank, const std::string& error) {
    Page& page = pages[rank];
    page.failed_ns = monotonic_ns();
    error.copy(page.error, sizeof page.error - 1);
    page.state.store(2);
  }
  // Waits until all ranks but one are in a state.
  bool wait_for_others(int except, int state) {
    const Deadline deadline = Deadline::after(10);
    for (int r = 0; r < kRanks; ++r) {
      while (r != except && pages[r].state.load() < state) {
        if (deadline.passed()) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    return true;
  }
};

using RankBody = std::function<Status(Communicator&, Reports&)>;

// Starts processes that join over a transport and run the body; errors go to the reports.
LocalRanks start_group(const std::string& transport, Listener& listener, Reports& reports,
                       double timeout_s, const RankBody& body) {
  auto ranks = LocalRanks::start(kRanks, [&](int rank) {
    RingPlan plan = RingPlan::in_rank_order(kRanks);
    std::swap(plan.rings[0].order[1], plan.rings[0].order[2]);
    plan.trees = TreePair::over(plan.rings[0].order);
    plan.trees->bytes_max = kTreeBytesMax;
    const JoinOptions options = {.place = {rank, kRanks, "test"},
                                 .rendezvous = listener.address(),
                                 .transport = transport,
                                 .timeout_s = 10};
    auto joined = join_group(options, plan, rank == 0 ? &listener : nullptr);
    if (!joined) {
      reports.put(rank, joined.error().message);
      return 1;
    }
    auto group = Communicator::over(std::move(*joined), plan, {.timeout_s = timeout_s});
    const Status ran = body(*group, reports);
    if (!ran) reports.put(rank, ran.error().message);
    return ran ? 0 : 1;
  });
  EXPECT_TRUE(ranks);
  return std::move(*ranks);
}

// Sums without end; rank 2 does something in the middle.
Status sum_until_failure(Communicator& group, Reports& reports, int64_t count,
                         const std::function<void()>& in_the_middle) {
  std::vector<float> data(static_cast<size_t>(count));
  for (int i = 0;; ++i) {
    if (i == 10) reports.pages[group.rank()].state.store(1);
    if (i == 10 && group.rank() == 2) in_the_middle();
    JIGE_DO(group.all_reduce(data.data(), data.data(), count, DType::kF32, RedOp::kSum));
  }
}

// Files of this program alone: others keep theirs there, and folders.
// Those of the transport, by the name of its memory; other programs have files there, too.
std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    std::error_code gone;
    const std::string name = entry.path().filename().string();
    const bool is_own = name.find("jige-collectives") != std::string::npos;
    if (is_own && entry.is_regular_file(gone)) names.insert(name);
  }
  return names;
}

class Processes : public testing::TestWithParam<const char*> {};

TEST_P(Processes, JoinAndReduce) {
  Listener listener = *Listener::open({"127.0.0.1", 0});
  Reports reports;
  LocalRanks ranks =
      start_group(GetParam(), listener, reports, 10, [](Communicator& group, Reports&) -> Status {
        for (const int64_t count : {3, 20'000, 300'000}) {
          std::vector<int32_t> data(static_cast<size_t>(count), group.rank() + 1);
          JIGE_DO(group.all_reduce(data.data(), data.data(), count, DType::kI32, RedOp::kSum));
          for (const int32_t value : data) {
            if (value != 10) return fail(Code::kInternal, "{} is not 10", value);
          }
        }
        return group.barrier();
      });
  EXPECT_THAT(ranks.wait(), testing::Each(0));
  for (int r = 0; r < kRanks; ++r) EXPECT_STREQ(reports.pages[r].error, "");
}

TEST_P(Processes, AKilledRankIsNamedByAllOthersAndLeavesNothing) {
  const auto files = shared_memory_files();
  // Directly, by trees, along the ring.
  for (const int64_t count : {100, 20'000, 200'000}) {
    Listener listener = *Listener::open({"127.0.0.1", 0});
    Reports reports;
    LocalRanks ranks =
        start_group(GetParam(), listener, reports, 10, [&](Communicator& group, Reports& shared) {
          return sum_until_failure(group, shared, count, [&] {
            shared.pages[2].failed_ns = monotonic_ns();
            raise(SIGKILL);
          });
        });
    EXPECT_THAT(ranks.wait(), testing::ElementsAre(1, 1, 128 + SIGKILL, 1));
    for (const int r : {0, 1, 3}) {
      EXPECT_THAT(std::string(reports.pages[r].error), testing::HasSubstr("rank 2 ("))
          << "rank " << r;
      const int64_t took_ns = reports.pages[r].failed_ns - reports.pages[2].failed_ns;
      EXPECT_LT(static_cast<double>(took_ns) * 1e-9, 2.0) << "rank " << r;
    }
  }
  EXPECT_EQ(shared_memory_files(), files);
}

TEST_P(Processes, AStoppedRankIsNamedByTheDeadline) {
  // Both at once, since most of it is waiting.
  const int64_t counts[] = {2000, 20'000};
  Reports reports[2];
  std::vector<Listener> listeners;
  std::vector<LocalRanks> groups;
  for (size_t g = 0; g < 2; ++g) {
    listeners.push_back(*Listener::open({"127.0.0.1", 0}));
    groups.push_back(start_group(
        GetParam(), listeners[g], reports[g], 0.4, [&](Communicator& group, Reports& shared) {
          return sum_until_failure(group, shared, counts[g], [] { raise(SIGSTOP); });
        }));
  }
  for (Reports& of_group : reports) {
    ASSERT_TRUE(of_group.wait_for_others(2, 2));
    for (const int r : {0, 1, 3}) {
      EXPECT_THAT(std::string(of_group.pages[r].error),
                  testing::HasSubstr("nothing was heard of rank 2 ("))
          << "rank " << r;
    }
  }
}

// As Ctrl-Z and a scheduler that suspends jobs do it. Who is let go first must not take the others
// for dead.
TEST_P(Processes, AGroupThatIsStoppedAsAWholeGoesOn) {
  constexpr double kTimeoutSeconds = 1;
  Listener listener = *Listener::open({"127.0.0.1", 0});
  Reports reports;
  const auto body = [](Communicator& group, Reports& shared) -> Status {
    JIGE_DO(group.barrier());
    std::atomic<int>& state = shared.pages[group.rank()].state;
    state.store(1);
    const Deadline deadline = Deadline::after(10);
    while (group.rank() == 2 && state.load() != 3 && !deadline.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return group.barrier();
  };
  LocalRanks ranks = start_group(GetParam(), listener, reports, kTimeoutSeconds, body);
  ASSERT_TRUE(reports.wait_for_others(2, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ranks.send_signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  for (int r = 0; r < kRanks; ++r) {
    kill(ranks.pid(r), SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  reports.pages[2].state.store(3);
  EXPECT_THAT(ranks.wait(), testing::Each(0));
  for (int r = 0; r < kRanks; ++r) EXPECT_STREQ(reports.pages[r].error, "");
}

TEST_P(Processes, RanksWithOtherRingsOrAMissingRankAreRefusedByName) {
  const std::string transport = GetParam();
  Listener listener = *Listener::open({"127.0.0.1", 0});
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      RingPlan plan = RingPlan::in_rank_order(2);
      if (r == 1) plan.piece_bytes = 128;
      const JoinOptions options = {.place = {r, 2, "test"},
                                   .rendezvous = listener.address(),
                                   .transport = transport,
                                   .timeout_s = 5};
      auto joined = join_group(options, plan, r == 0 ? &listener : nullptr);
      if (!joined) errors[static_cast<size_t>(r)] = joined.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_THAT(error, testing::HasSubstr("other rings"));

  const JoinOptions alone = {.place = {0, 3, "test"}, .transport = transport, .timeout_s = 0.1};
  const auto joined = join_group(alone, RingPlan::in_rank_order(3), &listener);
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, testing::HasSubstr("1, 2"));
}

INSTANTIATE_TEST_SUITE_P(All, Processes, testing::Values("shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace jige::comm
