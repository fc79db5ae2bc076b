// Measures sets of transfers between places that are processes of their own, here or on hosts:
// starts or joins these where none is at hand, has the content of new flows checked, then times the
// series. What differs from meter to meter is how the processes start, run a set and end.
//
//   class ShmMeter final : public PlaceMeter<CollectiveMeter> {
//     Status start_places() override; …
//   };
//
// Whatever fails once the processes run goes through end_places(), so that the next measurement
// starts them again; a set that cannot be asked for is refused before that, and costs nothing.
// Threads: one caller.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "profile/link_meter.h"
#include "profile/place_flows.h"
#include "profile/set_timer.h"

namespace jige::profile {

class PlaceProcesses {
 public:
  // Nothing where they run.
  virtual Status start_places() = 0;
  // Before a set is timed: has the content of these checked, those of its flows of which it was
  // not yet, with a whole share each. As it stands here, by a run of theirs.
  virtual Status check_places(const std::vector<FlowMember>& fresh);
  // All members at once, each with its share of the bytes; a flow's first run is checked.
  // REQUIRES: the processes were started.
  virtual Result<SetRun> run_places(const std::vector<FlowMember>& members, int64_t bytes) = 0;
  // Ends them all, and tells more of the error if their ends do. REQUIRES: as above.
  virtual Error end_places(Error error) = 0;

 protected:
  ~PlaceProcesses() = default;
};

// Fails with kInvalidArgument for transfers that cannot be made, kCancelled, and as the processes
// do.
Result<TimedSet> time_places(PlaceFlows& flows, PlaceProcesses& processes, const SetTiming& timing,
                             std::span<const topology::Transfer> set,
                             std::span<const double> shares);

// `Base`: LinkMeter, or CollectiveMeter where the processes run collectives as well.
template <typename Base>
class PlaceMeter : public Base, protected PlaceProcesses {
 public:
  // Whose transfers will be asked for. Fails with kInvalidArgument for a host that is no place.
  Status use(const topology::Topology& network) { return flows_.use(network); }

  Result<Measurement> measure(std::span<const topology::Transfer> set) override {
    return measure_shares(set, std::vector<double>(set.size(), 1));
  }
  Result<Measurement> measure_shares(std::span<const topology::Transfer> set,
                                     std::span<const double> shares) override {
    JIGE_TRY(TimedSet timed, time_places(flows_, *this, timing_, set, shares));
    largest_bytes_ = std::max(largest_bytes_, timed.bytes);
    return std::move(timed.measurement);
  }
  std::string_view source() const override { return "measured"; }

 protected:
  // `flag` is what names the places, for errors.
  PlaceMeter(std::vector<std::string> names, std::string flag, const SetTiming& timing)
      : timing_(timing), flows_(std::move(names), std::move(flag)) {}
  ~PlaceMeter() override = default;

  PlaceFlows& flows() { return flows_; }
  // Of the transfers timed so far.
  int64_t largest_bytes() const { return largest_bytes_; }

 private:
  SetTiming timing_;
  PlaceFlows flows_;
  int64_t largest_bytes_ = 0;
};

}  // namespace jige::profile
