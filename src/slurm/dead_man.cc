#include "slurm/dead_man.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/log.h"

namespace jige::slurm {
namespace {

// The second word; 0: none.
int64_t epoch_of(std::string_view heartbeat) {
  const std::string_view behind = heartbeat.substr(std::min(heartbeat.find(' '), heartbeat.size()));
  int64_t epoch = 0;
  if (!behind.empty()) std::from_chars(behind.data() + 1, behind.data() + behind.size(), epoch);
  return epoch;
}

}  // namespace

DeadManTimer::Verdict DeadManTimer::look(const std::string& heartbeat, int64_t now_ns) {
  if (epoch_ && epoch_of(heartbeat) > *epoch_) return Verdict::kFollowed;
  if (heartbeat.starts_with("ended")) return Verdict::kEnded;
  if (!heartbeat.empty() && heartbeat != last_) {
    last_ = heartbeat;
    changed_ns_ = now_ns;
  }
  return static_cast<double>(now_ns - changed_ns_) > limit_s_ * 1e9 ? Verdict::kDead
                                                                    : Verdict::kAlive;
}

Result<int64_t> release_held(Backend& backend, const std::string& partition) {
  JIGE_TRY(const Snapshot snapshot, backend.snapshot());
  int64_t released = 0;
  for (const SeenJob& job : snapshot.jobs) {
    if (!names_partition(job, partition) || job.state != SeenState::kHeld) continue;
    // What an administrator held by hand stays held.
    if (job.reason != "JobHeldUser" && !job.admin_comment.starts_with("jige")) continue;
    if (const Status status =
            backend.release(job.id, std::string(kDeadManMark) + " released this job");
        !status) {
      log_warn("job {}: {}", job.id, status.error().message);
      if (status.error().code == Code::kUnavailable) return tl::unexpected<Error>(status.error());
      continue;
    }
    ++released;
  }
  return released;
}

}  // namespace jige::slurm
