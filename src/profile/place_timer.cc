#include "profile/place_timer.h"

#include <utility>

namespace jige::profile {
namespace {

constexpr int64_t kCheckedBytes = (512 << 10) + 17;  // no multiple of what is sent at a time
constexpr int64_t kProbeBytes = int64_t{1} << 20;
constexpr int64_t kBytesMax = int64_t{1} << 34;

}  // namespace

Status check_cancelled(const std::atomic<bool>* cancelled) {
  if (!cancelled || !*cancelled) return {};
  return fail(Code::kCancelled, "interrupted; --store keeps what was measured");
}

Result<TimedSet> time_places(PlaceFlows& flows, const PlaceProcesses& processes, SetTiming timing,
                             std::span<const topology::Transfer> set,
                             std::span<const double> shares) {
  JIGE_TRY(const std::vector<FlowMember> members, flows.members_of(set, shares));
  JIGE_DO(processes.start());
  timing.probe_bytes = kProbeBytes;
  timing.bytes_max = kBytesMax;
  const auto run = [&](const std::vector<FlowMember>& of, int64_t bytes) -> Result<SetRun> {
    JIGE_DO(check_cancelled(processes.cancelled));
    return processes.run(of, bytes);
  };
  const auto timed = [&]() -> Result<TimedSet> {
    const std::vector<FlowMember> fresh = flows.unchecked(members);
    if (!fresh.empty()) {
      JIGE_TRY([[maybe_unused]] const SetRun first, run(fresh, kCheckedBytes));
      flows.checked(fresh);
    }
    return time_set(timing, shares, [&](int64_t bytes) { return run(members, bytes); });
  };
  Result<TimedSet> result = timed();
  if (!result) return tl::unexpected<Error>(processes.explained(std::move(result.error())));
  return result;
}

}  // namespace jige::profile
