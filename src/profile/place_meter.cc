#include "profile/place_meter.h"

namespace jige::profile {
namespace {

constexpr int64_t kCheckedBytes = (512 << 10) + 17;  // no multiple of what is sent at a time
constexpr int64_t kProbeBytes = int64_t{1} << 20;
constexpr int64_t kBytesMax = int64_t{1} << 34;

}  // namespace

Result<TimedSet> time_places(PlaceFlows& flows, PlaceProcesses& processes, SetTiming timing,
                             std::span<const topology::Transfer> set,
                             std::span<const double> shares) {
  JIGE_TRY(const std::vector<FlowMember> members, flows.members_of(set, shares));
  JIGE_DO(check_cancelled(timing.cancelled));
  JIGE_DO(processes.start_places());
  timing.probe_bytes = kProbeBytes;
  timing.bytes_max = kBytesMax;
  const auto timed = [&]() -> Result<TimedSet> {
    const std::vector<FlowMember> fresh = flows.unchecked(members);
    if (!fresh.empty()) {
      JIGE_TRY([[maybe_unused]] const SetRun first, processes.run_places(fresh, kCheckedBytes));
      flows.checked(fresh);
    }
    return time_set(timing, shares,
                    [&](int64_t bytes) { return processes.run_places(members, bytes); });
  };
  Result<TimedSet> result = timed();
  if (!result) return tl::unexpected<Error>(processes.end_places(std::move(result.error())));
  return result;
}

}  // namespace jige::profile
