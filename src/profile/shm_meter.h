// Measures sets of transfers between processes of this machine, each pinned to processors or a NUMA
// node, through shared memory.
//
//   JIGE_TRY(const auto meter, ShmMeter::start(places, {}));
//   JIGE_TRY(const auto machine, Topology::create(meter->description(), "--shm"));
//   JIGE_DO(meter->use(machine));
//   JIGE_TRY(const Measurement m, meter->measure(set));
//
// Transfers are a>b:send between the hosts that stand for the processes. The first time of a
// transfer is checked, byte by byte, before anything of its set is timed. The members of a set
// start at one moment; a member's time reaches from its sender's start to its receiver's last byte.
// Sizes, repeats and change of rates are set_timer.h's.
//
// A process that ends, stalls or gets wrong data is named; all are started again upon the next
// measurement. None is left behind, however this one ends.
// Threads: one caller, in a process of one thread, since it forks.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/local_ranks.h"
#include "comm/socket.h"
#include "profile/busy_hosts.h"
#include "profile/collective_meter.h"
#include "profile/local_places.h"
#include "profile/place_meter.h"
#include "profile/shm_rank.h"
#include "topology/topology.h"

namespace jige::profile {

struct ShmMeterOptions {
  int64_t bytes = 0;  // of each transfer; 0: what takes `run_s`
  double run_s = 0.05;
  double run_timeout_s = 30;
  RepeatLimits repeats;
  ShmRankOptions rank;  // but for the place
  const std::atomic<bool>* cancelled = nullptr;
};

class ShmMeter final : public PlaceMeter<CollectiveMeter> {
 public:
  // Starts the processes. REQUIRES: places as parse_places gives them.
  static Result<std::unique_ptr<ShmMeter>> start(std::vector<LocalPlace> places,
                                                 const ShmMeterOptions& options);

  // The processes around one router, with what measurements depend on.
  topology::Description description() const;
  // Ranks meet on the loopback and share memory.
  Result<CollectiveTimes> collective(const CollectiveTask& task) override;
  // Of a place, while its process runs; -1 otherwise.
  pid_t pid(size_t place) const;

 private:
  ShmMeter(std::vector<LocalPlace> places, ShmMeterOptions options)
      : PlaceMeter(place_names(places), "--shm",
                   {.bytes = options.bytes,
                    .run_s = options.run_s,
                    .repeats = options.repeats,
                    .cancelled = options.cancelled}),
        places_(std::move(places)),
        options_(std::move(options)) {}
  Status start_ranks();
  Status start_places() override { return ranks_ ? Status() : start_ranks(); }
  Result<SetRun> run_places(const std::vector<FlowMember>& members, int64_t bytes) override;
  Result<SetRun> gather(const std::vector<FlowMember>& members, std::set<size_t> waiting);
  Result<CollectiveTimes> run(const CollectiveTask& task);
  Status wait_for(size_t place, comm::Deadline deadline);
  Error end_places(Error error) override;

  std::vector<LocalPlace> places_;
  ShmMeterOptions options_;
  BusyHosts busy_{{"this machine"}};
  std::vector<comm::Socket> controls_;     // of places_; empty while none runs
  std::optional<comm::LocalRanks> ranks_;  // after the connections: it goes first
};

}  // namespace jige::profile
