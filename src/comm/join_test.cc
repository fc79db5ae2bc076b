// Joining: what strangers, and ranks that end meanwhile, do to the others.
#include "comm/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "comm/join_message.h"

namespace jige::comm {
namespace {

using ::testing::HasSubstr;

JoinOptions options_of(int rank, int world, const Listener& listener, const char* transport) {
  return {.place = {rank, world, "test"},
          .rendezvous = listener.address(),
          .transport = transport,
          .timeout_s = 5};
}

Hello hello_of(int rank, int world, const RingPlan& plan, const char* transport) {
  Hello hello = describe_self();
  hello.rank = rank;
  hello.world = world;
  hello.address = {"127.0.0.1", 1};
  hello.transport = transport;
  hello.plan = plan.hash();
  return hello;
}

TEST(Join, ARankThatEndsWhileOthersAreAwaitedMayComeAgain) {
  Listener listener = *Listener::open({"127.0.0.1", 0});
  const RingPlan plan = RingPlan::in_rank_order(3);
  Result<std::unique_ptr<Transport>> joined[3];
  std::vector<std::thread> threads;
  const auto start = [&](int r) {
    threads.emplace_back([&, r] {
      joined[r] = join_group(options_of(r, 3, listener, "tcp"), plan, r == 0 ? &listener : nullptr);
    });
  };
  start(0);
  {
    Socket ended = *connect_to(listener.address(), {}, Deadline::after(5));
    const Json hello = hello_to_json(hello_of(1, 3, plan, "tcp"));
    ASSERT_TRUE(send_json(ended, hello, Deadline::after(5)));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  start(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  start(2);
  for (std::thread& thread : threads) thread.join();
  for (const auto& transport : joined) {
    ASSERT_TRUE(transport) << transport.error().message;
    EXPECT_EQ((*transport)->size(), 3);
  }
}

// Silent, as those are that look whether a port is open.
TEST(Join, StrangersWhoSayNothingKeepNobodyWaiting) {
  Listener listener = *Listener::open({"127.0.0.1", 0});
  const RingPlan plan = RingPlan::in_rank_order(2);
  const Socket strangers[] = {*connect_to(listener.address(), {}, Deadline::after(5)),
                              *connect_to(listener.address(), {}, Deadline::after(5))};
  Result<std::unique_ptr<Transport>> joined[2];
  const StopWatch watch;
  std::thread first(
      [&] { joined[0] = join_group(options_of(0, 2, listener, "tcp"), plan, &listener); });
  joined[1] = join_group(options_of(1, 2, listener, "tcp"), plan);
  first.join();
  EXPECT_LT(watch.seconds(), 3);
  for (const auto& transport : joined) ASSERT_TRUE(transport) << transport.error().message;
}

// What they say is no message, or one of another program.
TEST(Join, StrangersWhoSayAnythingKeepNobodyOut) {
  Listener listener = *Listener::open({"127.0.0.1", 0});
  const RingPlan plan = RingPlan::in_rank_order(2);
  Result<std::unique_ptr<Transport>> joined[2];
  std::thread first(
      [&] { joined[0] = join_group(options_of(0, 2, listener, "tcp"), plan, &listener); });
  Json hello = hello_to_json(hello_of(1, 2, plan, "tcp"));
  hello["format"] = "jige.links";
  const std::string text = dump_json(hello);
  const auto length = static_cast<uint32_t>(text.size());
  const std::string message = std::string(reinterpret_cast<const char*>(&length), 4) + text;
  for (uint64_t seed = 0; seed < fuzz_rounds(60); ++seed) {
    Socket stranger = *connect_to(listener.address(), {}, Deadline::after(5));
    const std::string noise = Mutator(seed).mutate(seed % 2 ? message : text);
    (void)stranger.send_all(std::as_bytes(std::span(noise)), Deadline::after(5));
  }
  joined[1] = join_group(options_of(1, 2, listener, "tcp"), plan);
  first.join();
  for (const auto& transport : joined) ASSERT_TRUE(transport) << transport.error().message;
}

TEST(Join, ARankOfAnotherReleaseHearsWhyItIsNotTaken) {
  Listener listener = *Listener::open({"127.0.0.1", 0});
  const RingPlan plan = RingPlan::in_rank_order(2);
  Result<std::unique_ptr<Transport>> joined[2];
  std::thread first(
      [&] { joined[0] = join_group(options_of(0, 2, listener, "tcp"), plan, &listener); });
  {
    Socket newer = *connect_to(listener.address(), {}, Deadline::after(5));
    Json hello = hello_to_json(hello_of(1, 2, plan, "tcp"));
    hello["version"] = 2;
    EXPECT_TRUE(send_json(newer, hello, Deadline::after(5)));
    const auto answer = recv_json(newer, Deadline::after(5));
    EXPECT_TRUE(answer && dump_json(*answer).find("this version of Jige") != std::string::npos);
  }
  joined[1] = join_group(options_of(1, 2, listener, "tcp"), plan);
  first.join();
  for (const auto& transport : joined) ASSERT_TRUE(transport) << transport.error().message;
}

// All have come, and one cannot use the memory: the others hear whose fault it is.
TEST(Join, ARankThatCannotAttachIsNamedByAllOthers) {
  for (const bool says_why : {false, true}) {
    Listener listener = *Listener::open({"127.0.0.1", 0});
    const RingPlan plan = RingPlan::in_rank_order(3);
    Result<std::unique_ptr<Transport>> joined[3];
    std::vector<std::thread> threads;
    for (const int r : {0, 2}) {
      threads.emplace_back([&, r] {
        joined[r] =
            join_group(options_of(r, 3, listener, "shm"), plan, r == 0 ? &listener : nullptr);
      });
    }
    {
      Socket failing = *connect_to(listener.address(), {}, Deadline::after(5));
      const Json hello = hello_to_json(hello_of(1, 3, plan, "shm"));
      ASSERT_TRUE(send_json(failing, hello, Deadline::after(5)));
      ASSERT_TRUE(recv_json(failing, Deadline::after(5)));
      const Error why{Code::kUnavailable, "not permitted"};
      if (says_why) (void)send_json(failing, join_error_to_json(why), Deadline::after(5));
    }
    for (std::thread& thread : threads) thread.join();
    for (const int r : {0, 2}) {
      ASSERT_FALSE(joined[r]);
      const std::string& message = joined[r].error().message;
      EXPECT_THAT(message, HasSubstr("rank 1 ("));
      EXPECT_EQ(message.find("not permitted") != std::string::npos, says_why) << message;
    }
  }
}

TEST(Join, ATransportThatNobodyAskedForIsRefused) {
  for (const char* chosen : {"tcp", "shm", "pigeon"}) {
    Listener listener = *Listener::open({"127.0.0.1", 0});
    const RingPlan plan = RingPlan::in_rank_order(2);
    const char* own = std::string(chosen) == "shm" ? "tcp" : "shm";
    std::thread first([&] {
      Socket socket = *listener.accept({}, Deadline::after(5));
      EXPECT_TRUE(recv_json(socket, Deadline::after(5)));
      JoinTable table{.token = 1, .transport = chosen, .memory = "/proc/self/exe"};
      for (int r = 0; r < 2; ++r) table.members.push_back(hello_of(r, 2, plan, chosen));
      EXPECT_TRUE(send_json(socket, table_to_json(table), Deadline::after(5)));
    });
    const auto joined = join_group(options_of(1, 2, listener, own), plan);
    first.join();
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().code, Code::kCorrupt);
    EXPECT_THAT(joined.error().message, HasSubstr("where this rank has"));
  }
}

TEST(Join, TheTableOfTheLargestWorldFitsAMessage) {
  Hello hello = hello_of(kWorldMax - 1, kWorldMax, RingPlan::in_rank_order(2), "tcp");
  hello.host = std::string(64, 'h');  // as long as Linux lets it be
  hello.address = {"[2001:0db8:85a3:0000:0000:8a2e:0370:7334]", 65535};
  JoinTable table{.transport = "tcp"};
  table.members.assign(kWorldMax, hello);
  EXPECT_LE(dump_json(table_to_json(table)).size(), kJoinBytesMax);
}

// Fewer descriptors than a process has already.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 1;
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

TEST(Join, SaysWhyNoConnectionCanBeTaken) {
  Listener listener = *Listener::open({"127.0.0.1", 0});
  const Socket waiting = *connect_to(listener.address(), {}, Deadline::after(5));
  const NoDescriptors none;
  const auto joined =
      join_group(options_of(0, 2, listener, "shm"), RingPlan::in_rank_order(2), &listener);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, Code::kExhausted);
  EXPECT_THAT(joined.error().message, HasSubstr("Too many open files"));
}

}  // namespace
}  // namespace jige::comm
