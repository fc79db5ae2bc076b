// Measures a set of transfers between places that are processes of their own: starts these where
// none runs, has the content of new flows checked, then times the series.
//
//   JIGE_TRY(const TimedSet timed, time_places(flows_, processes(), timing(), set, shares));
//
// Whatever fails once the processes run goes through `explained`, which ends them, so that the next
// measurement starts them again. Threads: one caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "profile/place_flows.h"
#include "profile/set_timer.h"

namespace jige::profile {

// What differs from meter to meter.
struct PlaceProcesses {
  std::function<Status()> start;  // nothing where they run
  // All members at once, each with its share of the bytes; a flow's first run is checked.
  std::function<Result<SetRun>(const std::vector<FlowMember>& members, int64_t bytes)> run;
  std::function<Error(Error)> explained;
  const std::atomic<bool>* cancelled = nullptr;
};

// `timing`: its sizes of the first and the largest run are set here. Fails with kInvalidArgument
// for transfers that cannot be made, kCancelled, and as the processes do.
Result<TimedSet> time_places(PlaceFlows& flows, const PlaceProcesses& processes, SetTiming timing,
                             std::span<const topology::Transfer> set,
                             std::span<const double> shares);

// Fails with kCancelled when the flag is set.
Status check_cancelled(const std::atomic<bool>* cancelled);

}  // namespace jige::profile
