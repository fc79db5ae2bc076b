// The parts of the folder by themselves: headers, rings, divisions, reductions, sockets, places.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "base/test_path.h"
#include "comm/join_message.h"
#include "comm/place.h"
#include "comm/reduce.h"
#include "comm/test_support.h"
#include "comm/tuning.h"

namespace jige::comm {
namespace {

Header random_header(Rng& rng) {
  return {.collective = static_cast<Collective>(rng.below(kCollectiveCount)),
          .dtype = static_cast<DType>(rng.below(7)),
          .redop = static_cast<RedOp>(rng.below(kRedOpCount)),
          .path = static_cast<Path>(rng.below(2)),
          .sequence = rng.next_u64(),
          .count = static_cast<int64_t>(rng.next_u64() >> 1),
          .root = static_cast<int32_t>(rng.next_u32() >> 1),
          .plan = rng.next_u32(),
          .sender = static_cast<int32_t>(rng.next_u32() >> 1),
          .part = rng.next_u32(),
          .payload_bytes = rng.next_u64()};
}

TEST(Wire, HeadersSurviveAndEveryChangeOfABitIsSeen) {
  Rng rng(derive_key(1, "wire"));
  for (int round = 0; round < 200; ++round) {
    const Header header = random_header(rng);
    auto bytes = encode_header(header);
    const auto parsed = parse_header(bytes);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, header);
    const auto bit = rng.below(8 * kHeaderBytes);
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(parse_header(bytes)) << "bit " << bit;
  }
}

TEST(Wire, NoiseIsRefused) {
  Rng rng(derive_key(2, "wire"));
  for (uint64_t round = 0; round < fuzz_rounds(2000); ++round) {
    auto bytes = encode_header(random_header(rng));
    const size_t from = rng.below(kHeaderBytes);
    for (size_t i = from; i < kHeaderBytes; ++i) bytes[i] = static_cast<std::byte>(rng.below(256));
    const auto parsed = parse_header(bytes);
    EXPECT_TRUE(from >= 60 || !parsed) << "from " << from;
  }
}

TEST(Wire, DifferencesAreToldInWords) {
  const Header ours = {.collective = Collective::kAllReduce, .dtype = DType::kF32, .count = 10};
  Header theirs = ours;
  EXPECT_TRUE(compare_headers(ours, theirs, "rank 1 (a)"));
  theirs.count = 11;
  EXPECT_EQ(
      compare_headers(ours, theirs, "rank 1 (a)").error().message,
      "rank 1 (a) calls all_reduce of 11 f32 (sum), operation 0; this rank calls all_reduce of "
      "10 f32 (sum), operation 0");
  theirs = ours;
  theirs.plan = 5;
  EXPECT_THAT(compare_headers(ours, theirs, "rank 1").error().message,
              testing::HasSubstr("other rings"));
  theirs = ours;
  theirs.payload_bytes = 64;
  EXPECT_THAT(compare_headers(ours, theirs, "rank 1").error().message,
              testing::HasSubstr("another way"));
}

TEST(RingPlan, ReadsRingsAndRefusesWhatIsNone) {
  const auto ring = parse_ring("0,2,1,3@0.25");
  ASSERT_TRUE(ring);
  EXPECT_THAT(ring->order, testing::ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(ring->weight, 0.25);
  for (const char* text :
       {"", ",", "0,", "0,,1", "0,a", "0 1", "-1,0", "0,1@", "0,1@x", "0,1@1,"}) {
    EXPECT_FALSE(parse_ring(text)) << text;
  }
  RingPlan plan = {.rings = {*ring}};
  EXPECT_TRUE(plan.check(4));
  EXPECT_FALSE(plan.check(3));
  for (const double weight : {0.0, -1.0, 1e300, std::nan("")}) {
    plan.rings[0].weight = weight;
    EXPECT_FALSE(plan.check(4)) << weight;
  }
  plan.rings[0] = *parse_ring("0,1,1,3");
  EXPECT_FALSE(plan.check(4));
  EXPECT_FALSE(RingPlan{}.check(1));
}

TEST(RingPlan, PartsAndSegmentsCoverEverythingOnceInWholeUnits) {
  Rng rng(derive_key(3, "parts"));
  for (int round = 0; round < 300; ++round) {
    const int n = 1 + static_cast<int>(rng.below(9));
    const int64_t element = rng.below(2) == 0 ? 2 : 4;
    const int64_t unit = kUnitBytes / element;
    const auto count = static_cast<int64_t>(rng.below(5000));
    RingPlan plan = {.piece_bytes = kUnitBytes * (1 + static_cast<int64_t>(rng.below(20)))};
    for (uint64_t r = 0; r <= rng.below(4); ++r) {
      Ring ring = RingPlan::in_rank_order(n).rings[0];
      ring.weight = 0.1 + rng.uniform();
      plan.rings.push_back(ring);
    }
    int64_t at = 0;
    for (const Range& part : split_by_weight(plan, count, element)) {
      ASSERT_EQ(part.begin, at);
      const Blocks blocks(part, n, plan.piece_bytes / element, unit);
      for (int64_t b = 0; b < blocks.block_count(); ++b) {
        for (int s = 0; s < n; ++s) {
          const Range segment = blocks.segment(b, s);
          ASSERT_EQ(segment.begin, at);
          ASSERT_LE(segment.count * element, plan.piece_bytes);
          const bool whole = (segment.end() - part.begin) % unit == 0;
          ASSERT_TRUE(whole || segment.end() == part.end());
          at = segment.end();
        }
      }
      ASSERT_EQ(at, part.end());
    }
    ASSERT_EQ(at, count);
  }
}

TEST(TreePair, FindsWaysAndRefusesWhatIsNoTree) {
  Rng rng(derive_key(5, "trees"));
  for (int n = 2; n <= 17; ++n) {
    std::vector<int> order = RingPlan::in_rank_order(n).rings[0].order;
    for (int i = n - 1; i > 0; --i) {
      std::swap(order[static_cast<size_t>(i)], order[rng.below(static_cast<uint64_t>(i) + 1)]);
    }
    const TreePair trees = TreePair::over(order);
    ASSERT_TRUE(trees.check(n));
    ASSERT_FALSE(trees.check(n + 1));
    for (const size_t t : {0, 1}) {
      for (int from = 0; from < n; ++from) {
        // Neighbour by neighbour every rank is reached, by way of each at most once.
        for (int to = 0; to < n; ++to) {
          int at = from;
          for (int steps = 0; at != to; ++steps) {
            ASSERT_LT(steps, n);
            const int next = trees.towards(t, at, to);
            ASSERT_TRUE(trees.linked(t, at, next));
            at = next;
          }
        }
        const auto near = trees.neighbours(t, from);
        ASSERT_TRUE(std::is_sorted(near.begin(), near.end()));
        ASSERT_LE(near.size(), 3u);
      }
    }
  }
  TreePair broken = TreePair::over({0, 1, 2, 3});
  for (const std::vector<int>& parent :
       {std::vector<int>{-1, -1, 0, 0}, {1, 2, 0, -1}, {-1, 0, 1, 4}, {-1, 0, 1, -2}, {-1, 0, 1}}) {
    broken.parent[1] = parent;
    EXPECT_FALSE(broken.check(4)) << fmt::format("{}", fmt::join(parent, ","));
  }
  broken = TreePair::over({0, 1, 2, 3});
  broken.bytes_max = -2;
  EXPECT_FALSE(broken.check(4));
}

TEST(TreePair, HalvesCoverEverythingInWholeUnits) {
  for (const int64_t count : {0, 1, 15, 16, 17, 32, 33, 1000}) {
    const auto halves = split_in_halves(count, 4);
    EXPECT_EQ(halves[0].begin, 0);
    EXPECT_EQ(halves[0].end(), halves[1].begin);
    EXPECT_EQ(halves[1].end(), count);
    EXPECT_TRUE(halves[0].count % 16 == 0 || halves[1].count == 0);
    EXPECT_LE(halves[0].count - halves[1].count, 31);
    EXPECT_GE(halves[0].count, halves[1].count);
  }
}

TEST(Reduce, AgreesWithPlainArithmeticInEveryTypeAndLength) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32}) {
    const int64_t size = dtype_info(dtype).block_bytes;
    for (int op = 0; op < kRedOpCount; ++op) {
      for (const int64_t count : {0, 1, 7, 8, 9, 67}) {
        const auto a = test_data(dtype, 1, count);
        const auto b = test_data(dtype, 2, count);
        std::vector<std::byte> out(a.size());
        combine(dtype, static_cast<RedOp>(op), a.data(), b.data(), out.data(), count);
        for (int64_t i = 0; i < count; ++i) {
          EXPECT_EQ(
              load_element(dtype, out.data() + i * size),
              apply_redop(dtype, static_cast<RedOp>(op), load_element(dtype, a.data() + i * size),
                          load_element(dtype, b.data() + i * size)));
        }
      }
    }
  }
}

TEST(Reduce, KeepsNanAndWrapsIntegers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const RedOp op : {RedOp::kSum, RedOp::kMin, RedOp::kMax}) {
    const float left[] = {nan, 1, 2};
    const float right[] = {1, nan, 3};
    float out[3];
    combine(DType::kF32, op, reinterpret_cast<const std::byte*>(left),
            reinterpret_cast<const std::byte*>(right), reinterpret_cast<std::byte*>(out), 3);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_FALSE(std::isnan(out[2]));
  }
  uint16_t half[] = {to_bfloat16(nan).bits};
  const uint16_t one[] = {to_bfloat16(1).bits};
  combine(DType::kBF16, RedOp::kSum, reinterpret_cast<const std::byte*>(half),
          reinterpret_cast<const std::byte*>(one), reinterpret_cast<std::byte*>(half), 1);
  EXPECT_TRUE(std::isnan(to_float(BFloat16{half[0]})));
  int32_t top[] = {std::numeric_limits<int32_t>::max()};
  const int32_t two[] = {2};
  combine(DType::kI32, RedOp::kSum, reinterpret_cast<const std::byte*>(top),
          reinterpret_cast<const std::byte*>(two), reinterpret_cast<std::byte*>(top), 1);
  EXPECT_EQ(top[0], std::numeric_limits<int32_t>::min() + 1);
}

TEST(Sockets, ReadAddressesAndRefuseOthers) {
  EXPECT_EQ(parse_address("node:80")->text(), "node:80");
  EXPECT_EQ(parse_address("[::1]:80")->text(), "[::1]:80");
  for (const char* text : {"", "node", "node:", "node:x", "node:65536", "::1:80", "node:-1"}) {
    EXPECT_FALSE(parse_address(text)) << text;
  }
}

TEST(Sockets, ErrorsNameThePeerWithinTheDeadline) {
  Listener listener = *Listener::open({"127.0.0.1", 0});
  Socket out = *connect_to(listener.address(), {.name = "the far end"}, Deadline::after(5));
  Socket in = *listener.accept({.name = "the near end"}, Deadline::after(5));
  std::vector<std::byte> bytes(8 << 20);
  const Status full = out.send_all(bytes, Deadline::after(0.05));
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, testing::HasSubstr("the far end"));
  const Status empty = out.recv_all(std::span(bytes).first(10), Deadline::after(0.05));
  ASSERT_FALSE(empty);
  EXPECT_THAT(empty.error().message, testing::HasSubstr("sent nothing until the deadline"));
  in.close();
  const Status closed = out.recv_all(std::span(bytes).first(10), Deadline::after(5));
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message, testing::HasSubstr("closed the connection"));
}

TEST(Sockets, ExchangeMovesMoreThanTheKernelHoldsBothWays) {
  Listener listener = *Listener::open({"127.0.0.1", 0});
  Socket a = *connect_to(listener.address(), {.congestion = "no-such-control"}, Deadline::after(5));
  Socket b = *listener.accept({}, Deadline::after(5));
  EXPECT_NE(a.congestion(), "no-such-control");
  const auto data = test_data(DType::kF32, 0, 3 << 20);
  std::vector<std::byte> at_b(data.size());
  std::thread peer([&] { EXPECT_TRUE(exchange(b, data, b, at_b, Deadline::after(20))); });
  std::vector<std::byte> at_a(data.size());
  EXPECT_TRUE(exchange(a, data, a, at_a, Deadline::after(20)));
  peer.join();
  EXPECT_EQ(at_a, data);
  EXPECT_EQ(at_b, data);
}

TEST(Sockets, ConnectingWaitsForAListenerThatComesLate) {
  Listener probe = *Listener::open({"127.0.0.1", 0});
  const Address address = probe.address();
  { const Listener gone = std::move(probe); }
  const auto refused = connect_to(address, {.name = "rank 9"}, Deadline::after(0.05));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("rank 9 (127.0.0.1:"));
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    auto listener = Listener::open(address);
    ASSERT_TRUE(listener);
    EXPECT_TRUE(listener->accept({}, Deadline::after(5)));
  });
  EXPECT_TRUE(connect_to(address, {}, Deadline::after(5)));
  late.join();
}

TEST(Place, ComesFromTheInnermostLauncher) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
                           "SLURM_PROCID", "SLURM_NTASKS"}) {
    unsetenv(name);
  }
  EXPECT_FALSE(place_from_environment()->has_value());
  setenv("SLURM_NTASKS", "4", 1);
  EXPECT_FALSE(place_from_environment()->has_value()) << "an allocation, not a task";
  setenv("SLURM_PROCID", "3", 1);
  EXPECT_EQ((*place_from_environment())->rank, 3);
  setenv("PMI_RANK", "1", 1);
  EXPECT_FALSE(place_from_environment()) << "half a place";
  setenv("PMI_SIZE", "2", 1);
  EXPECT_EQ((*place_from_environment())->world, 2);
  setenv("PMI_RANK", "2", 1);
  EXPECT_FALSE(place_from_environment());
  setenv("PMI_RANK", "x", 1);
  EXPECT_FALSE(place_from_environment());
  for (const char* name : {"PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) unsetenv(name);
}

TEST(Join, NoMessageThatIsCutOrChangedDoesHarm) {
  JoinTable table = {.token = 5, .transport = "tcp"};
  for (int r = 0; r < 3; ++r) {
    Hello hello = describe_self();
    hello.rank = r;
    hello.world = 3;
    table.members.push_back(hello);
  }
  const std::string text = dump_json(table_to_json(table));
  ASSERT_TRUE(parse_table(*parse_json(text, "t"), "t"));
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(3000); ++seed) {
    const auto json = parse_json(Mutator(seed).mutate(text), "t");
    const auto changed = json ? parse_table(*json, "t") : fail(Code::kCorrupt, "t");
    read += changed.has_value();
    for (size_t r = 0; changed && r < changed->members.size(); ++r) {
      ASSERT_EQ(changed->members[r].rank, static_cast<int>(r)) << seed;
    }
  }
  EXPECT_GT(read, 100);
}

void expect_tuning(const RingPlan& plan) {
  const bool trees = plan.trees.has_value();
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("tuning-{}.json", getpid())).string();
  const auto errors =
      run_ranks(make_transports("threads", 2, plan), plan, {}, [&](Communicator& group) -> Status {
        JIGE_TRY(Tuning tuning, measure_tuning(group));
        std::array<int64_t, 2> own = {tuning.direct_bytes_max, tuning.tree_bytes_max};
        std::array<int64_t, 4> all = {};
        JIGE_DO(group.all_gather(own.data(), all.data(), 2, DType::kI64));
        const bool alike = all[0] == all[2] && all[1] == all[3];
        if (!alike) return fail(Code::kInternal, "{}", fmt::join(all, ","));
        if ((tuning.tree_bytes_max >= 0) != trees) return fail(Code::kInternal, "of trees?");
        if (group.rank() != 0) return {};
        JIGE_TRY(const auto before, load_tuning(path, group));
        if (before) return fail(Code::kInternal, "there is a file");
        JIGE_DO(store_tuning(path, group, {.direct_bytes_max = 1}));
        // Without a size for trees, it says nothing of a plan that leaves theirs open.
        Communicator& open = group;
        open.set_tree_bytes_max(kTreesUnmeasured);
        JIGE_TRY(const auto lacking, load_tuning(path, open));
        if (lacking.has_value() == trees) return fail(Code::kInternal, "what is lacking is given");
        JIGE_DO(store_tuning(path, group, tuning));
        JIGE_TRY(const auto kept, load_tuning(path, group));
        return kept == tuning ? Status() : Status(fail(Code::kInternal, "another value is kept"));
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  std::filesystem::remove(path);
}

TEST(Tuning, IsMeasuredAlikeOnAllRanksAndKept) {
  RingPlan plan = RingPlan::in_rank_order(2);
  expect_tuning(plan);
  plan.trees = TreePair::over({1, 0});
  expect_tuning(plan);
}

// Files that this program did not write are refused, or give sizes that a group can be told.
TEST(Tuning, DamagedFilesAreRefusedOrRead) {
  const std::string path = test_path("tuning");
  const RingPlan plan = RingPlan::in_rank_order(2);
  int found = 0;
  const auto errors =
      run_ranks(make_transports("threads", 2, plan), plan, {}, [&](Communicator& group) -> Status {
        if (group.rank() != 0) return {};
        JIGE_DO(store_tuning(path, group, {.direct_bytes_max = 4096, .tree_bytes_max = 99}));
        JIGE_TRY(const std::string text, read_file(path));
        // A number whose low bits are those of another is another.
        std::string others = text;
        others.replace(others.find("\"ranks\": 2"), 10, "\"ranks\": 4294967298");
        std::ofstream(path, std::ios::binary) << others;
        JIGE_TRY(const auto of_others, load_tuning(path, group));
        if (of_others) return fail(Code::kInternal, "2^32 + 2 ranks are taken for 2");
        for (uint64_t seed = 0; seed < fuzz_rounds(1500); ++seed) {
          std::ofstream(path, std::ios::binary) << Mutator(seed).mutate(text);
          const auto tuning = load_tuning(path, group);
          found += tuning && *tuning;
        }
        return {};
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_GT(found, 30);
}

TEST(StreamMemory, IsWhatTheRegionOfAllRanksTakes) {
  for (const int size : {2, 3, 8}) {
    RingPlan plan = RingPlan::in_rank_order(size);
    plan.rings.push_back(plan.rings[0]);
    const RegionShape shape = region_shape(size, plan);
    EXPECT_EQ(shape.large_streams, 2 * size);
    EXPECT_EQ(shape.small_streams, size * (size - 1));
    const int64_t streams =
        shape.large_streams * shape.large_bytes + shape.small_streams * shape.small_bytes;
    EXPECT_EQ(stream_memory_bytes("shm", size, plan) * size, streams);
    EXPECT_GT(stream_memory_bytes("tcp", size, plan), 0);
    RingPlan more = plan;
    more.trees = TreePair::over(plan.rings[0].order);
    const RegionShape with_trees = region_shape(size, more);
    EXPECT_EQ(with_trees.small_streams, size * (size - 1) + 4 * (size - 1));
    EXPECT_GE(stream_memory_bytes("shm", size, more) * size,
              streams + 4 * (size - 1) * shape.small_bytes);
    EXPECT_GT(stream_memory_bytes("tcp", size, more), stream_memory_bytes("tcp", size, plan));
  }
  EXPECT_EQ(stream_memory_bytes("shm", 1, RingPlan::in_rank_order(1)), 0);
}

}  // namespace
}  // namespace jige::comm
