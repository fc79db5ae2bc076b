// Meters that run collectives as well as sets of transfers: what a ring is planned for, timed as it
// is.
//
//   JIGE_TRY(const AllReduceTimes times, meter.all_reduce(order));
//
// Threads: one caller.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/deadline.h"
#include "profile/agent_protocol.h"
#include "profile/link_meter.h"

namespace jige::profile {

struct AllReduceTimes {
  int64_t bytes = 0;
  std::vector<double> seconds;  // of the slowest rank each time
  double edge_gb_per_s = 0;     // what every edge carried: 2 (n - 1) / n of the bytes, middle time
};

// Components in the order of a ring, and its part of the data.
struct WeightedOrder {
  std::vector<int32_t> order;
  double weight = 1;
};

class CollectiveMeter : public LinkMeter {
 public:
  // Runs all-reduces of `bytes` over several rings of the same components, the data split by
  // weight, each rank where its component is. The first one is checked, the others are timed.
  // 0: about as long as a set takes.
  virtual Result<AllReduceTimes> all_reduce(std::span<const WeightedOrder> rings,
                                            int64_t bytes = 0) = 0;
  // The same over one ring.
  Result<AllReduceTimes> all_reduce(std::span<const int32_t> order, int64_t bytes = 0) {
    const std::array<WeightedOrder, 1> ring{WeightedOrder{{order.begin(), order.end()}, 1}};
    return all_reduce(std::span<const WeightedOrder>(ring), bytes);
  }
};

// Those who serve ListenMessage and CollectMessage, by number.
struct CollectivePeers {
  std::function<Result<int>(size_t peer)> listen;  // the port
  // Sends the message, after the peer's own address was put in.
  std::function<Status(size_t peer, CollectMessage& message)> start;
  std::function<Result<std::vector<int64_t>>(size_t peer, comm::Deadline)> finish;
  std::function<std::string(size_t peer)> name;
};

// Rings of peers, by number. Ranks are places in that order, so that another order is another ring,
// not another numbering. `message` has what is not of a rank. Fails as the peers do, and with
// kCorrupt where one answers with another number of times. REQUIRES: a ring with a peer.
Result<AllReduceTimes> time_all_reduce(const std::vector<RingOrder>& rings, CollectMessage message,
                                       const CollectivePeers& peers, comm::Deadline deadline);

}  // namespace jige::profile
