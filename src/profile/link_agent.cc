#include "profile/link_agent.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <sstream>
#include <system_error>

#include "base/file.h"
#include "base/log.h"
#include "profile/agent_flows.h"
#include "profile/agent_wire.h"
#include "profile/hang_up_watch.h"

namespace jige::profile {
namespace {

constexpr double kSliceSeconds = 0.1;  // how soon the listener sees that it shall stop
constexpr double kErrorSeconds = 2;    // to get an error to whoever caused it

}  // namespace

std::vector<std::string> congestion_controls() {
  std::vector<std::string> names;
  const auto text = read_file("/proc/sys/net/ipv4/tcp_available_congestion_control", 4096);
  if (!text) return names;
  // Of those only some are for everybody; for the others it takes an administrator.
  comm::Socket probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "a connection");
  std::istringstream words(*text);
  for (std::string name; words >> name;) {
    if (!probe.is_open() || probe.set_congestion(name)) names.push_back(name);
  }
  return names;
}

std::string kernel_release() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "unknown";
}

Result<std::unique_ptr<LinkAgent>> LinkAgent::start(const LinkAgentOptions& options) {
  JIGE_TRY(comm::Listener listener, comm::Listener::open(options.listen));
  std::unique_ptr<LinkAgent> agent(new LinkAgent(options, std::move(listener)));
  agent->acceptor_ = std::thread([self = agent.get()] { self->accept_connections(); });
  return agent;
}

LinkAgent::~LinkAgent() {
  stopping_ = true;
  if (acceptor_.joinable()) acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (Connection& connection : connections_) ::shutdown(connection.socket.fd(), SHUT_RDWR);
    if (flows_) flows_->interrupt();
  }
  for (Connection& connection : connections_) connection.thread.join();
}

void LinkAgent::accept_connections() {
  while (!stopping_) {
    pollfd entry = {.fd = listener_.fd(), .events = POLLIN, .revents = 0};
    // One that ends welcomes nobody, who would take it for there.
    if (poll(&entry, 1, static_cast<int>(kSliceSeconds * 1000)) <= 0 || stopping_) {
      forget_ended();
      continue;
    }
    auto socket = listener_.accept({}, comm::Deadline::after(kSliceSeconds));
    forget_ended();
    if (socket) {
      take(std::move(*socket));
    } else if (socket.error().code != Code::kUnavailable) {
      // Without a descriptor for it, the connection goes on being announced.
      log_warn("agent: {}", socket.error().message);
      std::this_thread::sleep_for(std::chrono::duration<double>(kSliceSeconds));
    }
  }
}

void LinkAgent::take(comm::Socket socket) {
  const std::lock_guard lock(mutex_);
  if (static_cast<int32_t>(connections_.size()) >= options_.connections_max) {
    // What does not fit into the kernel's buffer at once is not waited for.
    (void)send_message(socket,
                       ErrorMessage{Code::kExhausted, "too many connections; try again later"},
                       comm::Deadline::after(0));
    return;
  }
  Connection& connection = connections_.emplace_back();
  connection.socket = std::move(socket);
  try {
    connection.thread = std::thread([this, &connection] {
      talk(connection.socket);
      ::shutdown(connection.socket.fd(), SHUT_RDWR);
      connection.ended = true;
    });
  } catch (const std::system_error& error) {
    log_warn("agent: no thread for {}: {}", connection.socket.peer(), error.what());
    connections_.pop_back();
  }
}

void LinkAgent::forget_ended() {
  const std::lock_guard lock(mutex_);
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (!it->ended) {
      ++it;
      continue;
    }
    it->thread.join();
    it = connections_.erase(it);
  }
}

void LinkAgent::talk(comm::Socket& socket) {
  // What the standard library throws where memory or threads are at an end is the end of this
  // connection, not of the agent.
  const auto served = [&]() -> Status {
    try {
      return greet_and_serve(socket);
    } catch (const std::exception& error) {
      return fail(Code::kExhausted, "this host cannot do that now: {}", error.what());
    }
  };
  const Status status = served();
  if (status) return;
  log_debug("agent: {}", status.error().message);
  (void)send_message(socket, ErrorMessage{status.error().code, status.error().message},
                     after(kErrorSeconds));
}

Status LinkAgent::greet_and_serve(comm::Socket& socket) {
  const comm::Deadline deadline = after(options_.hello_s);
  JIGE_TRY(const HelloMessage hello, receive<HelloMessage>(socket, deadline));
  if (hello.version != kAgentVersion) {
    return fail(Code::kUnsupported, "this agent speaks version {}, not {}; use one release of jige",
                kAgentVersion, hello.version);
  }
  if (!same_token(options_.token, hello.token)) {
    return fail(Code::kInvalidArgument, "the token is not this agent's (--token)");
  }
  const WelcomeMessage welcome{.kernel = kernel_release(), .congestion = congestion_controls()};
  if (hello.role == AgentRole::kData) {
    JIGE_DO(send_message(socket, welcome, deadline));
    return serve_data(socket);
  }
  return serve_profiler(socket, welcome);
}

// Those of one, until it goes; whichever way, the next one is served.
Status LinkAgent::serve_profiler(comm::Socket& socket, const WelcomeMessage& welcome) {
  {
    const std::lock_guard lock(mutex_);
    if (!profiler_.empty()) {
      return fail(Code::kUnavailable, "is busy for {}; try again when that has ended", profiler_);
    }
    profiler_ = socket.peer();
  }
  const auto leave = [this](std::string* profiler) {
    const std::lock_guard lock(mutex_);
    profiler->clear();
  };
  const std::unique_ptr<std::string, decltype(leave)> served(&profiler_, leave);
  const HangUpWatch watch(socket);
  AgentFlows flows(options_.token, watch.gone());
  const auto show = [this](AgentFlows* shown) {
    const std::lock_guard lock(mutex_);
    flows_ = shown;
  };
  show(&flows);
  const auto hide = [&](AgentFlows*) { show(nullptr); };
  const std::unique_ptr<AgentFlows, decltype(hide)> shown(&flows, hide);
  JIGE_DO(send_message(socket, welcome, after(options_.hello_s)));
  return serve_control(socket, flows, watch.gone());
}

Status LinkAgent::serve_control(comm::Socket& socket, AgentFlows& flows,
                                const std::atomic<bool>& gone) {
  Meeting meeting;
  for (;;) {
    JIGE_TRY(const AgentMessage message, receive_message(socket, after(options_.idle_s)));
    JIGE_DO(send_message(socket, answer(message, flows, meeting, gone), after(options_.hello_s)));
  }
}

AgentMessage LinkAgent::answer(const AgentMessage& message, AgentFlows& flows, Meeting& meeting,
                               const std::atomic<bool>& gone) const {
  if (auto collective = answer_collective(message, meeting, "tcp", &gone)) {
    return std::move(*collective);
  }
  const auto refusal = [](const Error& error) { return ErrorMessage{error.code, error.message}; };
  if (std::holds_alternative<ClockMessage>(message)) return ClockMessage{comm::monotonic_ns()};
  if (const auto* open = std::get_if<OpenMessage>(&message)) {
    if (const Status opened = flows.open(*open); !opened) return refusal(opened.error());
    return OpenedMessage{open->flow};
  }
  if (const auto* run = std::get_if<RunMessage>(&message)) {
    auto ran = flows.run(*run);
    if (!ran) return refusal(ran.error());
    return std::move(*ran);
  }
  return ErrorMessage{Code::kUnsupported, "not asked for like that"};
}

Status LinkAgent::serve_data(comm::Socket& socket) {
  for (;;) {
    const comm::Deadline deadline = after(options_.idle_s);
    JIGE_TRY(const DataMessage data, receive<DataMessage>(socket, deadline));
    JIGE_DO(take_data(socket, data, after(options_.idle_s)));
  }
}

}  // namespace jige::profile
