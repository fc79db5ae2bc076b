#include "profile/tcp_meter.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/log.h"

namespace jige::profile {
namespace {

// For the orders to reach all hosts before the start, beside what the farthest one's answer took.
constexpr int64_t kHostLeadNs = 3'000'000;
constexpr int kClockQuestions = 3;         // before every set
constexpr double kAgentAnswerSeconds = 1;  // for an agent to show that it is there

bool offers(const AgentClient& agent, const std::string& name) {
  return std::ranges::find(agent.congestion(), name) != agent.congestion().end();
}

std::vector<std::string> host_names(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

}  // namespace

TcpMeter::TcpMeter(std::vector<Host> hosts, const TcpMeterOptions& options)
    : PlaceMeter(host_names(hosts), "--hosts",
                 {.bytes = options.bytes,
                  .run_s = options.run_s,
                  .repeats = options.repeats,
                  .cancelled = options.cancelled}),
      hosts_(std::move(hosts)),
      options_(options),
      busy_(host_names(hosts_)) {}

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
  // By address: of two profilers that name the same hosts, one has all of them and the other waits.
  std::vector<size_t> by_address(hosts_.size());
  std::iota(by_address.begin(), by_address.end(), size_t{0});
  std::ranges::stable_sort(by_address, {}, [this](size_t host) {
    return std::pair(hosts_[host].address.host, hosts_[host].address.port);
  });
  std::vector<std::optional<AgentClient>> connected(hosts_.size());
  for (const size_t host : by_address) {
    JIGE_TRY(connected[host], AgentClient::connect(hosts_[host], options_.agent));
  }
  agents_.clear();
  for (std::optional<AgentClient>& agent : connected) agents_.push_back(std::move(*agent));
  flows().forget_checked();
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

// Opens their connections, whose content agents check as they open them.
Status TcpMeter::check_places(const std::vector<FlowMember>& fresh) {
  for (const FlowMember& member : fresh) {
    JIGE_DO(agents_[member.src].open_flow(member.flow, hosts_[member.dst].address, congestion_));
  }
  for (AgentClient& agent : agents_) JIGE_DO(agent.compare_clocks(kClockQuestions));
  return {};
}

// The agents that are gone, if any, explain why a transfer failed. The next measurement begins with
// new connections: what is still on its way on these belongs to nobody.
Error TcpMeter::end_places(Error error) {
  if (error.code == Code::kInvalidArgument || error.code == Code::kCancelled) {
    agents_.clear();
    return error;
  }
  std::vector<std::string> gone;
  for (const AgentClient& agent : agents_) {
    if (!agent.is_there(kAgentAnswerSeconds)) {
      gone.push_back(fmt::format("{} ({})", agent.host().name, agent.host().address.text()));
    }
  }
  agents_.clear();
  if (gone.empty()) return error;
  return {Code::kUnavailable,
          fmt::format("no answer from the agent of host {}; start it and run this again, which "
                      "goes on from the store ({})",
                      fmt::join(gone, ", "), error.message)};
}

Result<SetRun> TcpMeter::run_places(const std::vector<FlowMember>& members, int64_t bytes) {
  int64_t round_trip_ns = 0;
  for (const AgentClient& agent : agents_) {
    round_trip_ns = std::max(round_trip_ns, 2 * agent.clock_error_ns());
  }
  RunMessage order{.start_ns = comm::monotonic_ns() + kHostLeadNs + round_trip_ns,
                   .timeout_ms = static_cast<int64_t>(options_.run_timeout_s * 1e3)};
  std::vector<size_t> started;
  for (size_t host = 0; host < agents_.size(); ++host) {
    order.flows.clear();
    order.bytes.clear();
    for (const FlowMember& member : members) {
      if (member.src != host) continue;
      order.flows.push_back(member.flow);
      order.bytes.push_back(member_bytes(bytes, member.share));
    }
    if (order.flows.empty()) continue;
    JIGE_DO(agents_[host].start_run(order));
    started.push_back(host);
  }
  return gather(members, started);
}

Result<SetRun> TcpMeter::gather(const std::vector<FlowMember>& members,
                                const std::vector<size_t>& started) {
  // Agents give up by themselves, and then say why; later there is nobody to say it.
  const comm::Deadline deadline =
      comm::Deadline::after(options_.run_timeout_s + options_.agent.timeout_s);
  std::vector<FlowTimes> of_members(members.size());
  for (const size_t host : started) {
    JIGE_DO(agents_[host].await(deadline, options_.cancelled));
    JIGE_TRY(const RanMessage ran, agents_[host].finish_run(deadline));
    busy_.add(host, ran.processors);
    size_t next = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i].src != host) continue;
      if (next >= ran.times.size()) break;
      of_members[i] = ran.times[next++];
    }
  }
  busy_.warn();
  return set_run(of_members);
}

Result<CollectiveTimes> TcpMeter::collective(const CollectiveTask& task) {
  JIGE_DO(start_places());
  auto times = run(task);
  if (!times) return tl::unexpected<Error>(end_places(std::move(times.error())));
  return times;
}

Result<CollectiveTimes> TcpMeter::run(const CollectiveTask& task) {
  JIGE_DO(check_cancelled(options_.cancelled));
  const CollectivePeers peers{
      .number = [this](int32_t component) { return flows().place_of(component); },
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
                               .bytes = 2 * largest_bytes(),
                               .timeout_ms = static_cast<int64_t>(options_.run_timeout_s * 1e3)};
  return time_collective(
      task, message, peers,
      comm::Deadline::after(2 * options_.run_timeout_s + options_.agent.timeout_s));
}

}  // namespace jige::profile
