#include "profile/agent_client.h"

#include <poll.h>

#include <chrono>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "profile/agent_wire.h"

namespace jige::profile {
namespace {

constexpr int64_t kRetryNs = 100'000'000;  // between two attempts at an agent that is busy

}  // namespace

AgentClient::AgentClient(Host host, AgentClientOptions options, comm::Socket socket,
                         WelcomeMessage welcome)
    : host_(std::move(host)),
      options_(std::move(options)),
      socket_(std::move(socket)),
      welcome_(std::move(welcome)) {}

Result<AgentClient> AgentClient::connect(const Host& host, const AgentClientOptions& options) {
  const comm::Deadline deadline = comm::Deadline::after(options.timeout_s);
  const auto attempt = [&]() -> Result<AgentClient> {
    auto connected = comm::connect_to(host.address, {.name = "agent of " + host.name}, deadline);
    if (!connected) {
      return fail(connected.error().code,
                  "{}; `jige profile agent` must run there and be reachable",
                  connected.error().message);
    }
    comm::Socket socket = std::move(*connected);
    JIGE_DO(send_message(socket, HelloMessage{.token = options.token}, deadline));
    JIGE_TRY(WelcomeMessage welcome, receive<WelcomeMessage>(socket, deadline));
    return AgentClient(host, options, std::move(socket), std::move(welcome));
  };
  for (std::optional<Error> before;;) {
    auto client = attempt();
    if (client) {
      JIGE_DO(client->compare_clocks(8));
      return client;
    }
    // A profiler that has just ended may still count as being served.
    const bool again = client.error().code == Code::kUnavailable;
    if (!again || deadline.left_ns() <= kRetryNs) {
      // That time was up explains less than what was said before.
      const bool late = before && deadline.passed();
      return tl::unexpected<Error>(std::move(late ? *before : client.error()));
    }
    before = std::move(client.error());
    std::this_thread::sleep_for(std::chrono::nanoseconds(kRetryNs));
  }
}

Status AgentClient::compare_clocks(int questions) {
  int64_t best = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < questions; ++i) {
    const int64_t asked = comm::monotonic_ns();
    JIGE_DO(send_message(socket_, ClockMessage{}, soon()));
    JIGE_TRY(const ClockMessage clock, receive<ClockMessage>(socket_, soon()));
    const int64_t round_trip = comm::monotonic_ns() - asked;
    if (round_trip >= best) continue;
    best = round_trip;
    ahead_ns_ = clock.now_ns - (asked + round_trip / 2);
    clock_error_ns_ = round_trip / 2;
  }
  return {};
}

Status AgentClient::open_flow(int64_t flow, const comm::Address& to,
                              const std::string& congestion) {
  const auto timeout_ms = static_cast<int64_t>(options_.timeout_s * 1e3);
  JIGE_DO(send_message(socket_,
                       OpenMessage{.flow = flow,
                                   .address = to.host,
                                   .port = to.port,
                                   .congestion = congestion,
                                   .timeout_ms = timeout_ms},
                       soon()));
  // The agent's own deadline passes first, and tells more.
  JIGE_TRY(const OpenedMessage opened,
           receive<OpenedMessage>(socket_, comm::Deadline::after(2 * options_.timeout_s)));
  (void)opened;
  return {};
}

Status AgentClient::start_run(RunMessage message) {
  message.start_ns += ahead_ns_;
  return send_message(socket_, message, soon());
}

Result<RanMessage> AgentClient::finish_run(comm::Deadline deadline) {
  JIGE_TRY(RanMessage ran, receive<RanMessage>(socket_, deadline));
  for (FlowTimes& times : ran.times) {
    times.begin_ns -= ahead_ns_;
    times.end_ns -= ahead_ns_;
  }
  return ran;
}

Result<int> AgentClient::listen() {
  JIGE_DO(send_message(socket_, ListenMessage{host_.address.host}, soon()));
  JIGE_TRY(const ListeningMessage listening, receive<ListeningMessage>(socket_, soon()));
  return static_cast<int>(listening.port);
}

Status AgentClient::start_collective(const CollectMessage& message) {
  return send_message(socket_, message, soon());
}

Result<std::vector<int64_t>> AgentClient::finish_collective(comm::Deadline deadline) {
  JIGE_TRY(CollectedMessage collected, receive<CollectedMessage>(socket_, deadline));
  return std::move(collected.times_ns);
}

Status AgentClient::await(comm::Deadline deadline, const std::atomic<bool>* cancelled) const {
  return await_answer(socket_, deadline, cancelled);
}

bool AgentClient::is_there(double seconds) const {
  pollfd entry = {.fd = socket_.fd(), .events = POLLRDHUP, .revents = 0};
  if (poll(&entry, 1, 0) > 0) return false;
  // Over this connection it may have no word for us until what it was asked for has ended.
  const comm::Deadline deadline = comm::Deadline::after(seconds);
  auto other = comm::connect_to(host_.address, {.name = "agent of " + host_.name}, deadline);
  const HelloMessage hello{.role = AgentRole::kData, .token = options_.token};
  if (!other || !send_message(*other, hello, deadline)) return false;
  return receive<WelcomeMessage>(*other, deadline).has_value();
}

}  // namespace jige::profile
