// Agents and the meter that drives them, over this machine's loopback.
#include "profile/tcp_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/test_path.h"
#include "profile/agent_flows.h"
#include "profile/agent_test_support.h"
#include "profile/link_agent.h"
#include "profile/measurement_store.h"
#include "profile/profiler.h"

namespace jige::profile {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using topology::Transfer;
using topology::TransferKind;

// A free port that stays this test's while nobody listens there: bound, it is given to no other
// process that wants one, and SO_REUSEADDR lets a listener beside it.
class HeldPort {
 public:
  HeldPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "held") {
    const int on = 1;
    setsockopt(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto* any = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(bind(socket_.fd(), any, sizeof address), 0);
  }
  int number() const { return socket_.local_address().port; }

 private:
  comm::Socket socket_;
};

TcpMeterOptions quick_tcp() {
  TcpMeterOptions options{.agent = {.token = "t", .timeout_s = 2}, .bytes = 100'000};
  options.run_timeout_s = 2;
  options.repeats = {.count_min = 2, .count_max = 3};
  return options;
}

// Three agents and a meter over them; whoever ends one can start another in its place.
struct TcpLab {
  HeldPort ports[3];
  std::vector<std::unique_ptr<LinkAgent>> agents;
  std::vector<Host> hosts;
  std::unique_ptr<TcpMeter> meter;
  std::optional<topology::Topology> network;

  explicit TcpLab(const TcpMeterOptions& options = quick_tcp()) {
    for (const char* name : {"a", "b", "c"}) {
      agents.push_back(start_agent(ports[agents.size()].number()));
      hosts.push_back({name, agents.back()->address()});
    }
    connect(options);
  }
  void connect(const TcpMeterOptions& options) {
    meter.reset();
    auto made = TcpMeter::connect(hosts, options);
    ASSERT_TRUE(made) << made.error().message;
    meter = std::move(*made);
    auto created = topology::Topology::create(meter->description(), "test");
    ASSERT_TRUE(created) << created.error().message;
    network = std::move(*created);
    ASSERT_TRUE(meter->use(*network));
  }
};

Transfer send(int32_t from, int32_t to) { return {TransferKind::kSend, from, to}; }

TEST(TcpMeter, MeasuresSetsOfTransfers) {
  TcpLab lab;
  const Transfer ring[] = {send(0, 1), send(1, 2), send(2, 0), send(0, 2)};
  const auto m = lab.meter->measure(ring);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(m->gb_per_s.size(), 4u);
  EXPECT_GE(m->repeats, 2);
  EXPECT_GT(m->rate, 1e-4);
  for (const double rate : m->gb_per_s) EXPECT_GE(rate, m->rate * 0.5);
  EXPECT_GT(m->cost_s, 0);
  EXPECT_EQ(lab.meter->source(), "measured");
}

TEST(AgentFlows, TellHowBusyTheHostWasMeanwhile) {
  const std::unique_ptr<LinkAgent> agent = start_agent();
  const std::atomic<bool> stopping{false};
  AgentFlows flows("t", stopping);
  ASSERT_TRUE(flows.open(
      {.flow = 1, .address = "127.0.0.1", .port = agent->address().port, .timeout_ms = 2000}));
  // The start a tenth of a second ahead: some ticks pass for sure.
  const auto ran = flows.run({.flows = {1},
                              .bytes = {1000},
                              .start_ns = comm::monotonic_ns() + 100'000'000,
                              .timeout_ms = 2000});
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_GT(ran->processors.all, 0);
  EXPECT_GE(ran->processors.idle, 0);
  EXPECT_LE(ran->processors.idle, ran->processors.all);
}

TEST(TcpMeter, FindsHowMuchToSendByItself) {
  TcpMeterOptions options = quick_tcp();
  options.bytes = 0;
  options.run_s = 0.02;
  TcpLab lab(options);
  const Transfer one[] = {send(0, 1)};
  const auto m = lab.meter->measure(one);
  ASSERT_TRUE(m) << m.error().message;
  // Several runs of about 20 ms each, not of the microseconds that the first probe takes.
  EXPECT_GT(m->cost_s, 0.02);
}

TEST(TcpMeter, SendsToEachMemberItsShare) {
  TcpLab lab;
  const Transfer both[] = {send(0, 1), send(1, 2)};
  const double shares[] = {1, 0.25};
  const auto m = lab.meter->measure_shares(both, shares);
  ASSERT_TRUE(m) << m.error().message;
  // The whole is 100 000 bytes; whoever sends a quarter of it has a quarter of the amount.
  EXPECT_GT(m->rate, 1e-4);
  EXPECT_EQ(m->gb_per_s.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_GE(m->gb_per_s[i], m->rate * shares[i] * 0.5);
}

TEST(TcpMeter, RunsAnAllReduceOverSeveralRings) {
  TcpLab lab;
  const WeightedOrder rings[] = {{{0, 1, 2}, 0.75}, {{0, 2, 1}, 0.25}};
  const auto times = lab.meter->all_reduce(rings, 300'001);
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_EQ(times->seconds.size(), 3u);
  EXPECT_GT(times->edge_gb_per_s, 1e-4);
  const WeightedOrder odd[] = {{{0, 1, 2}, 1}, {{0, 1}, 1}};
  EXPECT_THAT(lab.meter->all_reduce(odd, 1000).error().message, HasSubstr("of the same ranks"));
}

TEST(TcpMeter, RunsTreesAndRoundsBetweenAgents) {
  TcpLab lab;
  CollectiveTask task{.rings = {{{0, 1, 2}, 1}}, .trees = {2, 0, 1}, .bytes = 100'000};
  const auto trees = lab.meter->collective(task);
  ASSERT_TRUE(trees) << trees.error().message;
  EXPECT_EQ(trees->bytes, 100'000);
  EXPECT_GT(trees->middle_s, 1e-7);
  EXPECT_EQ(trees->edge_gb_per_s, 0);
  task.trees.clear();
  task.rounds = {{{0, 2}, {2, 1}, {1, 0}}, {{0, 1}, {1, 2}, {2, 0}}};
  const auto rounds = lab.meter->collective(task);
  ASSERT_TRUE(rounds) << rounds.error().message;
  EXPECT_EQ(rounds->seconds.size(), 3u);
  task.rounds[1] = task.rounds[0];
  EXPECT_THAT(lab.meter->collective(task).error().message, HasSubstr("send to 2 twice"));
  task.rounds = {{{0, 3}}};
  EXPECT_THAT(lab.meter->collective(task).error().message, HasSubstr("between its own hosts"));
  task.rounds.clear();
  EXPECT_TRUE(lab.meter->collective(task)) << "an error must not spoil what follows";
}

TEST(TcpMeter, RefusesWhatItCannotMeasure) {
  TcpLab lab;
  const Transfer pushed[] = {{TransferKind::kPush, 0, 1}};
  EXPECT_EQ(lab.meter->measure(pushed).error().code, Code::kInvalidArgument);
  const Transfer router[] = {send(0, 3)};
  EXPECT_EQ(lab.meter->measure(router).error().code, Code::kInvalidArgument);
  const Transfer good[] = {send(0, 1)};
  EXPECT_TRUE(lab.meter->measure(good)) << "an error must not spoil what follows";
  EXPECT_EQ(TcpMeter::connect({lab.hosts[0]}, quick_tcp()).error().code, Code::kInvalidArgument);
  topology::Description wider = lab.meter->description();
  const int32_t d = wider.add({.name = "d", .kind = topology::ComponentKind::kHost});
  wider.join({.from = d, .to = wider.find("network")});
  EXPECT_THAT(lab.meter->use(*topology::Topology::create(wider, "wide")).error().message,
              HasSubstr("host \"d\" is none of --hosts; name it there"));
}

TEST(TcpMeter, KeepsItsAgentsWhereASetIsRefused) {
  TcpLab lab;
  const Transfer good[] = {send(0, 1)};
  ASSERT_TRUE(lab.meter->measure(good));
  const Transfer pushed[] = {{TransferKind::kPush, 0, 1}};
  ASSERT_EQ(lab.meter->measure(pushed).error().code, Code::kInvalidArgument);
  TcpMeterOptions hasty = quick_tcp();
  hasty.agent.timeout_s = 1;
  const auto second = TcpMeter::connect(lab.hosts, hasty);
  ASSERT_FALSE(second) << "connections, and what was checked over them, went with the refusal";
  EXPECT_THAT(second.error().message, HasSubstr("is busy for"));
}

TEST(TcpMeter, UnknownCongestionControlIsNamedWithWhatThereIs) {
  TcpLab lab;
  lab.meter.reset();
  TcpMeterOptions options = quick_tcp();
  options.congestion = "warp";
  const auto refused = TcpMeter::connect(lab.hosts, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("host a has no congestion control \"warp\", but"));
}

TEST(TcpMeter, SaysWhatMustRunWhereNobodyListens) {
  const HeldPort ports[2];
  const std::vector<Host> hosts = {{"a", {"127.0.0.1", ports[0].number()}},
                                   {"b", {"127.0.0.1", ports[1].number()}}};
  TcpMeterOptions hasty = quick_tcp();
  hasty.agent.timeout_s = 0.1;
  const auto none = TcpMeter::connect(hosts, hasty);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kUnavailable);
  EXPECT_THAT(none.error().message, ContainsRegex("agent of [ab] \\(127.0.0.1:"));
  EXPECT_THAT(none.error().message, HasSubstr("; `jige profile agent` must run there"));
}

TEST(TcpMeter, AnAgentServesOneProfilerAndOnlyWithItsToken) {
  TcpLab lab;
  TcpMeterOptions hasty = quick_tcp();
  hasty.agent.timeout_s = 0.3;
  const auto second = TcpMeter::connect(lab.hosts, hasty);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_THAT(second.error().message, HasSubstr("is busy for 127.0.0.1"));
  lab.meter.reset();
  TcpMeterOptions options = quick_tcp();
  options.agent.token = "guess";
  const auto stranger = TcpMeter::connect(lab.hosts, options);
  ASSERT_FALSE(stranger);
  EXPECT_THAT(stranger.error().message, HasSubstr("agent of "));
  EXPECT_THAT(stranger.error().message, HasSubstr("token"));
}

// Two profilers that name the same agents in opposite order must not hold one each.
TEST(TcpMeter, WaitsForTheFirstAgentByAddressAndHoldsNoOtherMeanwhile) {
  TcpLab lab;
  lab.meter.reset();
  std::vector<Host> hosts(lab.hosts.begin(), lab.hosts.begin() + 2);
  std::ranges::sort(hosts, std::greater<>(), [](const Host& host) { return host.address.port; });
  const AgentClientOptions quick{.token = "t", .timeout_s = 1};
  auto served = AgentClient::connect(hosts[1], quick);
  ASSERT_TRUE(served) << served.error().message;
  std::optional<AgentClient> first = std::move(*served);
  TcpMeterOptions patient = quick_tcp();
  patient.agent.timeout_s = 10;
  bool connected = false;
  std::thread other([&] { connected = TcpMeter::connect(hosts, patient).has_value(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  {
    const auto second = AgentClient::connect(hosts[0], quick);
    EXPECT_TRUE(second) << second.error().message;
  }
  first.reset();
  other.join();
  EXPECT_TRUE(connected);
}

// Whoever has little patience hears of it as well, at the second attempt or the first.
TEST(TcpMeter, WhomAnAgentServesIsToldHoweverShortOneWaits) {
  TcpLab lab;
  for (const double seconds : {0.13, 0.19, 0.24}) {
    TcpMeterOptions hasty = quick_tcp();
    hasty.agent.timeout_s = seconds;
    const auto second = TcpMeter::connect(lab.hosts, hasty);
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message, HasSubstr("is busy for 127.0.0.1")) << seconds;
  }
}

TEST(TcpMeter, AnAgentThatDisappearsIsNamedAndTheStoreGoesOn) {
  const std::string path = test_path("store");
  TcpLab lab;
  const Transfer all[] = {send(0, 1), send(1, 2), send(2, 0), send(1, 0)};
  {
    auto store = MeasurementStore::open(path, *lab.network, "measured");
    ASSERT_TRUE(store) << store.error().message;
    Profiler profiler(*lab.network, *lab.meter, &*store);
    ASSERT_TRUE(profiler.rate(std::span(all).first(1)));
    ASSERT_TRUE(profiler.rate(std::span(all).subspan(1, 1)));
    lab.agents[2].reset();
    const auto gone = profiler.rate(std::span(all).subspan(2, 1));
    ASSERT_FALSE(gone);
    EXPECT_EQ(gone.error().code, Code::kUnavailable);
    EXPECT_THAT(gone.error().message, HasSubstr("no answer from the agent of host c (127.0.0.1:"));
  }
  lab.agents[2] = start_agent(lab.ports[2].number());
  lab.connect(quick_tcp());
  auto store = MeasurementStore::open(path, *lab.network, "measured");
  ASSERT_TRUE(store) << store.error().message;
  Profiler profiler(*lab.network, *lab.meter, &*store);
  for (const Transfer& transfer : all) ASSERT_TRUE(profiler.rate(std::span(&transfer, 1)));
  EXPECT_EQ(profiler.counts().measured, 2);
  EXPECT_EQ(profiler.counts().recalled, 2);
}

TEST(TcpMeter, ConnectsAgainToAnAgentThatCameBack) {
  TcpLab lab;
  const Transfer one[] = {send(0, 1)};
  ASSERT_TRUE(lab.meter->measure(one));
  lab.agents[1].reset();
  ASSERT_FALSE(lab.meter->measure(one));
  lab.agents[1] = start_agent(lab.ports[1].number());
  const auto again = lab.meter->measure(one);
  EXPECT_TRUE(again) << again.error().message;
}

// The one that failed is told at once; the other one's transfer takes its time.
TEST(TcpMeter, AnAgentThatIsBusySendingIsNotTakenForGone) {
  TcpMeterOptions options = quick_tcp();
  options.bytes = int64_t{1} << 36;
  options.run_timeout_s = 20;
  TcpLab lab(options);
  const std::jthread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    lab.agents[2].reset();
  });
  const Transfer both[] = {send(0, 2), send(1, 0)};
  const auto gone = lab.meter->measure(both);
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, HasSubstr("no answer from the agent of host c (127.0.0.1:"));
  EXPECT_THAT(gone.error().message, Not(HasSubstr("host c, ")));
  EXPECT_THAT(gone.error().message, Not(HasSubstr("host b")));
}

// Any process may ask for a free port, or connect from one, while no agent listens.
TEST(HeldPort, IsGivenToNobodyElse) {
  const HeldPort held;
  for (int round = 0; round < 2; ++round) {
    const auto agent = start_agent(held.number());
    EXPECT_EQ(agent->address().port, held.number());
    EXPECT_TRUE(comm::connect_to(agent->address(), {}, comm::Deadline::after(2)));
  }
  const comm::Socket other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "other");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(held.number()));
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  EXPECT_NE(bind(other.fd(), any, sizeof address), 0) << "as a kernel looks for a free port";
}

TEST(TcpMeter, AnotherCongestionControlMakesAnotherFingerprint) {
  const std::string path = test_path("print");
  TcpLab lab;
  const std::string before = lab.meter->environment()["tcp congestion"];
  { ASSERT_TRUE(MeasurementStore::open(path, *lab.network, "measured")); }
  lab.meter.reset();
  TcpMeterOptions options = quick_tcp();
  options.congestion = before == "system" ? "reno" : "system";
  lab.connect(options);
  const auto refused = MeasurementStore::open(path, *lab.network, "measured");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("- environment tcp congestion " + before));
}

TEST(TcpMeter, RunsAnAllReduceOverTheRingOfHosts) {
  TcpLab lab;
  const int32_t ring[] = {0, 2, 1};
  const auto rate = lab.meter->all_reduce(ring);
  ASSERT_TRUE(rate) << rate.error().message;
  EXPECT_EQ(rate->seconds.size(), 3u);
  EXPECT_GT(rate->edge_gb_per_s, 1e-4);
  EXPECT_EQ(lab.meter->all_reduce(ring, 1 << 20)->bytes, 1 << 20);
  const int32_t two[] = {2, 0};
  EXPECT_TRUE(lab.meter->all_reduce(two)) << "some of the hosts";
  const int32_t router[] = {0, 3};
  EXPECT_EQ(lab.meter->all_reduce(router).error().code, Code::kInvalidArgument);
  const Transfer one[] = {send(0, 1)};
  EXPECT_TRUE(lab.meter->measure(one)) << "transfers go on afterwards";
}

TEST(TcpMeter, NamesAHostWithoutWhichThereIsNoAllReduce) {
  TcpMeterOptions options = quick_tcp();
  options.run_timeout_s = 0.3;
  TcpLab lab(options);
  const int32_t ring[] = {0, 2, 1};
  lab.agents[2].reset();
  const auto gone = lab.meter->all_reduce(ring);
  ASSERT_FALSE(gone);
  EXPECT_THAT(gone.error().message, HasSubstr("host c"));
}

TEST(TcpMeter, StopsWhenItIsCancelled) {
  std::atomic<bool> cancelled{false};
  TcpMeterOptions options = quick_tcp();
  options.cancelled = &cancelled;
  TcpLab lab(options);
  const Transfer one[] = {send(0, 1)};
  ASSERT_TRUE(lab.meter->measure(one));
  cancelled = true;
  EXPECT_EQ(lab.meter->measure(one).error().code, Code::kCancelled);
}

TEST(TcpMeter, StopsInTheMiddleOfATransfer) {
  std::atomic<bool> cancelled{false};
  TcpMeterOptions options = quick_tcp();
  options.bytes = int64_t{1} << 36;
  options.run_timeout_s = 20;
  options.cancelled = &cancelled;
  TcpLab lab(options);
  const std::jthread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    cancelled = true;
  });
  const Transfer one[] = {send(0, 1)};
  const StopWatch clock;
  EXPECT_EQ(lab.meter->measure(one).error().code, Code::kCancelled);
  EXPECT_LT(clock.seconds(), 5);
}

// One connection, both ways, everything a while later.
void slow_relay(comm::Listener& listener, const comm::Address& to, int64_t delay_ns) {
  const comm::Deadline deadline = comm::Deadline::after(10);
  comm::Socket ends[2] = {*listener.accept({}, deadline), *comm::connect_to(to, {}, deadline)};
  struct Piece {
    int64_t due_ns;
    std::vector<std::byte> bytes;
  };
  std::deque<Piece> under_way[2];  // by the end they came from
  std::vector<std::byte> chunk(4096);
  while (!deadline.passed()) {
    for (size_t from = 0; from < 2; ++from) {
      const auto got = ends[from].recv_some(chunk);
      if (!got) return;
      if (*got > 0) {
        under_way[from].push_back({comm::monotonic_ns() + delay_ns,
                                   {chunk.begin(), chunk.begin() + static_cast<ptrdiff_t>(*got)}});
      }
      while (!under_way[from].empty() && under_way[from].front().due_ns <= comm::monotonic_ns()) {
        if (!ends[1 - from].send_all(under_way[from].front().bytes, deadline)) return;
        under_way[from].pop_front();
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(TcpMeter, MembersStartTogetherThoughOneHostIsFarAway) {
  const auto a = start_agent(), b = start_agent(), far = start_agent();
  auto listener = comm::Listener::open({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  const int64_t delay_ns = 100'000'000;
  std::thread relay([&] { slow_relay(*listener, far->address(), delay_ns); });
  {
    TcpMeterOptions options = quick_tcp();
    options.agent.timeout_s = 5;
    auto meter = TcpMeter::connect(
        {{"a", a->address()}, {"b", b->address()}, {"far", listener->address()}}, options);
    ASSERT_TRUE(meter) << meter.error().message;
    const auto network = topology::Topology::create((*meter)->description(), "test");
    ASSERT_TRUE((*meter)->use(*network));
    const Transfer both[] = {send(0, 1), send(2, 1)};
    const auto m = (*meter)->measure(both);
    ASSERT_TRUE(m) << m.error().message;
    const double makespan_s = static_cast<double>(options.bytes) / (m->rate * 1e9);
    EXPECT_LT(makespan_s, 0.5 * static_cast<double>(delay_ns) * 1e-9);
  }
  relay.join();
}

}  // namespace
}  // namespace jige::profile
