#include "slurm/dead_man.h"

#include "base/log.h"

namespace jige::slurm {

DeadManTimer::Verdict DeadManTimer::look(const std::string& heartbeat, int64_t now_ns) {
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
    if (job.partition != partition || job.state != SeenState::kHeld) continue;
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
