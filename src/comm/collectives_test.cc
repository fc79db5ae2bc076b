// Every collective over every transport against a plain oracle, as bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "comm/test_support.h"

namespace jige::comm {
namespace {

struct Case {
  Collective collective;
  DType dtype = DType::kF32;
  RedOp redop = RedOp::kSum;
  int64_t count = 0;
  int root = 0;
  bool in_place = false;
};

std::string text_of(const Case& c, int rank) {
  return fmt::format("{} {} {} of {}, root {}, {}, rank {}", collective_name(c.collective),
                     dtype_info(c.dtype).name, redop_name(c.redop), c.count, c.root,
                     c.in_place ? "in place" : "out of place", rank);
}

bool src_is_whole(Collective c) {
  return c == Collective::kReduceScatter || c == Collective::kAllToAll;
}
bool dst_is_whole(Collective c) {
  return c == Collective::kAllGather || c == Collective::kAllToAll;
}

// What rank `rank` must have in dst; nothing where the collective leaves dst alone.
std::vector<std::byte> expected(const Case& c, const RingPlan& plan, int rank, int n) {
  const int64_t size = dtype_info(c.dtype).block_bytes;
  std::vector<std::vector<std::byte>> src;
  for (int r = 0; r < n; ++r) {
    src.push_back(test_data(c.dtype, r, src_is_whole(c.collective) ? c.count * n : c.count));
  }
  const auto block = [&](int from, int64_t index) {
    const auto begin = src[static_cast<size_t>(from)].begin() + index * c.count * size;
    return std::vector<std::byte>(begin, begin + c.count * size);
  };
  std::vector<std::byte> out;
  if (c.collective == Collective::kBroadcast) return src[static_cast<size_t>(c.root)];
  if (c.collective == Collective::kReduce && rank != c.root) return out;
  if (dst_is_whole(c.collective)) {
    for (int r = 0; r < n; ++r) {
      const auto part = block(r, c.collective == Collective::kAllToAll ? rank : 0);
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }
  out.resize(static_cast<size_t>(c.count * size));
  const int64_t offset = c.collective == Collective::kReduceScatter ? rank * c.count : 0;
  const std::vector<Range> parts = split_by_weight(plan, c.count, size);
  const bool on_trees = plan.takes_trees(c.collective, c.count * size) && n > 1;
  for (int64_t i = 0; i < c.count; ++i) {
    OracleStart start = all_reduce_start(plan, parts, size, i);
    const int owner = c.collective == Collective::kReduce ? c.root : rank;
    if (c.collective != Collective::kAllReduce) start.position = start.ring->position_of(owner) + 1;
    const auto of = [&](int r) {
      return load_element(c.dtype, src[static_cast<size_t>(r)].data() + (offset + i) * size);
    };
    const int root = c.collective == Collective::kReduce ? c.root : -1;
    const double value =
        on_trees ? reduce_element_on_trees(c.dtype, c.redop, *plan.trees, root, i, c.count, of)
                 : reduce_element(c.dtype, c.redop, start, of);
    store_element(c.dtype, value, out.data() + i * size);
  }
  return out;
}

Status run_case(Communicator& group, const Case& c) {
  const int n = group.size();
  const int64_t size = dtype_info(c.dtype).block_bytes;
  const int64_t block_bytes = c.count * size;
  const bool whole_src = src_is_whole(c.collective);
  const bool whole_dst = dst_is_whole(c.collective);
  std::vector<std::byte> src = test_data(c.dtype, group.rank(), whole_src ? c.count * n : c.count);
  const std::vector<std::byte> before = src;
  std::vector<std::byte> dst(static_cast<size_t>(whole_dst ? n * block_bytes : block_bytes) + 1,
                             std::byte{0x5a});
  Operation op = {.collective = c.collective,
                  .dtype = c.dtype,
                  .redop = c.redop,
                  .count = c.count,
                  .root = c.root,
                  .src = src.data(),
                  .dst = dst.data()};
  const int64_t own = group.rank() * block_bytes;
  if (c.in_place && c.collective == Collective::kAllGather) {
    std::copy(src.begin(), src.end(), dst.begin() + own);
    op.src = dst.data() + own;
  } else if (c.in_place && c.collective == Collective::kReduceScatter) {
    op.dst = src.data() + own;
  } else if (c.in_place) {
    std::copy(src.begin(), src.end(), dst.begin());
    op.src = dst.data();
  }
  JIGE_DO(group.run(op));
  const std::vector<std::byte> want = expected(c, group.plan(), group.rank(), n);
  const std::vector<std::byte> got(op.dst, op.dst + want.size());
  if (got != want) return fail(Code::kInternal, "wrong: {}", text_of(c, group.rank()));
  if (op.dst == dst.data() && dst.back() != std::byte{0x5a}) {
    return fail(Code::kInternal, "wrote behind the end: {}", text_of(c, group.rank()));
  }
  if (!c.in_place && src != before) {
    return fail(Code::kInternal, "changed src: {}", text_of(c, group.rank()));
  }
  return {};
}

std::vector<Case> all_cases(int n) {
  std::vector<Case> cases;
  const std::vector<int64_t> counts = {0, 1, n - 1, n + 1, 97, 450, 451};
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI32};
  int turn = 0;
  for (int k = 0; k < kCollectiveCount; ++k) {
    const auto collective = static_cast<Collective>(k);
    if (collective == Collective::kBarrier) continue;
    for (const int64_t count : counts) {
      // Two of the types at each count, in turns.
      for (const int t : {turn % 4, (turn + 1) % 4}) {
        const auto redop = static_cast<RedOp>((turn + t) % kRedOpCount);
        cases.push_back({collective, kTypes[t], redop, count, turn % n, (turn + t) / 2 % 2 == 1});
      }
      turn += 3;
    }
  }
  return cases;
}

RingPlan small_pieces(int n) {
  RingPlan plan = RingPlan::in_rank_order(n);
  plan.piece_bytes = 256;
  return plan;
}

// Two rings of different weight, the second backwards and turned.
RingPlan two_rings(int n) {
  RingPlan plan = small_pieces(n);
  Ring back = plan.rings[0];
  std::reverse(back.order.begin(), back.order.end());
  std::rotate(back.order.begin(), back.order.begin() + n / 2, back.order.end());
  back.weight = 0.6;
  plan.rings.push_back(back);
  return plan;
}

// Two rings and, for what is small, trees: the usual pair over a turned order, or chains, which
// have inner ranks of one child, or stars.
RingPlan with_trees(int n, int64_t bytes_max) {
  RingPlan plan = two_rings(n);
  if (n == 1) return plan;
  plan.trees = TreePair::over(plan.rings[1].order);
  if (n == 4) {
    plan.trees->parent = {{{1, 2, 3, -1}, {-1, 0, 1, 2}}};
  } else if (n == 5) {
    plan.trees->parent = {{{-1, 0, 0, 0, 0}, {2, 2, -1, 2, 2}}};
  }
  plan.trees->bytes_max = bytes_max;
  return plan;
}

Status run_all_cases(Communicator& group) {
  for (const int64_t direct_bytes_max : {int64_t{-1}, int64_t{1} << 30}) {
    group.set_direct_bytes_max(direct_bytes_max);
    for (const Case& c : all_cases(group.size())) JIGE_DO(run_case(group, c));
    JIGE_DO(group.barrier());
  }
  return {};
}

class OverTransport : public testing::TestWithParam<const char*> {};

TEST_P(OverTransport, EveryCollectiveHasTheOraclesBitsOnBothPaths) {
  for (int n = 1; n <= 6; ++n) {
    const RingPlan plan = n % 2 == 0 ? two_rings(n) : small_pieces(n);
    const auto errors = run_ranks(make_transports(GetParam(), n, plan), plan, {}, run_all_cases);
    for (const std::string& error : errors) EXPECT_EQ(error, "") << n << " ranks";
  }
}

// Messages of up to 1800 bytes take trees, whichever path carries them, larger ones rings.
TEST_P(OverTransport, TreesHaveTheOraclesBitsOnBothPathsUpToTheirSize) {
  for (const int n : {2, 4, 5, 6}) {
    const RingPlan plan = with_trees(n, 1800);
    const auto errors = run_ranks(make_transports(GetParam(), n, plan), plan, {}, run_all_cases);
    for (const std::string& error : errors) EXPECT_EQ(error, "") << n << " ranks";
  }
}

// Pieces that follow one another up and down, more of them than a stream holds.
TEST_P(OverTransport, TreesCarryMessagesOfManyPieces) {
  const RingPlan plan = with_trees(6, int64_t{1} << 40);
  const auto body = [&](Communicator& group) -> Status {
    group.set_direct_bytes_max(-1);
    for (const Collective c :
         {Collective::kAllReduce, Collective::kReduce, Collective::kBroadcast}) {
      JIGE_DO(
          run_case(group, {.collective = c, .dtype = DType::kBF16, .count = 17'001, .root = 4}));
      constexpr int64_t kCount = 120'001;
      std::vector<int32_t> data(kCount);
      std::iota(data.begin(), data.end(), group.rank());
      JIGE_DO(group.run({.collective = c,
                         .dtype = DType::kI32,
                         .count = kCount,
                         .root = 4,
                         .src = reinterpret_cast<const std::byte*>(data.data()),
                         .dst = reinterpret_cast<std::byte*>(data.data())}));
      if (c == Collective::kReduce && group.rank() != 4) continue;
      for (int64_t i = 0; i < kCount; ++i) {
        const int64_t wanted = c == Collective::kBroadcast ? i + 4 : 6 * i + 15;
        if (data[static_cast<size_t>(i)] != wanted) return fail(Code::kInternal, "at {}", i);
      }
    }
    return {};
  };
  const auto errors = run_ranks(make_transports(GetParam(), 6, plan), plan, {}, body);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(OverTransport, RandomDelaysInEveryLinkChangeNothing) {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    const int n = 1 + static_cast<int>(seed);
    const RingPlan plan = seed % 2 == 0 ? with_trees(n, 1 << 20) : two_rings(n);
    Transports delayed;
    for (auto& transport : make_transports(GetParam(), n, plan)) {
      delayed.push_back(std::make_unique<DelayedTransport>(std::move(transport), seed));
    }
    const auto body = [](Communicator& group) -> Status {
      int turn = 0;
      for (const Case& c : all_cases(group.size())) {
        if (++turn % 3 != 0 || c.count > 1000) continue;
        group.set_direct_bytes_max(turn % 2 == 0 ? -1 : 1 << 30);
        JIGE_DO(run_case(group, c));
      }
      return {};
    };
    for (const std::string& error : run_ranks(std::move(delayed), plan, {}, body)) {
      EXPECT_EQ(error, "") << n << " ranks";
    }
  }
}

// The parts that on_final names are right, each once, and belong to the caller from then on.
void expect_final_parts(Transports transports, const RingPlan& plan, int64_t count) {
  const int ranks = static_cast<int>(transports.size());
  const auto body = [&](Communicator& group) -> Status {
    group.set_direct_bytes_max(-1);
    const Case c = {.collective = Collective::kAllReduce, .count = count};
    const std::vector<std::byte> want = expected(c, plan, group.rank(), ranks);
    std::vector<std::byte> data = test_data(DType::kF32, group.rank(), count);
    std::vector<int> seen(static_cast<size_t>(count), 0);
    int64_t wrong = 0;
    int64_t calls = 0;
    const auto on_final = [&](int64_t begin, int64_t part) {
      ++calls;
      const auto bytes = static_cast<size_t>(part * 4);
      wrong += std::memcmp(data.data() + begin * 4, want.data() + begin * 4, bytes) != 0;
      std::memset(data.data() + begin * 4, 0, bytes);  // what is final belongs to the caller
      for (int64_t i = begin; i < begin + part; ++i) ++seen[static_cast<size_t>(i)];
    };
    JIGE_DO(group.all_reduce(data.data(), data.data(), count, DType::kF32, RedOp::kSum, on_final));
    const bool once = std::all_of(seen.begin(), seen.end(), [](int s) { return s == 1; });
    if (wrong > 0 || !once || calls < 10) {
      return fail(Code::kInternal, "{} wrong parts in {} calls, each once: {}", wrong, calls, once);
    }
    return {};
  };
  for (const std::string& error : run_ranks(std::move(transports), plan, {}, body)) {
    EXPECT_EQ(error, "");
  }
}

TEST_P(OverTransport, PartsAreFinalWhenTheyAreSaidToBe) {
  constexpr int kRanks = 4;
  for (const bool trees : {false, true}) {
    const RingPlan plan = trees ? with_trees(kRanks, 1 << 30) : two_rings(kRanks);
    expect_final_parts(make_transports(GetParam(), kRanks, plan), plan, trees ? 45'001 : 9001);
  }
}

TEST_P(OverTransport, LargeMessagesPass) {
  constexpr int64_t kCount = 700'001;
  const RingPlan plan = RingPlan::in_rank_order(3);
  const auto body = [&](Communicator& group) -> Status {
    for (const bool direct : {false, true}) {
      group.set_direct_bytes_max(direct ? int64_t{1} << 40 : -1);
      std::vector<int32_t> data(kCount);
      std::iota(data.begin(), data.end(), group.rank());
      JIGE_DO(group.all_reduce(data.data(), data.data(), kCount, DType::kI32, RedOp::kSum));
      for (int64_t i = 0; i < kCount; ++i) {
        if (data[static_cast<size_t>(i)] != 3 * i + 3) return fail(Code::kInternal, "at {}", i);
      }
    }
    return {};
  };
  const auto errors = run_ranks(make_transports(GetParam(), 3, plan), plan, {}, body);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// An error that all ranks must have, whoever saw it first.
void expect_all(const std::vector<std::string>& errors, const std::string& words) {
  for (size_t r = 0; r < errors.size(); ++r) {
    EXPECT_THAT(errors[r], testing::HasSubstr(words)) << "rank " << r;
  }
}

struct Sizes {
  int64_t odd_count, direct_bytes_max, tree_bytes_max;
};

TEST_P(OverTransport, DifferentCountsAreAnErrorOnAllRanks) {
  for (const auto& [odd_count, direct_bytes_max, tree_bytes_max] :
       {Sizes{64, -1, 0}, Sizes{64, 1 << 20, 0}, Sizes{8, 100, 0}, Sizes{0, -1, 0},
        Sizes{64, -1, 1 << 20}, Sizes{64, -1, 1000}, Sizes{0, -1, 1 << 20}}) {
    const RingPlan plan = with_trees(3, tree_bytes_max);
    const auto body = [&](Communicator& group) -> Status {
      group.set_direct_bytes_max(direct_bytes_max);
      std::vector<float> data(1000);
      const int64_t count = group.rank() == 1 ? odd_count : 1000;
      JIGE_DO(group.barrier());
      JIGE_DO(group.all_reduce(data.data(), data.data(), count, DType::kF32, RedOp::kSum));
      return group.barrier();
    };
    expect_all(run_ranks(make_transports(GetParam(), 3, plan), plan, {.timeout_s = 10}, body),
               fmt::format("all_reduce of {} f32", odd_count));
  }
}

TEST_P(OverTransport, DifferentOperationsAreAnErrorOnAllRanks) {
  const RingPlan plan = small_pieces(3);
  const auto body = [&](Communicator& group) -> Status {
    group.set_direct_bytes_max(-1);
    std::vector<float> data(3000);
    if (group.rank() == 2) return group.broadcast(data.data(), data.data(), 900, DType::kF32, 0);
    return group.all_reduce(data.data(), data.data(), 900, DType::kF32, RedOp::kMax);
  };
  expect_all(run_ranks(make_transports(GetParam(), 3, plan), plan, {.timeout_s = 10}, body),
             "broadcast of 900 f32, root 0");
}

TEST_P(OverTransport, ARankThatLeavesIsNamedByTheOthers) {
  for (const bool trees : {false, true}) {
    const RingPlan plan = trees ? with_trees(3, 1 << 20) : small_pieces(3);
    const auto body = [&](Communicator& group) -> Status {
      if (trees) group.set_direct_bytes_max(-1);
      std::vector<float> data(1000);
      JIGE_DO(group.barrier());
      if (group.rank() == 1) return fail(Code::kCancelled, "rank 1 (itself) goes");
      return group.all_reduce(data.data(), data.data(), 1000, DType::kF32, RedOp::kSum);
    };
    expect_all(run_ranks(make_transports(GetParam(), 3, plan), plan, {.timeout_s = 10}, body),
               "rank 1 (");
  }
}

// A rank may go as soon as its own part is done: whoever looks around meanwhile, because nothing
// moves, finds connections without an end.
TEST_P(OverTransport, ARankThatHasDoneItsPartLeavesWhileOthersWaitForEachOther) {
  const RingPlan plan = small_pieces(3);
  const auto body = [&](Communicator& group) -> Status {
    group.set_direct_bytes_max(-1);
    std::vector<int32_t> data(100, group.rank() == 0 ? 7 : 0);
    // Longer than it takes the next rank to look for causes.
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(250));
    JIGE_DO(group.broadcast(data.data(), data.data(), 100, DType::kI32, 0));
    return data[99] == 7 ? Status() : fail(Code::kInternal, "{} is not 7", data[99]);
  };
  const auto errors =
      run_ranks(make_transports(GetParam(), 3, plan), plan, {.timeout_s = 10}, body);
  EXPECT_THAT(errors, testing::Each(""));
}

// Stays away until the calls of all others have ended.
void stay_away(const std::atomic<int>& ended, int others) {
  const Deadline deadline = Deadline::after(10);
  while (ended < others && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Four ranks in chains: the one that stays away is nobody's root.
TEST_P(OverTransport, ARankThatStaysAwayFromTreesIsNamedByTheDeadline) {
  const RingPlan plan = with_trees(4, 1 << 20);
  std::atomic<int> ended{0};
  const auto body = [&](Communicator& group) -> Status {
    group.set_direct_bytes_max(-1);
    std::vector<float> data(1000);
    JIGE_DO(group.barrier());
    if (group.rank() == 2) stay_away(ended, 3);
    const Status ran = group.all_reduce(data.data(), data.data(), 1000, DType::kF32, RedOp::kSum);
    ++ended;
    return ran;
  };
  const int64_t start = monotonic_ns();
  const auto errors =
      run_ranks(make_transports(GetParam(), 4, plan), plan, {.timeout_s = 0.2}, body);
  expect_all(errors, "nothing was heard of rank 2 (");
  EXPECT_LT(static_cast<double>(monotonic_ns() - start) * 1e-9, 2.0);
}

TEST_P(OverTransport, ARankThatStaysAwayIsNamedByTheDeadline) {
  const RingPlan plan = small_pieces(3);
  const int64_t start = monotonic_ns();
  std::atomic<int> ended{0};
  const auto body = [&](Communicator& group) -> Status {
    std::vector<float> data(1000);
    JIGE_DO(group.barrier());
    if (group.rank() == 0) stay_away(ended, 2);
    const Status ran = group.all_reduce(data.data(), data.data(), 1000, DType::kF32, RedOp::kSum);
    ++ended;
    if (ran) return ran;
    // Every later call gives the same error.
    const Status again = group.barrier();
    return again ? Status(fail(Code::kInternal, "went on after {}", ran.error().message)) : again;
  };
  const auto errors =
      run_ranks(make_transports(GetParam(), 3, plan), plan, {.timeout_s = 0.2}, body);
  expect_all(errors, "nothing was heard of rank 0 (");
  EXPECT_LT(static_cast<double>(monotonic_ns() - start) * 1e-9, 2.0);
}

INSTANTIATE_TEST_SUITE_P(All, OverTransport, testing::Values("threads", "shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace jige::comm
