#include "profile/place_meter.h"

namespace jige::profile {
namespace {

constexpr int64_t kCheckedBytes = (512 << 10) + 17;  // no multiple of what is sent at a time

}  // namespace

Status PlaceProcesses::check_places(const std::vector<FlowMember>& fresh) {
  if (fresh.empty()) return {};
  JIGE_TRY([[maybe_unused]] const SetRun first, run_places(fresh, kCheckedBytes));
  return {};
}

Result<TimedSet> time_places(PlaceFlows& flows, PlaceProcesses& processes, const SetTiming& timing,
                             std::span<const topology::Transfer> set,
                             std::span<const double> shares) {
  JIGE_TRY(const std::vector<FlowMember> members, flows.members_of(set, shares));
  JIGE_DO(check_cancelled(timing.cancelled));
  JIGE_DO(processes.start_places());
  const auto timed = [&]() -> Result<TimedSet> {
    const std::vector<FlowMember> fresh = flows.unchecked(members);
    JIGE_DO(processes.check_places(fresh));
    flows.checked(fresh);
    return time_set(timing, shares,
                    [&](int64_t bytes) { return processes.run_places(members, bytes); });
  };
  Result<TimedSet> result = timed();
  if (!result) return tl::unexpected<Error>(processes.end_places(std::move(result.error())));
  return result;
}

}  // namespace jige::profile
