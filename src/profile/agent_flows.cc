#include "profile/agent_flows.h"

#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "profile/agent_wire.h"
#include "profile/start_line.h"

namespace jige::profile {
namespace {

constexpr int64_t kOpeningBytes = 512 * 1024 + 17;

// Time that was waited for the disk is counted as idle, and may be taken back later.
ProcessorTime spent_since(const ProcessorTime& before) {
  const ProcessorTime spent = processor_time() - before;
  const bool plausible = spent.idle >= 0 && spent.all >= spent.idle && spent.all <= kTicksMax;
  return plausible ? spent : ProcessorTime();
}

comm::Deadline after_ms(int64_t ms) { return comm::Deadline::after(static_cast<double>(ms) / 1e3); }

}  // namespace

Status AgentFlows::open(const OpenMessage& message) {
  const comm::Deadline deadline = after_ms(message.timeout_ms).unless(&stopping_);
  JIGE_TRY(comm::Socket socket, comm::connect_to({message.address, static_cast<int>(message.port)},
                                                 {.name = "agent"}, deadline));
  if (!message.congestion.empty()) JIGE_DO(socket.set_congestion(message.congestion));
  JIGE_DO(send_message(socket, HelloMessage{.role = AgentRole::kData, .token = token_}, deadline));
  JIGE_TRY(const WelcomeMessage welcome, receive<WelcomeMessage>(socket, deadline));
  (void)welcome;
  JIGE_DO(send_data(socket, {.bytes = kOpeningBytes, .check = true}, deadline));
  const std::lock_guard lock(mutex_);
  flows_.insert_or_assign(message.flow, std::move(socket));
  return {};
}

Result<RanMessage> AgentFlows::run(const RunMessage& message) {
  const int64_t latest_ns = comm::monotonic_ns() + message.timeout_ms * 1'000'000;
  if (message.start_ns > latest_ns) {
    return fail(Code::kInvalidArgument, "a start later than the timeout of {} ms",
                message.timeout_ms);
  }
  const comm::Deadline deadline = comm::Deadline::at_ns(latest_ns).unless(&stopping_);
  std::vector<comm::Socket*> sockets;
  for (const int64_t flow : message.flows) {
    const std::lock_guard lock(mutex_);
    const auto found = flows_.find(flow);
    if (found == flows_.end()) return fail(Code::kNotFound, "flow {} is not open", flow);
    sockets.push_back(&found->second);
  }
  RanMessage ran;
  ran.times.resize(sockets.size());
  std::vector<Status> results(sockets.size());
  const auto send = [&](size_t i) {
    wait_until(message.start_ns, &stopping_);
    ran.times[i].begin_ns = comm::monotonic_ns();
    results[i] = send_data(*sockets[i], {.bytes = message.bytes[i]}, deadline);
    ran.times[i].end_ns = comm::monotonic_ns();
  };
  const ProcessorTime before = processor_time();
  std::vector<std::jthread> threads;  // those started end by the deadline, should one not start
  for (size_t i = 1; i < sockets.size(); ++i) threads.emplace_back(send, i);
  if (!sockets.empty()) send(0);
  threads.clear();
  ran.processors = spent_since(before);
  Status failure;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i]) continue;
    const std::lock_guard lock(mutex_);
    flows_.erase(message.flows[i]);
    failure = std::move(results[i]);
  }
  if (!failure) return tl::unexpected<Error>(std::move(failure.error()));
  return ran;
}

void AgentFlows::interrupt() {
  const std::lock_guard lock(mutex_);
  for (auto& [number, socket] : flows_) ::shutdown(socket.fd(), SHUT_RDWR);
}

}  // namespace jige::profile
