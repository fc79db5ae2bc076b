#include "slurm/reconcile.h"

#include <algorithm>

#include "slurm/node_limits.h"

namespace jige::slurm {
namespace {

using cluster::kSecond;
using cluster::NodeShare;
using cluster::Placement;

bool passed(const Moment& now, int64_t since_wall_ns, double seconds) {
  return static_cast<double>(now.wall_ns - since_wall_ns) >= seconds * kSecond;
}

class Planner {
 public:
  Planner(LiveCluster& live, const Moment& now, const ReconcileOptions& options,
          const MarkerChanged& marker_changed)
      : live_(live),
        now_(now),
        options_(options),
        marker_changed_(marker_changed),
        free_(live.seen_free()),
        promised_(live.nodes().size()) {}

  std::vector<Action> plan() {
    std::vector<LiveJob*> to_place;
    for (const auto& [id, known] : live_.jobs()) {
      LiveJob& job = live_.job(id);
      if (job.seen.state == SeenState::kReleased && job.ours) plan_released(job);
      if (job.seen.state == SeenState::kRunning && job.ours) plan_running(job);
      // A release that the last snapshot does not show yet has its GPUs all the same.
      const bool under_way = job.ours && !job.started && job.seen.state <= SeenState::kReleased;
      if (under_way) take(job.placed_at, job);
      const bool may_start = !job.ours && now_.wall_ns >= job.ready_wall_ns;
      const bool open = live_.closed().empty();
      if (job.seen.state == SeenState::kHeld && open && may_start && live_.wanted(job)) {
        to_place.push_back(&job);
      }
    }
    for (LiveJob* job : to_place) {
      const Placement placement = *live_.wanted(*job);
      if (!fits(placement)) continue;
      if (const std::string node = without_room(placement, *job); !node.empty()) {
        // Somebody may have been stopped for it in vain: not again and again.
        live_.give_up_start(*job, now_, job->crowded++ > 0,
                            node + " has too few CPUs or too little memory left");
        continue;
      }
      take(placement, *job);
      actions_.push_back({Step::kPlace, job->seen.id, placement});
    }
    for (const auto& [array, tasks] : live_.to_split()) {
      for (const int64_t task : tasks) {
        actions_.push_back({.step = Step::kSplit, .job = array, .placement = {}, .task = task});
      }
    }
    return std::move(actions_);
  }

 private:
  bool fits(const Placement& placement) const {
    return std::ranges::all_of(placement, [&](const NodeShare& share) {
      return free_[static_cast<size_t>(share.node)] >= share.gpus;
    });
  }
  // The first node whose CPUs or memory do not suffice; empty: they do.
  std::string without_room(const Placement& placement, const LiveJob& job) const {
    for (const NodeShare& share : placement) {
      const auto i = static_cast<size_t>(share.node);
      if (has_room_now(live_.nodes()[i], job.seen.needs, promised_[i])) continue;
      return live_.layout().name_of(share.node);
    }
    return "";
  }
  void take(const Placement& placement, const LiveJob& job) {
    if (!fits(placement)) return;
    for (const NodeShare& share : placement) {
      const auto i = static_cast<size_t>(share.node);
      free_[i] -= share.gpus;
      const NodeUse use = use_of(live_.nodes()[i], job.seen.needs);
      promised_[i].cpus += use.cpus;
      promised_[i].memory_mb += use.memory_mb;
    }
  }

  void add(Step step, const LiveJob& job) { actions_.push_back({step, job.seen.id, {}}); }

  void plan_released(LiveJob& job) {
    const std::optional<Placement> here = live_.wanted(job);
    if (here && *here == job.placed_at && !job.started) {
      const bool too_early = !passed(now_, job.placed_wall_ns, options_.start_limit_s);
      if (too_early || !live_.closed().empty()) return;
      live_.give_up_start(job, now_, true, "not started by Slurm (" + job.seen.reason + ")");
    }
    if (job.acted_wall_ns < 0 || passed(now_, job.acted_wall_ns, 1)) add(Step::kHold, job);
  }

  void plan_running(LiveJob& job) {
    const std::optional<Placement> here = live_.wanted(job);
    if (here && *here == job.seen_at) {
      job.checkpoint_wall_ns = -1;  // it may stay after all
      return;
    }
    if (job.requeued_wall_ns >= 0) {
      if (passed(now_, job.requeued_wall_ns, options_.repeat_s)) add(Step::kRequeue, job);
      return;
    }
    const std::string& marker = job.request.checkpoint;
    const bool expects = passed(now_, job.started_wall_ns, options_.signal_after_s);
    if (marker.empty() || (!expects && job.checkpoint_wall_ns < 0)) {
      return add(Step::kRequeue, job);
    }
    if (job.checkpoint_wall_ns < 0) return add(Step::kCheckpoint, job);
    if (passed(now_, job.checkpoint_wall_ns, options_.checkpoint_wait_s) ||
        marker_changed_(marker, job.checkpoint_wall_ns)) {
      add(Step::kRequeue, job);
    }
  }

  LiveCluster& live_;
  const Moment& now_;
  const ReconcileOptions& options_;
  const MarkerChanged& marker_changed_;
  std::vector<int32_t> free_;
  std::vector<NodeUse> promised_;
  std::vector<Action> actions_;
};

}  // namespace

std::string_view step_name(Step step) {
  switch (step) {
    case Step::kPlace:
      return "place";
    case Step::kHold:
      return "hold";
    case Step::kCheckpoint:
      return "checkpoint";
    case Step::kRequeue:
      return "requeue";
    case Step::kSplit:
      return "split";
  }
  return "";
}

std::vector<Action> plan_actions(LiveCluster& live, const Moment& now,
                                 const ReconcileOptions& options,
                                 const MarkerChanged& marker_changed) {
  return Planner(live, now, options, marker_changed).plan();
}

void note_outcome(LiveCluster& live, const Action& action, const Status& status,
                  const Moment& begun, const Moment& ended) {
  if (!live.jobs().contains(action.job)) return;
  LiveJob& job = live.job(action.job);
  // Where Slurm did not answer, or was not waited for, it may have acted all the same: then it
  // counts as done, and what is seen later decides.
  const bool refused = !status && status.error().code != Code::kUnavailable &&
                       status.error().code != Code::kCancelled;
  job.acted_wall_ns = ended.wall_ns;
  switch (action.step) {
    case Step::kPlace:
      job.ours = true;
      job.started = false;
      job.placed_at = action.placement;
      job.placed_wall_ns = begun.wall_ns;
      if (refused && live.wanted(job)) {
        live.give_up_start(job, ended, true, status.error().message);
      }
      return;
    case Step::kCheckpoint:
      // The job may answer before the command has ended.
      job.checkpoint_wall_ns = begun.wall_ns;
      return;
    case Step::kRequeue:
      job.requeued_wall_ns = begun.wall_ns;
      if (refused) live.keep_running(job, ended, status.error().message);
      return;
    case Step::kHold:
    case Step::kSplit:
      return;
  }
}

}  // namespace jige::slurm
