// An agent that ends in the middle of what it was asked for, or whose profiler does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/clock.h"
#include "comm/join.h"
#include "profile/agent_wire.h"
#include "profile/link_agent.h"

namespace jige::profile {
namespace {

using ::testing::HasSubstr;

constexpr double kSoonSeconds = 5;  // long before any timeout
constexpr int64_t kTimeoutMs = 20'000;

std::unique_ptr<LinkAgent> start_plain_agent() {
  return std::move(*LinkAgent::start({.listen = {"127.0.0.1", 0}}));
}

// A profiler's connection, welcomed.
comm::Socket profiler_of(const LinkAgent& agent) {
  const comm::Deadline soon = comm::Deadline::after(5);
  comm::Socket socket = *comm::connect_to(agent.address(), {}, soon);
  EXPECT_TRUE(send_message(socket, HelloMessage{}, soon));
  EXPECT_TRUE(receive<WelcomeMessage>(socket, soon));
  return socket;
}

// Tells the agent to be rank 0 of two in an all-reduce; gives where rank 1 finds it.
comm::Address start_collective(comm::Socket& profiler) {
  const comm::Deadline soon = comm::Deadline::after(5);
  EXPECT_TRUE(send_message(profiler, ListenMessage{"127.0.0.1"}, soon));
  const auto listening = receive<ListeningMessage>(profiler, soon);
  EXPECT_TRUE(send_message(profiler,
                           CollectMessage{.rank = 0,
                                          .rings = {{{0, 1}}},
                                          .address = "127.0.0.1",
                                          .port = listening->port,
                                          .own = "127.0.0.1",
                                          .bytes = 1 << 20,
                                          .timeout_ms = kTimeoutMs},
                           soon));
  return {"127.0.0.1", static_cast<int>(listening->port)};
}

double seconds_to_end(std::unique_ptr<LinkAgent>& agent) {
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const StopWatch watch;
  agent.reset();
  return watch.seconds();
}

TEST(AgentEnd, InACollectiveIsSoonAndTheOtherRanksHearOfIt) {
  std::unique_ptr<LinkAgent> agent = start_plain_agent();
  comm::Socket profiler = profiler_of(*agent);
  const comm::RingPlan plan = comm::RingPlan::in_rank_order(2);
  auto joined = comm::join_group(
      {.place = {1, 2, "test"}, .rendezvous = start_collective(profiler), .transport = "tcp"},
      plan);
  ASSERT_TRUE(joined) << joined.error().message;
  auto group = comm::Communicator::over(std::move(*joined), plan, {.timeout_s = 20});
  EXPECT_LT(seconds_to_end(agent), kSoonSeconds);
  const Status told = group->barrier();
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().code, Code::kUnavailable);
  EXPECT_THAT(told.error().message, HasSubstr("rank 0 ("));
  EXPECT_THAT(told.error().message, HasSubstr("reports: interrupted"));
}

TEST(AgentEnd, IsSoonWhileOtherRanksAreAwaited) {
  std::unique_ptr<LinkAgent> agent = start_plain_agent();
  comm::Socket profiler = profiler_of(*agent);
  start_collective(profiler);
  EXPECT_LT(seconds_to_end(agent), kSoonSeconds);
}

// Tells the agent to send to another one, but not yet.
void start_run(comm::Socket& profiler, const LinkAgent& other) {
  const comm::Deadline soon = comm::Deadline::after(5);
  ASSERT_TRUE(send_message(
      profiler,
      OpenMessage{
          .flow = 1, .address = "127.0.0.1", .port = other.address().port, .timeout_ms = 5000},
      soon));
  ASSERT_TRUE(receive<OpenedMessage>(profiler, soon));
  ASSERT_TRUE(send_message(profiler,
                           RunMessage{.flows = {1},
                                      .bytes = {1},
                                      .start_ns = comm::monotonic_ns() + kTimeoutMs * 500'000,
                                      .timeout_ms = kTimeoutMs},
                           soon));
}

TEST(AgentEnd, IsSoonBeforeARunThatStartsLater) {
  std::unique_ptr<LinkAgent> agent = start_plain_agent();
  const std::unique_ptr<LinkAgent> other = start_plain_agent();
  comm::Socket profiler = profiler_of(*agent);
  start_run(profiler, *other);
  EXPECT_LT(seconds_to_end(agent), kSoonSeconds);
}

// Seconds until the agent takes the next profiler, after the first one has gone.
double seconds_to_be_free(const LinkAgent& agent, comm::Socket profiler) {
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  profiler.close();
  const StopWatch watch;
  const comm::Deadline deadline = comm::Deadline::after(kSoonSeconds + 5);
  for (bool taken = false; !taken && !deadline.passed();) {
    comm::Socket next = *comm::connect_to(agent.address(), {}, deadline);
    EXPECT_TRUE(send_message(next, HelloMessage{}, deadline));
    taken = receive<WelcomeMessage>(next, deadline).has_value();
  }
  return watch.seconds();
}

TEST(AgentEnd, AProfilerThatGoesInACollectiveLeavesItToTheNextOne) {
  const std::unique_ptr<LinkAgent> agent = start_plain_agent();
  comm::Socket profiler = profiler_of(*agent);
  start_collective(profiler);
  EXPECT_LT(seconds_to_be_free(*agent, std::move(profiler)), kSoonSeconds);
}

TEST(AgentEnd, AProfilerThatGoesBeforeARunLeavesItToTheNextOne) {
  const std::unique_ptr<LinkAgent> agent = start_plain_agent(), other = start_plain_agent();
  comm::Socket profiler = profiler_of(*agent);
  start_run(profiler, *other);
  EXPECT_LT(seconds_to_be_free(*agent, std::move(profiler)), kSoonSeconds);
}

}  // namespace
}  // namespace jige::profile
