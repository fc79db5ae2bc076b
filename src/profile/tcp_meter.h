// Measures sets of transfers between hosts, over TCP, by the agents on them.
//
//   JIGE_TRY(const auto meter, TcpMeter::connect(hosts, {.token = token}));
//   JIGE_TRY(const auto network, Topology::create(meter->description(), "--hosts"));
//   meter->use(network);
//   JIGE_TRY(const Measurement m, meter->measure(set));
//
// Every transfer has a connection of its own, whose data is checked once, as it is opened. The
// members of a set start at one moment, told in each agent's own clock; the makespan reaches from
// the first start to the last end. Transfers are of equal size, so that it does not matter who gets
// more of a shared link for a while; where shares are given they have those sizes. The first run of
// a set only finds out how much to send; then runs are timed until Repeats trusts their mean or the
// set's time is up, anew if the rate changed on the way.
//
// Agents that answer no more are named; everything is connected again upon the next measurement.
// Threads: one caller.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "profile/agent_client.h"
#include "profile/busy_hosts.h"
#include "profile/collective_meter.h"
#include "profile/host_list.h"
#include "profile/place_meter.h"
#include "topology/topology.h"

namespace jige::profile {

struct TcpMeterOptions {
  AgentClientOptions agent;
  std::string congestion = "auto";  // bbr where all hosts have it; "system": not set
  int64_t bytes = 0;                // of each transfer; 0: what takes `run_s`
  double run_s = 0.12;
  double run_timeout_s = 30;
  RepeatLimits repeats;
  const std::atomic<bool>* cancelled = nullptr;
};

class TcpMeter final : public PlaceMeter<CollectiveMeter> {
 public:
  // Connects to all agents. Fails with kInvalidArgument for fewer than two hosts, kUnsupported for
  // a congestion control that a host lacks, and as AgentClient::connect does.
  static Result<std::unique_ptr<TcpMeter>> connect(std::vector<Host> hosts,
                                                   const TcpMeterOptions& options);

  // What measurements depend on: where the hosts are, their kernels, congestion control.
  std::map<std::string, std::string> environment() const;
  // The hosts behind one router, with that environment.
  topology::Description description() const { return hosts_description(hosts_, environment()); }
  Result<CollectiveTimes> collective(const CollectiveTask& task) override;
  const std::string& congestion() const { return congestion_; }

 private:
  TcpMeter(std::vector<Host> hosts, const TcpMeterOptions& options);
  Status connect_all();
  Status choose_congestion();
  Status start_places() override { return agents_.empty() ? connect_all() : Status(); }
  Status check_places(const std::vector<FlowMember>& fresh) override;
  Result<SetRun> run_places(const std::vector<FlowMember>& members, int64_t bytes) override;
  Result<SetRun> gather(const std::vector<FlowMember>& members, const std::vector<size_t>& started);
  Result<CollectiveTimes> run(const CollectiveTask& task);
  Error end_places(Error error) override;

  std::vector<Host> hosts_;
  TcpMeterOptions options_;
  std::string congestion_;
  std::vector<AgentClient> agents_;  // of hosts_; empty after a failure
  BusyHosts busy_;
};

}  // namespace jige::profile
