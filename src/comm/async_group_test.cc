// Collectives beside computation: the bits of the blocking form, parts before the whole, messages,
// and what becomes of the group when a rank fails.

#include "comm/async_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <csignal>

#include "comm/join.h"
#include "comm/local_ranks.h"
#include "comm/range_set.h"
#include "comm/test_support.h"

namespace jige::comm {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

using AsyncBody = std::function<Status(AsyncGroup&)>;

// Runs body on every rank, each on its thread with an asynchronous group.
std::vector<std::string> run_async(Transports transports, const RingPlan& plan, double timeout_s,
                                   const AsyncBody& body) {
  return run_ranks(std::move(transports), plan, {.timeout_s = timeout_s},
                   [&](Communicator& group) -> Status {
                     const auto async = AsyncGroup::over(std::move(group));
                     const Status ran = body(*async);
                     if (!ran) async->fail_with(ran.error());
                     return ran;
                   });
}

RingPlan two_plain_rings(int size) {
  RingPlan plan = RingPlan::in_rank_order(size);
  Ring other = plan.rings[0];
  std::reverse(other.order.begin(), other.order.end());
  other.weight = 0.5;
  plan.rings.push_back(other);
  plan.piece_bytes = 1024;
  return plan;
}

Transports delayed(Transports transports, uint64_t seed) {
  for (auto& transport : transports) {
    transport = std::make_unique<DelayedTransport>(std::move(transport), seed);
  }
  return transports;
}

struct Work {
  Collective collective;
  DType dtype;
  RedOp redop = RedOp::kSum;
  int64_t count = 0;
  int root = 0;
};

std::vector<Work> works() {
  return {{Collective::kAllReduce, DType::kF32, RedOp::kSum, 5000},
          {Collective::kAllReduce, DType::kBF16, RedOp::kAvg, 777},
          {Collective::kReduceScatter, DType::kF32, RedOp::kSum, 900},
          {Collective::kAllGather, DType::kI32, RedOp::kSum, 301},
          {Collective::kBroadcast, DType::kF32, RedOp::kSum, 4001, 2},
          {Collective::kReduce, DType::kF16, RedOp::kMax, 1203, 1},
          {Collective::kAllReduce, DType::kF32, RedOp::kSum, 0},
          {Collective::kAllReduce, DType::kF32, RedOp::kSum, 3},
          {Collective::kBroadcast, DType::kF32, RedOp::kSum, 1, 0}};
}

struct Buffers {
  std::vector<std::byte> src, dst;
};

Buffers buffers_of(const Work& work, int rank, int n) {
  const bool whole_src = work.collective == Collective::kReduceScatter;
  const bool whole_dst = work.collective == Collective::kAllGather;
  const int64_t dst_count = whole_dst ? work.count * n : work.count;
  return {.src = test_data(work.dtype, rank, whole_src ? work.count * n : work.count),
          .dst = std::vector<std::byte>(static_cast<size_t>(dtype_bytes(work.dtype, dst_count)))};
}

Operation operation_of(const Work& work, Buffers& buffers) {
  return {.collective = work.collective,
          .dtype = work.dtype,
          .redop = work.redop,
          .count = work.count,
          .root = work.root,
          .src = buffers.src.data(),
          .dst = buffers.dst.data()};
}

class OverTransports : public testing::TestWithParam<const char*> {};

TEST_P(OverTransports, GivesTheBitsOfTheBlockingFormWithManyAtOnce) {
  constexpr int kRanks = 3;
  const RingPlan plan = two_plain_rings(kRanks);
  std::vector<std::vector<Buffers>> expected(kRanks);
  const auto block = run_ranks(make_transports(GetParam(), kRanks, plan), plan, {.timeout_s = 20},
                               [&](Communicator& group) -> Status {
                                 for (const Work& work : works()) {
                                   Buffers made = buffers_of(work, group.rank(), kRanks);
                                   JIGE_DO(group.run(operation_of(work, made)));
                                   expected[static_cast<size_t>(group.rank())].push_back(made);
                                 }
                                 return {};
                               });
  ASSERT_THAT(block, Each(""));
  for (const bool delays : {false, true}) {
    Transports transports = make_transports(GetParam(), kRanks, plan);
    if (delays) transports = delayed(std::move(transports), 5);
    const auto errors =
        run_async(std::move(transports), plan, 20, [&](AsyncGroup& group) -> Status {
          std::vector<Buffers> got;
          std::vector<Pending> pending;
          for (const Work& work : works()) got.push_back(buffers_of(work, group.rank(), kRanks));
          for (size_t i = 0; i < got.size(); ++i) {
            pending.push_back(group.start(operation_of(works()[i], got[i])));
          }
          for (size_t i = 0; i < got.size(); ++i) {
            JIGE_DO(pending[i].wait());
            JIGE_DO(pending[i].wait_for(0, works()[i].count));
            const auto& want = expected[static_cast<size_t>(group.rank())][i].dst;
            if (got[i].dst != want) return fail(Code::kInternal, "work {} has other bits", i);
          }
          return {};
        });
    EXPECT_THAT(errors, Each("")) << "delays " << delays;
  }
}

TEST_P(OverTransports, PassesMessagesOnInOrderBesideCollectives) {
  constexpr int kRanks = 4;
  constexpr int kRounds = 6;
  const RingPlan plan = two_plain_rings(kRanks);
  const auto errors = run_async(
      delayed(make_transports(GetParam(), kRanks, plan), 9), plan, 20,
      [&](AsyncGroup& group) -> Status {
        const int next = (group.rank() + 1) % kRanks;
        const int previous = (group.rank() + kRanks - 1) % kRanks;
        std::vector<std::vector<float>> parts(5, std::vector<float>(2000 + 13));
        std::vector<std::vector<float>> sums(kRounds, std::vector<float>(700, 1.0f));
        std::vector<Pending> sent(parts.size());
        std::vector<Pending> pending;
        for (int round = 0; round < kRounds; ++round) {
          std::vector<float>& sum = sums[static_cast<size_t>(round)];
          auto* data = reinterpret_cast<std::byte*>(sum.data());
          pending.push_back(group.start({.count = 700, .src = data, .dst = data}));
          for (size_t p = 0; p < parts.size(); ++p) {
            const std::span<std::byte> bytes = std::as_writable_bytes(std::span(parts[p]));
            const auto tag = static_cast<uint64_t>(round) * 100 + p;
            JIGE_DO(sent[p].wait());
            const bool first = round == 0 && group.rank() == 0;
            // Rank 0 takes up what the last rank has left in the round before.
            const uint64_t came = group.rank() == 0 ? tag - 100 : tag;
            if (!first) JIGE_DO(group.receive(previous, bytes, came).wait());
            for (float& value : parts[p]) value += 1;
            const bool last = round == kRounds - 1 && group.rank() == kRanks - 1;
            if (!last) sent[p] = group.send(next, bytes, tag);
          }
        }
        for (const Pending& each : pending) JIGE_DO(each.wait());
        for (const Pending& each : sent) JIGE_DO(each.wait());
        for (const auto& sum : sums) {
          if (sum != std::vector<float>(700, 4.0f)) return fail(Code::kInternal, "a wrong sum");
        }
        const auto expected = static_cast<float>((kRounds - 1) * kRanks + group.rank() + 1);
        for (const auto& part : parts) {
          if (part != std::vector<float>(part.size(), expected)) {
            return fail(Code::kInternal, "{} is not {}", part[0], expected);
          }
        }
        return {};
      });
  EXPECT_THAT(errors, Each(""));
}

// Over all transports at once, since most of it is waiting.
TEST(AsyncGroup, WaitsForARankThatComputesLongerThanTheTimeout) {
  const RingPlan plan = RingPlan::in_rank_order(2);
  const auto late_sum = [](AsyncGroup& group) -> Status {
    // More than connections and the buffers before them take.
    std::vector<std::byte> message(16 << 20);
    Pending sent;
    if (group.rank() == 0) sent = group.send(1, message, 1);
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(650));
    if (group.rank() == 1) sent = group.receive(0, message, 1);
    JIGE_DO(sent.wait());
    std::vector<float> data(100, 1.0f);
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(650));
    return group.start({.count = 100, .src = bytes, .dst = bytes}).wait();
  };
  const char* kinds[] = {"threads", "shm", "tcp"};
  std::vector<std::string> errors[3];
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back(
        [&, i] { errors[i] = run_async(make_transports(kinds[i], 2, plan), plan, 0.3, late_sum); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 3; ++i) EXPECT_THAT(errors[i], Each("")) << kinds[i];
}

TEST_P(OverTransports, NamesARankThatFailsAndOneThatCallsSomethingElse) {
  const RingPlan plan = RingPlan::in_rank_order(3);
  std::vector<float> data(100);
  const auto failed =
      run_async(make_transports(GetParam(), 3, plan), plan, 10, [](AsyncGroup& group) -> Status {
        if (group.rank() == 1) return fail(Code::kIo, "the disk is gone");
        std::vector<float> own(100);
        auto* bytes = reinterpret_cast<std::byte*>(own.data());
        return group.start({.count = 100, .src = bytes, .dst = bytes}).wait();
      });
  for (const size_t r : {0, 2}) {
    EXPECT_THAT(failed[r], HasSubstr("rank 1 ("));
    EXPECT_THAT(failed[r], HasSubstr("the disk is gone"));
  }
  const auto differ =
      run_async(make_transports(GetParam(), 3, plan), plan, 10, [](AsyncGroup& group) -> Status {
        std::vector<float> own(100);
        auto* bytes = reinterpret_cast<std::byte*>(own.data());
        const int64_t count = group.rank() == 2 ? 99 : 100;
        return group.start({.count = count, .src = bytes, .dst = bytes}).wait();
      });
  for (const std::string& error : differ) EXPECT_THAT(error, HasSubstr("all_reduce of 99 f32"));
  RingPlan with_trees = plan;
  with_trees.trees = TreePair::over({0, 1, 2});
  with_trees.trees->bytes_max = 1000;
  const auto lanes = run_async(
      make_transports(GetParam(), 3, with_trees), with_trees, 10, [](AsyncGroup& group) -> Status {
        // One by trees, one by rings: neither rank listens where the other talks.
        std::vector<float> own(1000);
        auto* bytes = reinterpret_cast<std::byte*>(own.data());
        const int64_t count = group.rank() == 2 ? 1000 : 100;
        return group.start({.count = count, .src = bytes, .dst = bytes}).wait();
      });
  for (const std::string& error : lanes) EXPECT_THAT(error, HasSubstr("all_reduce of 1000 f32"));
  const auto tags =
      run_async(make_transports(GetParam(), 3, plan), plan, 10, [](AsyncGroup& group) -> Status {
        std::vector<std::byte> own(128);
        if (group.rank() == 0) return group.send(1, own, 7).wait();
        if (group.rank() == 1) return group.receive(0, own, 8).wait();
        return {};
      });
  EXPECT_THAT(tags[1], HasSubstr("calls message 7 of 128 bytes to rank 1; this rank calls"));
}

INSTANTIATE_TEST_SUITE_P(All, OverTransports, testing::Values("threads", "shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

// Gives no more room after some bytes, until it is opened.
class GatedTransport final : public Transport {
 public:
  GatedTransport(std::unique_ptr<Transport> inner, int64_t bytes, const std::atomic<bool>& open)
      : Transport(inner->rank(), {inner->host(0), inner->host(1)}, inner->stream_bytes()),
        inner_(std::move(inner)),
        left_(bytes),
        open_(open) {}
  const char* kind() const override { return "gated"; }
  Result<std::span<const std::byte>> ready(Link link) override { return inner_->ready(link); }
  void consume(Link link, int64_t bytes) override { inner_->consume(link, bytes); }
  Result<std::span<std::byte>> room(Link link) override {
    JIGE_TRY(const std::span<std::byte> room, inner_->room(link));
    if (open_) return room;
    return room.first(std::min(room.size(), static_cast<size_t>(left_)));
  }
  Status commit(Link link, int64_t bytes) override {
    left_ = std::max<int64_t>(0, left_ - bytes);
    return inner_->commit(link, bytes);
  }
  Status flush(Deadline deadline) override { return inner_->flush(deadline); }
  Status wait(std::span<const Want>, Deadline) override {
    return inner_->wait({}, Deadline::after(0.002));
  }
  void interrupt() override { inner_->interrupt(); }
  void abort(const Error& error) override { inner_->abort(error); }
  Error timeout_error(std::span<const Want> wants, double seconds) override {
    return inner_->timeout_error(wants, seconds);
  }
  double silent_seconds(int rank) const override { return inner_->silent_seconds(rank); }

 private:
  std::unique_ptr<Transport> inner_;
  int64_t left_;
  const std::atomic<bool>& open_;
};

TEST(AsyncGroup, GivesPartsBeforeTheWhole) {
  for (const Collective collective : {Collective::kBroadcast, Collective::kAllReduce}) {
    constexpr int64_t kCount = 64 * 1024;
    RingPlan plan = RingPlan::in_rank_order(2);
    plan.piece_bytes = 4096;
    std::atomic<bool> open{false};
    Transports transports = *make_thread_transports(2, plan);
    transports[0] = std::make_unique<GatedTransport>(std::move(transports[0]), 64 + 100'032, open);
    const auto errors =
        run_async(std::move(transports), plan, 20, [&](AsyncGroup& group) -> Status {
          std::vector<float> data(kCount, static_cast<float>(group.rank() + 1));
          auto* bytes = reinterpret_cast<std::byte*>(data.data());
          const Pending all =
              group.start({.collective = collective, .count = kCount, .src = bytes, .dst = bytes});
          if (group.rank() == 0) return all.wait();
          const float expected = collective == Collective::kBroadcast ? 1 : 3;
          constexpr int64_t kPart = 10 * 1024;
          JIGE_DO(all.wait_for(0, kPart));
          for (int64_t i = 0; i < kPart; ++i) {
            if (data[static_cast<size_t>(i)] != expected)
              return fail(Code::kInternal, "part {}", i);
          }
          if (all.is_over()) return fail(Code::kInternal, "the gate was shut");
          open = true;
          JIGE_DO(all.wait());
          const bool whole = data == std::vector<float>(kCount, expected);
          return whole ? Status() : Status(fail(Code::kInternal, "the whole"));
        });
    EXPECT_THAT(errors, Each("")) << collective_name(collective);
  }
}

TEST_P(OverTransports, TellWhoStartsNothingThatAnotherHasFailed) {
  const RingPlan plan = two_plain_rings(3);
  const auto errors =
      run_async(make_transports(GetParam(), 3, plan), plan, 20, [&](AsyncGroup& group) -> Status {
        JIGE_DO(group.health());
        if (group.rank() == 1) return fail(Code::kExhausted, "full");
        for (const StopWatch watch; watch.seconds() < 10;) {
          JIGE_DO(group.health());
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return {};
      });
  for (const int r : {0, 2}) {
    EXPECT_THAT(errors[static_cast<size_t>(r)], AllOf(HasSubstr("rank 1"), HasSubstr("full")));
  }
}

TEST(AsyncGroup, OfOneRankAndWhatItCannotRun) {
  auto transports = *make_thread_transports(1, RingPlan::in_rank_order(1));
  const auto group = AsyncGroup::over(
      *Communicator::over(std::move(transports[0]), RingPlan::in_rank_order(1), {}));
  float value = 2;
  float sum = 0;
  const Pending pending = group->start({.count = 1,
                                        .src = reinterpret_cast<std::byte*>(&value),
                                        .dst = reinterpret_cast<std::byte*>(&sum)});
  EXPECT_TRUE(pending.wait());
  EXPECT_EQ(sum, 2);
  const Status refused = group->start({.collective = Collective::kBarrier}).wait();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_TRUE(Pending().wait());
  EXPECT_TRUE(Pending().is_over());
}

// Of one of three processes; null where it could not join.
std::unique_ptr<AsyncGroup> join_three(int rank, Listener& listener, const char* transport,
                                       double timeout_s) {
  const RingPlan plan = RingPlan::in_rank_order(3);
  auto joined = join_group({.place = {rank, 3, "test"},
                            .rendezvous = listener.address(),
                            .transport = transport,
                            .timeout_s = 10},
                           plan, rank == 0 ? &listener : nullptr);
  if (!joined) return nullptr;
  return AsyncGroup::over(*Communicator::over(std::move(*joined), plan, {.timeout_s = timeout_s}));
}

// A group of three processes; rank 1 does something to itself while the others are busy or idle.
std::vector<int> run_processes(const char* transport, double timeout_s, bool idle, int signal,
                               std::array<double, 3>* seconds, std::array<std::string, 3>* texts) {
  Listener listener = *Listener::open({"127.0.0.1", 0});
  struct Page {
    double seconds;
    char text[500];
  };
  auto* pages = static_cast<Page*>(
      mmap(nullptr, sizeof(Page) * 3, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::atomic<int>* ended =
      new (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
          std::atomic<int>(0);
  auto ranks = LocalRanks::start(3, [&](int rank) {
    const auto group = join_three(rank, listener, transport, timeout_s);
    if (!group) return 2;
    std::vector<float> data(50'000);
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    const auto sum = [&] {
      return group->start({.count = 50'000, .src = bytes, .dst = bytes}).wait();
    };
    // What a rank that dies has not sent yet is missing in the sum before.
    StopWatch watch;
    Status ran;
    for (int i = 0; ran && i < 4; ++i) {
      watch = StopWatch();
      if (i == 3 && rank == 1) raise(signal);
      if (i == 3 && idle) std::this_thread::sleep_for(std::chrono::milliseconds(150));
      ran = sum();
    }
    pages[rank].seconds = watch.seconds();
    if (!ran) ran.error().message.copy(pages[rank].text, sizeof(pages[rank].text) - 1);
    ended->fetch_add(1);
    return ran ? 0 : 1;
  });
  EXPECT_TRUE(ranks);
  const Deadline deadline = Deadline::after(10);
  while (ended->load() < 2 && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(ranks->pid(1), SIGKILL);
  const std::vector<int> codes = ranks->wait();
  for (size_t r = 0; r < 3; ++r) {
    (*seconds)[r] = pages[r].seconds;
    (*texts)[r] = pages[r].text;
  }
  munmap(pages, sizeof(Page) * 3);
  munmap(ended, 4096);
  return codes;
}

TEST(AsyncGroup, NamesAProcessThatDiesOrStandsStillWithinTheDeadline) {
  for (const char* transport : {"shm", "tcp"}) {
    for (const bool idle : {false, true}) {
      std::array<double, 3> seconds = {};
      std::array<std::string, 3> texts;
      run_processes(transport, 10, idle, SIGKILL, &seconds, &texts);
      for (const size_t r : {0, 2}) {
        EXPECT_THAT(texts[r], HasSubstr("rank 1 (")) << transport << idle;
        EXPECT_LT(seconds[r], 2.0) << transport << idle;
      }
    }
    std::array<double, 3> seconds = {};
    std::array<std::string, 3> texts;
    run_processes(transport, 0.4, false, SIGSTOP, &seconds, &texts);
    for (const size_t r : {0, 2}) {
      EXPECT_THAT(texts[r], HasSubstr("nothing was heard of rank 1 (")) << transport;
      EXPECT_LT(seconds[r], 3.0) << transport;
    }
  }
}

// Let go one after another, the first must not take the others for dead.
TEST(AsyncGroup, GoesOnAfterAllOfItWasStopped) {
  for (const char* transport : {"shm", "tcp"}) {
    Listener listener = *Listener::open({"127.0.0.1", 0});
    auto* all = static_cast<std::byte*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    auto* ready = new (all) std::atomic<int>(0);
    auto* late = new (all + 64) std::atomic<bool>(false);
    auto ranks = LocalRanks::start(3, [&](int rank) {
      const auto group = join_three(rank, listener, transport, 1);
      if (!group) return 2;
      ready->fetch_add(1);
      const Deadline deadline = Deadline::after(10);
      while (rank == 1 && !*late && !deadline.passed()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::vector<float> data(1000);
      auto* bytes = reinterpret_cast<std::byte*>(data.data());
      return group->start({.count = 1000, .src = bytes, .dst = bytes}).wait() ? 0 : 1;
    });
    ASSERT_TRUE(ranks);
    while (*ready < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ranks->send_signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    for (int r = 0; r < 3; ++r) {
      kill(ranks->pid(r), SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
    }
    *late = true;
    EXPECT_THAT(ranks->wait(), Each(0)) << transport;
    munmap(all, 4096);
  }
}

TEST(RangeSet, KnowsWhatAListOfElementsKnows) {
  Rng rng(3);
  for (int round = 0; round < 200; ++round) {
    RangeSet set;
    std::array<bool, 40> there = {};
    for (int i = 0; i < 12; ++i) {
      const auto begin = static_cast<int64_t>(rng.below(40));
      const auto count = static_cast<int64_t>(rng.below(static_cast<uint64_t>(41 - begin)));
      set.add(begin, count);
      for (int64_t k = begin; k < begin + count; ++k) there[static_cast<size_t>(k)] = true;
      for (int64_t from = 0; from < 40; ++from) {
        bool all = true;
        for (int64_t to = from; to < 40; ++to) {
          all = all && there[static_cast<size_t>(to)];
          ASSERT_EQ(set.covers(from, to - from + 1), all) << from << " to " << to;
        }
        ASSERT_TRUE(set.covers(from, 0));
      }
    }
  }
}

}  // namespace
}  // namespace jige::comm
