// An agent and what others send it, over this machine's loopback.
#include "profile/link_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_processor_watch.h"
#include "profile/agent_client.h"
#include "profile/agent_test_support.h"
#include "profile/agent_wire.h"

namespace jige::profile {
namespace {

using ::testing::HasSubstr;

comm::Socket stranger(const LinkAgent& agent) {
  return *comm::connect_to(agent.address(), {}, comm::Deadline::after(2));
}

TEST(LinkAgent, AnswersStrangersWithAnErrorAndGoesOn) {
  const auto agent = start_agent();
  const comm::Deadline deadline = comm::Deadline::after(5);
  {
    comm::Socket web = stranger(*agent);
    const std::string_view text = "GET / HTTP/1.1\r\n\r\n";
    ASSERT_TRUE(web.send_all(std::as_bytes(std::span(text)), deadline));
    const auto answer = receive<WelcomeMessage>(web, deadline);
    ASSERT_FALSE(answer);
    EXPECT_THAT(answer.error().message, HasSubstr("does not begin like a message"));
  }
  {
    comm::Socket newer = stranger(*agent);
    ASSERT_TRUE(send_message(newer, HelloMessage{.version = 9, .token = "t"}, deadline));
    const auto answer = receive<WelcomeMessage>(newer, deadline);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Code::kUnsupported);
  }
  {
    comm::Socket silent = stranger(*agent);
    const auto answer = receive<WelcomeMessage>(silent, deadline);
    ASSERT_FALSE(answer);
    EXPECT_THAT(answer.error().message, HasSubstr("deadline")) << "after hello_s, not never";
  }
  {
    comm::Socket rash = stranger(*agent);
    ASSERT_TRUE(send_message(rash, RunMessage{{1}, {1}, 0, 1}, deadline));
    EXPECT_FALSE(receive<RanMessage>(rash, deadline));
  }
  comm::Socket good = stranger(*agent);
  ASSERT_TRUE(send_message(good, HelloMessage{.token = "t"}, deadline));
  EXPECT_TRUE(receive<WelcomeMessage>(good, deadline));
  ASSERT_TRUE(send_message(good, RunMessage{{7}, {1}, 0, 100}, deadline));
  EXPECT_EQ(receive<RanMessage>(good, deadline).error().code, Code::kNotFound);
  ASSERT_TRUE(send_message(good, GotMessage{}, deadline));
  EXPECT_EQ(receive<RanMessage>(good, deadline).error().code, Code::kUnsupported);
}

TEST(LinkAgent, SurvivesRandomBytesBeforeAndAfterTheHello) {
  const auto agent = start_agent();
  Rng rng(derive_key(5, "agent bytes"));
  for (uint64_t round = 0; round < fuzz_rounds(60); ++round) {
    comm::Socket socket = stranger(*agent);
    const comm::Deadline deadline = comm::Deadline::after(5);
    if (round % 3 > 0) {
      const AgentRole role = round % 3 == 1 ? AgentRole::kData : AgentRole::kControl;
      ASSERT_TRUE(send_message(socket, HelloMessage{.role = role, .token = "t"}, deadline));
    }
    std::string bytes = round % 2 ? "JGL1" : "";
    if (round % 4 == 1) bytes += std::string("\x20\0\0\0", 4);
    for (uint64_t i = rng.below(200); i-- > 0;) bytes += static_cast<char>(rng.below(256));
    // The agent may have had enough of it already.
    (void)socket.send_all(std::as_bytes(std::span(bytes)), deadline);
  }
  const comm::Deadline deadline = comm::Deadline::after(5);
  // Those that were taken for profilers have to be given up first.
  for (;;) {
    comm::Socket good = stranger(*agent);
    ASSERT_TRUE(send_message(good, HelloMessage{.token = "t"}, deadline));
    const auto welcome = receive<WelcomeMessage>(good, deadline);
    if (welcome) break;
    ASSERT_THAT(welcome.error().message, HasSubstr("busy"));
    ASSERT_FALSE(deadline.passed());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST(LinkAgent, WaitsForDescriptorsWithoutTheProcessor) {
  const auto agent = start_agent();
  comm::Socket late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "agent");
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 1;
  setrlimit(RLIMIT_NOFILE, &none);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(agent->address().port));
  (void)connect(late.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const ProcessorWatch watch;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(watch.seconds(), 0.1);
  setrlimit(RLIMIT_NOFILE, &before);
  const comm::Deadline deadline = comm::Deadline::after(5);
  ASSERT_TRUE(send_message(late, HelloMessage{.token = "t"}, deadline));
  EXPECT_TRUE(receive<WelcomeMessage>(late, deadline)) << "it is served once there are some";
}

// An ordinary user may not set every congestion control that the kernel has.
TEST(LinkAgent, OffersTheCongestionControlsThatItsUserMaySet) {
  const auto offers_what_it_may_set = [] {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) return false;
    comm::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    const std::vector<std::string> names = congestion_controls();
    return !names.empty() && std::ranges::all_of(names, [&](const std::string& name) {
      return socket.set_congestion(name).has_value();
    });
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(_exit(offers_what_it_may_set() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

// Hands everything from one side to the other, but for one bit.
void corrupting_relay(comm::Listener& listener, const comm::Address& to) {
  const comm::Deadline deadline = comm::Deadline::after(3);
  auto in = listener.accept({}, deadline);
  auto out = comm::connect_to(to, {}, deadline);
  ASSERT_TRUE(in && out);
  std::vector<std::byte> chunk(64 * 1024);
  size_t passed = 0;
  while (!deadline.passed()) {
    const auto forth = in->recv_some(chunk);
    if (!forth) return;
    const size_t wrong = 300'000;  // well inside the data that is checked
    if (passed <= wrong && wrong < passed + *forth) chunk[wrong - passed] ^= std::byte{4};
    passed += *forth;
    if (!out->send_all(std::span(chunk).first(*forth), deadline)) return;
    const auto back = out->recv_some(chunk);
    if (back && !in->send_all(std::span(chunk).first(*back), deadline)) return;
    if (*forth == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(LinkAgent, ALinkThatChangesBytesIsFoundBeforeAnythingIsTimed) {
  const auto a = start_agent(), b = start_agent();
  auto listener = comm::Listener::open({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  std::thread relay([&] { corrupting_relay(*listener, b->address()); });
  {
    auto client = AgentClient::connect({"a", a->address()}, {.token = "t", .timeout_s = 2});
    ASSERT_TRUE(client) << client.error().message;
    const Status opened = client->open_flow(0, listener->address(), "");
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, Code::kCorrupt);
    EXPECT_THAT(opened.error().message, HasSubstr("of the data came wrong"));
    EXPECT_TRUE(client->open_flow(0, b->address(), "")) << "straight, the link is good";
  }
  relay.join();
}

}  // namespace
}  // namespace jige::profile
