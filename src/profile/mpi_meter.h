// Measures sets of transfers between the ranks of an MPI program, on this machine or on several.
//
//   JIGE_TRY(const auto meter, MpiMeter::start(places, {}));
//   JIGE_TRY(const auto network, Topology::create(meter->description(), "--mpi"));
//   JIGE_DO(meter->use(network));
//   JIGE_TRY(const Measurement m, meter->measure(set));
//
// Transfers are a>b:send. mpirun starts a rank at each place (mpi_launch.h, mpi/mpi_rank.h); they
// move the data by MPI_Isend and MPI_Irecv, over whatever MPI chooses between them. The first time
// of a transfer is checked, byte by byte, before anything of its set is timed. Members of a set
// start together; a member's time reaches from its sender's start to its receiver's last byte, each
// counted from its own start, so that clocks of hosts need not agree. Sizes, repeats and changes of
// rates are set_timer.h's. The library's version and the launcher belong to what measurements
// depend on. Collectives are not run: MPI has its own, which follow no ring of ours.
//
// When a rank ends, stalls or gets wrong data, that is said and all are ended; the next measurement
// starts them again.
// Threads: one caller.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "profile/agent_protocol.h"
#include "profile/busy_hosts.h"
#include "profile/link_meter.h"
#include "profile/mpi_launch.h"
#include "profile/place_meter.h"
#include "topology/topology.h"

namespace jige::profile {

struct MpiMeterOptions {
  MpiLaunchOptions launch;
  int64_t bytes = 0;  // of each transfer; 0: what takes `run_s`
  double run_s = 0;   // 0: 0.05 within this machine, 0.12 between hosts
  double run_timeout_s = 30;
  double start_timeout_s = 60;  // for mpirun to have all ranks there
  RepeatLimits repeats;
  const std::atomic<bool>* cancelled = nullptr;
};

class MpiMeter final : public PlaceMeter<LinkMeter> {
 public:
  // Starts the ranks. REQUIRES: places as parse_mpi_places gives them. Fails as MpiLaunch::start
  // does, and with kUnavailable, in mpirun's words, where that ends.
  static Result<std::unique_ptr<MpiMeter>> start(std::vector<MpiPlace> places,
                                                 const MpiMeterOptions& options);

  // The places around one router, with what measurements depend on.
  topology::Description description() const;
  // The ranks as they were when last started.
  const RanksMessage& ranks() const { return ranks_; }

 private:
  MpiMeter(std::vector<MpiPlace> places, const MpiMeterOptions& options);
  Status start_ranks();
  Status start_places() override { return launch_ ? Status() : start_ranks(); }
  Result<SetRun> run_places(const std::vector<FlowMember>& members, int64_t bytes) override;
  Error end_places(Error error) override;

  std::vector<MpiPlace> places_;
  MpiMeterOptions options_;
  BusyHosts busy_{{"this machine"}};
  RanksMessage ranks_;
  std::unique_ptr<MpiLaunch> launch_;  // null after a failure
};

}  // namespace jige::profile
