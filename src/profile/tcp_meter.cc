#include "profile/tcp_meter.h"

#include <algorithm>

#include "base/log.h"

namespace jige::profile {
namespace {

constexpr int64_t kProbeBytes = int64_t{256} * 1024;
constexpr int64_t kLeadNs = 3'000'000;  // for the orders to reach all hosts before the start
constexpr int kClockQuestions = 3;      // before every set
constexpr double kAnswerSeconds = 1;    // for an agent to show that it is there

bool offers(const AgentClient& agent, const std::string& name) {
  return std::ranges::find(agent.congestion(), name) != agent.congestion().end();
}

}  // namespace

Result<std::unique_ptr<TcpMeter>> TcpMeter::connect(std::vector<Host> hosts,
                                                    const TcpMeterOptions& options) {
  if (hosts.size() < 2) {
    return fail(Code::kInvalidArgument, "a link has two ends: {} host is named", hosts.size());
  }
  std::unique_ptr<TcpMeter> meter(new TcpMeter(std::move(hosts), options));
  JIGE_DO(meter->connect_all());
  JIGE_DO(meter->choose_congestion());
  return meter;
}

Status TcpMeter::connect_all() {
  std::vector<AgentClient> agents;
  for (const Host& host : hosts_) {
    JIGE_TRY(AgentClient agent, AgentClient::connect(host, options_.agent));
    agents.push_back(std::move(agent));
  }
  agents_ = std::move(agents);
  flows_.clear();
  return {};
}

Status TcpMeter::choose_congestion() {
  if (options_.congestion == "system") return {};
  const bool automatic = options_.congestion == "auto";
  congestion_ = automatic ? "bbr" : options_.congestion;
  for (const AgentClient& agent : agents_) {
    if (offers(agent, congestion_)) continue;
    if (!automatic) {
      return fail(Code::kUnsupported, "host {} has no congestion control \"{}\", but {}",
                  agent.host().name, congestion_, fmt::join(agent.congestion(), ", "));
    }
    log_warn(
        "host {} has no bbr: every host uses its own congestion control, and rates of shared "
        "links will vary more",
        agent.host().name);
    congestion_.clear();
    break;
  }
  return {};
}

std::map<std::string, std::string> TcpMeter::environment() const {
  std::map<std::string, std::string> facts;
  facts["tcp congestion"] = congestion_.empty() ? "system" : congestion_;
  for (const AgentClient& agent : agents_) {
    facts["agent of " + agent.host().name] = agent.host().address.text();
    facts["kernel of " + agent.host().name] = agent.kernel();
  }
  return facts;
}

Status TcpMeter::use(const topology::Topology& network) {
  host_of_.clear();
  for (const int32_t component : network.of_kind(topology::ComponentKind::kHost)) {
    const std::string& name = network.component(component).name;
    const auto host = std::ranges::find(hosts_, name, &Host::name);
    if (host == hosts_.end()) {
      return fail(Code::kInvalidArgument, "{}: host \"{}\" has no agent; name it in --hosts",
                  network.name(), name);
    }
    host_of_[component] = static_cast<size_t>(host - hosts_.begin());
  }
  return {};
}

Result<Measurement> TcpMeter::measure(std::span<const topology::Transfer> set) {
  return measure_shares(set, std::vector<double>(set.size(), 1));
}

Result<Measurement> TcpMeter::measure_shares(std::span<const topology::Transfer> set,
                                             std::span<const double> shares) {
  if (agents_.empty()) JIGE_DO(connect_all());
  auto members = open_members(set);
  if (!members) return explained(std::move(members.error()));
  for (size_t i = 0; i < members->size(); ++i) (*members)[i].share = shares[i];
  for (AgentClient& agent : agents_) {
    if (Status compared = agent.compare_clocks(kClockQuestions); !compared) {
      return explained(std::move(compared.error()));
    }
  }
  auto timed = time_set({.bytes = options_.bytes,
                         .run_s = options_.run_s,
                         .probe_bytes = kProbeBytes,
                         .repeats = options_.repeats,
                         .cancelled = options_.cancelled},
                        shares, [&](int64_t bytes) { return run_once(*members, bytes); });
  if (!timed) return explained(std::move(timed.error()));
  changes_ += timed->changes;
  largest_bytes_ = std::max(largest_bytes_, timed->bytes);
  return std::move(timed->measurement);
}

// The agents that are gone, if any, explain why a transfer failed. The next measurement begins with
// new connections: what is still on its way on these belongs to nobody.
tl::unexpected<Error> TcpMeter::explained(Error error) {
  if (error.code == Code::kInvalidArgument || error.code == Code::kCancelled) {
    agents_.clear();
    return tl::unexpected<Error>(std::move(error));
  }
  std::vector<std::string> gone;
  for (AgentClient& agent : agents_) {
    if (!agent.answers(kAnswerSeconds)) {
      gone.push_back(fmt::format("{} ({})", agent.host().name, agent.host().address.text()));
    }
  }
  agents_.clear();
  if (gone.empty()) return tl::unexpected<Error>(std::move(error));
  return fail(
      Code::kUnavailable,
      "no answer from the agent of host {}; start it and run this again, which goes on from "
      "the store ({})",
      fmt::join(gone, ", "), error.message);
}

Result<std::vector<TcpMeter::Member>> TcpMeter::open_members(
    std::span<const topology::Transfer> set) {
  std::vector<Member> members;
  for (const topology::Transfer& transfer : set) {
    const auto src = host_of_.find(transfer.src), dst = host_of_.find(transfer.dst);
    if (transfer.kind != topology::TransferKind::kSend || src == host_of_.end() ||
        dst == host_of_.end() || src->second == dst->second) {
      return fail(Code::kInvalidArgument, "between hosts only transfers a>b:send are measured");
    }
    const std::pair<size_t, size_t> ends(src->second, dst->second);
    const auto flow = static_cast<int64_t>(ends.second);
    if (!flows_.contains(ends)) {
      JIGE_DO(agents_[ends.first].open_flow(flow, hosts_[ends.second].address, congestion_));
      flows_.insert(ends);
    }
    members.push_back({ends.first, flow});
  }
  return members;
}

Result<SetRun> TcpMeter::run_once(const std::vector<Member>& members, int64_t bytes) {
  RunMessage order{.start_ns = comm::monotonic_ns() + kLeadNs,
                   .timeout_ms = static_cast<int64_t>(options_.run_timeout_s * 1e3)};
  std::vector<size_t> started;
  for (size_t host = 0; host < agents_.size(); ++host) {
    order.flows.clear();
    order.bytes.clear();
    for (const Member& member : members) {
      if (member.host != host) continue;
      order.flows.push_back(member.flow);
      order.bytes.push_back(member_bytes(bytes, member.share));
    }
    if (order.flows.empty()) continue;
    JIGE_DO(agents_[host].start_run(order));
    started.push_back(host);
  }
  return gather(members, started);
}

Result<SetRun> TcpMeter::gather(const std::vector<Member>& members,
                                const std::vector<size_t>& started) {
  // Agents give up by themselves, and then say why; later there is nobody to say it.
  const comm::Deadline deadline =
      comm::Deadline::after(options_.run_timeout_s + options_.agent.timeout_s);
  std::vector<FlowTimes> of_members(members.size());
  for (const size_t host : started) {
    JIGE_DO(agents_[host].await(deadline, options_.cancelled));
    JIGE_TRY(const std::vector<FlowTimes> times, agents_[host].finish_run(deadline));
    size_t next = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i].host != host) continue;
      if (next >= times.size()) break;
      of_members[i] = times[next++];
    }
  }
  return set_run(of_members);
}

Result<CollectiveTimes> TcpMeter::collective(const CollectiveTask& task) {
  if (agents_.empty()) JIGE_DO(connect_all());
  auto times = run(task);
  if (!times) return explained(std::move(times.error()));
  return times;
}

Result<CollectiveTimes> TcpMeter::run(const CollectiveTask& task) {
  JIGE_DO(check_cancelled(options_.cancelled));
  const CollectivePeers peers{
      .number = [this](int32_t component) { return number_in(host_of_, component); },
      .listen = [this](size_t host) { return agents_[host].listen(); },
      .start =
          [this](size_t host, CollectMessage& rank) {
            rank.own = hosts_[host].address.host;
            return agents_[host].start_collective(rank);
          },
      .finish = [this](size_t host, comm::Deadline deadline) -> Result<std::vector<int64_t>> {
        JIGE_DO(agents_[host].await(deadline, options_.cancelled));
        return agents_[host].finish_collective(deadline);
      },
      .address = [this](size_t host) { return hosts_[host].address.host; },
      .name = [this](size_t host) { return "the agent of " + hosts_[host].name; }};
  const CollectMessage message{.congestion = congestion_,
                               .bytes = 2 * largest_bytes_,
                               .timeout_ms = static_cast<int64_t>(options_.run_timeout_s * 1e3)};
  return time_collective(
      task, message, peers,
      comm::Deadline::after(2 * options_.run_timeout_s + options_.agent.timeout_s));
}

}  // namespace jige::profile
