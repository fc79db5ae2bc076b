// Meters that run collectives as well as sets of transfers: what a plan is for, timed as it is.
//
//   JIGE_TRY(const CollectiveTimes times, meter.all_reduce(order));
//
// Threads: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "profile/agent_protocol.h"
#include "profile/link_meter.h"

namespace jige::profile {

struct CollectiveTimes {
  int64_t bytes = 0;
  std::vector<double> seconds;  // of the slowest rank each time
  double middle_s = 0;
  double edge_gb_per_s = 0;  // what every edge of a ring carried: 2 (n - 1) / n of the bytes
};

// Components in the order of a ring, and its part of the data.
struct WeightedOrder {
  std::vector<int32_t> order;
  double weight = 1;
};

// What components run together: an all-reduce along rings, or by double trees, or an all-to-all.
struct CollectiveTask {
  std::vector<WeightedOrder> rings;  // each of all components that take part
  std::vector<int32_t> trees;        // those by place; none: along the rings
  // From whom to whom in each round of an all-to-all; none: an all-reduce.
  std::vector<std::vector<std::pair<int32_t, int32_t>>> rounds;
  // Of the whole: of the array, or of all blocks of one. 0: about as long as a set takes.
  int64_t bytes = 0;
};

class CollectiveMeter : public LinkMeter {
 public:
  // Runs a collective, each rank where its component is. The first one is checked, the others are
  // timed. Rates of edges are told of rings alone.
  virtual Result<CollectiveTimes> collective(const CollectiveTask& task) = 0;
  // All-reduces of `bytes` over several rings of the same components, the data split by weight.
  Result<CollectiveTimes> all_reduce(std::span<const WeightedOrder> rings, int64_t bytes = 0) {
    return collective({.rings = {rings.begin(), rings.end()}, .bytes = bytes});
  }
  // The same over one ring.
  Result<CollectiveTimes> all_reduce(std::span<const int32_t> order, int64_t bytes = 0) {
    return collective({.rings = {{{order.begin(), order.end()}, 1}}, .bytes = bytes});
  }
};

// Those who serve ListenMessage and CollectMessage, by number.
struct CollectivePeers {
  std::function<std::optional<size_t>(int32_t component)> number;  // nothing for another component
  std::function<Result<int>(size_t peer)> listen;                  // the port
  // Sends the message, after the peer's own address was put in.
  std::function<Status(size_t peer, CollectMessage& message)> start;
  std::function<Result<std::vector<int64_t>>(size_t peer, comm::Deadline)> finish;
  std::function<std::string(size_t peer)> address;  // where it listens
  std::function<std::string(size_t peer)> name;
};

// Runs the task with the peers that its components are. Ranks are places in their order by number,
// so that another order is another ring, not another numbering. `message` has what is neither of a
// rank nor of the task, and the bytes for a task that leaves them open. Fails as the peers do, with
// kInvalidArgument for a component that is none of the ring's peers, and with kCorrupt where one
// answers with another number of times. REQUIRES: a ring with a peer.
Result<CollectiveTimes> time_collective(const CollectiveTask& task, CollectMessage message,
                                        const CollectivePeers& peers, comm::Deadline deadline);

}  // namespace jige::profile
