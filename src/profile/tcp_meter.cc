#include "profile/tcp_meter.h"

#include <algorithm>

#include "base/log.h"

namespace jige::profile {
namespace {

constexpr int64_t kProbeBytes = int64_t{256} * 1024;
constexpr int64_t kLeadNs = 3'000'000;  // for the orders to reach all hosts before the start
constexpr int kClockQuestions = 3;      // before every set
constexpr int kCollectiveRepeats = 3;
constexpr double kAnswerSeconds = 1;  // for an agent to show that it is there

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
                         .repeats = options_.repeats},
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
  if (options_.cancelled && *options_.cancelled) {
    return fail(Code::kCancelled, "interrupted; --store keeps what was measured");
  }
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

Result<CollectiveTimes> TcpMeter::all_reduce(std::span<const int32_t> order, int64_t bytes) {
  return collective({.rings = {{{order.begin(), order.end()}, 1}}, .bytes = bytes});
}

Result<CollectiveTimes> TcpMeter::all_reduce(std::span<const WeightedOrder> rings, int64_t bytes) {
  return collective({.rings = {rings.begin(), rings.end()}, .bytes = bytes});
}

Result<CollectiveTimes> TcpMeter::collective(const CollectiveTask& task) {
  if (agents_.empty()) JIGE_DO(connect_all());
  std::vector<size_t> hosts;
  for (const int32_t component : task.rings.front().order) {
    const auto host = host_of_.find(component);
    if (host == host_of_.end()) {
      return fail(Code::kInvalidArgument, "a collective runs between hosts with agents alone");
    }
    hosts.push_back(host->second);
  }
  std::ranges::sort(hosts);
  auto times = time_collective(task, hosts);
  if (!times) return explained(std::move(times.error()));
  return times;
}

// Ranks are places in `hosts` by their number, so that another order is another ring, not another
// numbering.
Result<CollectMessage> TcpMeter::message_of(const CollectiveTask& task,
                                            const std::vector<size_t>& hosts) const {
  const int64_t bytes = task.bytes == 0 ? std::max(2 * largest_bytes_, kProbeBytes) : task.bytes;
  CollectMessage message{.address = hosts_[hosts.front()].address.host,
                         .congestion = congestion_,
                         .bytes = std::clamp<int64_t>(bytes, 1, kCollectiveBytesMax),
                         .repeats = kCollectiveRepeats,
                         .timeout_ms = static_cast<int64_t>(options_.run_timeout_s * 1e3)};
  bool known = true;
  const auto rank_of = [&](int32_t component) -> int64_t {
    const auto host = host_of_.find(component);
    const auto place =
        host == host_of_.end() ? hosts.end() : std::ranges::lower_bound(hosts, host->second);
    known = known && place != hosts.end() && *place == host->second;
    return place - hosts.begin();
  };
  for (const WeightedOrder& ring : task.rings) {
    RingOrder& by_rank = message.rings.emplace_back(RingOrder{{}, ring.weight});
    for (const int32_t component : ring.order) by_rank.order.push_back(rank_of(component));
  }
  for (const int32_t component : task.trees) message.trees.push_back(rank_of(component));
  for (const auto& round : task.rounds) {
    std::vector<int64_t>& targets = message.rounds.emplace_back(hosts.size(), 0);
    for (const auto& [from, to] : round) {
      const int64_t sender = rank_of(from);
      if (known) targets[static_cast<size_t>(sender)] = rank_of(to);
    }
  }
  if (!known) {
    return fail(Code::kInvalidArgument, "a collective's paths run between its own hosts alone");
  }
  return message;
}

Result<CollectiveTimes> TcpMeter::time_collective(const CollectiveTask& task,
                                                  const std::vector<size_t>& hosts) {
  if (options_.cancelled && *options_.cancelled) {
    return fail(Code::kCancelled, "interrupted; --store keeps what was measured");
  }
  JIGE_TRY(CollectMessage message, message_of(task, hosts));
  JIGE_TRY(message.port, agents_[hosts.front()].listen());
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    message.rank = static_cast<int64_t>(rank);
    message.own = hosts_[hosts[rank]].address.host;
    JIGE_DO(agents_[hosts[rank]].start_collective(message));
  }
  const comm::Deadline deadline =
      comm::Deadline::after(2 * options_.run_timeout_s + options_.agent.timeout_s);
  CollectiveTimes result{.bytes = message.bytes,
                         .seconds = std::vector<double>(kCollectiveRepeats, 1e-9)};
  for (const size_t host : hosts) {
    JIGE_TRY(const std::vector<int64_t> times, agents_[host].finish_collective(deadline));
    if (times.size() != result.seconds.size()) {
      return fail(Code::kCorrupt, "the agent of {} timed {} collectives, not {}", hosts_[host].name,
                  times.size(), result.seconds.size());
    }
    for (size_t i = 0; i < times.size(); ++i) {
      result.seconds[i] = std::max(result.seconds[i], static_cast<double>(times[i]) * 1e-9);
    }
  }
  std::vector<double> sorted = result.seconds;
  std::ranges::sort(sorted);
  result.middle_s = sorted[sorted.size() / 2];
  if (task.trees.empty() && task.rounds.empty()) {
    const auto count = static_cast<double>(hosts.size());
    const double edge_bytes = 2 * (count - 1) / count * static_cast<double>(message.bytes);
    result.edge_gb_per_s = edge_bytes / result.middle_s / 1e9;
  }
  return result;
}

}  // namespace jige::profile
