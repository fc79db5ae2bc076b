#include "slurm/live_cluster.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "slurm/host_list.h"

namespace jige::slurm {
namespace {

using cluster::JobId;
using cluster::kSecond;
using cluster::NodeShare;
using cluster::Phase;
using cluster::Placement;

constexpr int32_t kMissingMax = 2;  // snapshots without a job before it counts as gone
constexpr auto kRestartPause_ns = static_cast<int64_t>(kRestartPause_s * kSecond);
constexpr double kRest_s = 2, kRestMax_s = 300;
constexpr const char* kReleasedByPerson = "released by a person; left to Slurm";

// Whether Slurm left a job where it was because of its nodes, by Slurm's word for the reason.
bool names_nodes(const std::string& reason) {
  return reason == "Resources" || reason == "BadConstraints" || reason == "Priority" ||
         reason.starts_with("ReqNodeNotAvail");
}

}  // namespace

LiveCluster::LiveCluster(Layout layout, LiveOptions options,
                         std::unique_ptr<cluster::Contention> contention, cluster::Policy& policy)
    : layout_(std::move(layout)),
      options_(std::move(options)),
      store_(static_cast<size_t>(options_.jobs_max)),
      state_(layout_.spec(), store_, std::move(contention), nullptr),
      policy_(policy),
      slurm_ids_(static_cast<size_t>(options_.jobs_max)),
      seen_free_(static_cast<size_t>(layout_.spec().node_count())),
      nodes_(static_cast<size_t>(layout_.spec().node_count())) {}

void LiveCluster::event(std::string kind, int64_t job, std::string text, double seconds) {
  events_.push_back({std::move(kind), job, std::move(text), seconds});
  happened_ = true;
}

std::optional<Placement> LiveCluster::wanted(const LiveJob& job) const {
  if (state_.at(job.id).phase != Phase::kRunning) return std::nullopt;
  return state_.at(job.id).placement;
}

void LiveCluster::absorb(const Snapshot& snapshot, const Moment& now) {
  state_.advance_to(std::max(state_.now_ns(), now.cluster_ns));
  see_nodes(snapshot);
  to_split_.clear();
  absorb_known(snapshot, now);
  std::set<int64_t> there;
  // Arrays last: how many of their tasks may be taken out depends on those that are out.
  for (const bool whole_arrays : {false, true}) {
    for (const SeenJob& seen : snapshot.jobs) {
      if (seen.state == SeenState::kGone || seen.array.tasks.empty() == whole_arrays) continue;
      there.insert(seen.id);
      if (jobs_.contains(seen.id) || !names_partition(seen, options_.partition)) continue;
      take_in(seen, now);
    }
  }
  std::erase_if(refused_, [&](const auto& entry) { return !there.contains(entry.first); });
  std::erase_if(foreign_, [&](int64_t id) { return !there.contains(id); });
  std::erase_if(split_asked_, [&](const auto& entry) { return !there.contains(entry.first); });
  for (auto& [id, past] : past_) past.missing = there.contains(id) ? 0 : past.missing + 1;
  std::erase_if(past_, [](const auto& entry) { return entry.second.missing == kMissingMax; });
  count_gpus(snapshot, now);
  for (auto& [id, job] : jobs_) {
    if (!job.resting || now.wall_ns < job.retry_wall_ns) continue;
    job.resting = false;
    policy_.arrived(state_, job.id);
    happened_ = true;
  }
  bar_nodes(snapshot);
}

// Ends before stops before starts, so that GPUs are free when somebody is found on them.
void LiveCluster::absorb_known(const Snapshot& snapshot, const Moment& now) {
  std::map<int64_t, const SeenJob*> by_id;
  for (const SeenJob& seen : snapshot.jobs) by_id[seen.id] = &seen;
  std::vector<int64_t> ids;
  for (auto& [id, job] : jobs_) {
    const auto found = by_id.find(id);
    const bool there = found != by_id.end() && found->second->partition == options_.partition;
    job.missing = there ? 0 : job.missing + 1;
    if (!there && job.missing < kMissingMax) continue;
    if (there) {
      job.seen = *found->second;
    } else {
      job.seen.state = SeenState::kGone;
      job.seen.slurm_state = "MISSING";
    }
    // Fewer nodes are listed while it ends.
    if (job.seen.state > SeenState::kRunning) job.seen.node_count = job.asked.node_count;
    store_[static_cast<size_t>(job.id)].stoppable = job.seen.stoppable && !job.sticks;
    ids.push_back(id);
  }
  for (const int64_t id : ids) {
    if (jobs_.at(id).seen.state == SeenState::kGone) on_gone(jobs_.at(id));
  }
  std::erase_if(ids, [&](int64_t id) { return !jobs_.contains(id); });
  for (const int64_t id : ids) {
    LiveJob& job = jobs_.at(id);
    if (job.seen.state <= SeenState::kReleased) on_pending(job, snapshot, now);
  }
  std::erase_if(ids, [&](int64_t id) { return !jobs_.contains(id); });
  for (const int64_t id : ids) {
    LiveJob& job = jobs_.at(id);
    if (job.seen.state == SeenState::kRunning) on_running(job, now);
  }
}

void LiveCluster::on_gone(LiveJob& job) {
  const bool ran = state_.at(job.id).phase == Phase::kRunning;
  if (ran) {
    state_.finish(job.id);
    policy_.finished(state_, job.id);
  } else {
    leave_waiting(job);
  }
  const cluster::JobState& state = state_.at(job.id);
  const int64_t arrival_ns = state_.job(job.id).arrival_ns;
  outcomes_.push_back({.job = job.seen.id,
                       .slurm_state = job.seen.slurm_state,
                       .arrival_ns = arrival_ns,
                       .first_start_ns = state.first_start_ns,
                       .finish_ns = state_.now_ns(),
                       .starts = state.starts,
                       .preemptions = state.preemptions,
                       .migrations = state.migrations});
  event("finish", job.seen.id, job.seen.slurm_state,
        static_cast<double>(state_.now_ns() - arrival_ns) / kSecond);
  jobs_.erase(job.seen.id);
}

void LiveCluster::leave_waiting(LiveJob& job) {
  if (!job.resting) policy_.withdrawn(state_, job.id);
  state_.withdraw(job.id);
}

void LiveCluster::stopped_outside(LiveJob& job, const Moment& now, const std::string& why) {
  if (state_.at(job.id).phase == Phase::kRunning) {
    state_.undo_start(job.id, job.left_at_start);
    policy_.arrived(state_, job.id);
  }
  job.started = false;
  job.placed_at.clear();
  job.ready_wall_ns = now.wall_ns + kRestartPause_ns;
  event("stop", job.seen.id, why);
}

void LiveCluster::on_pending(LiveJob& job, const Snapshot& snapshot, const Moment& now) {
  job.seen_at.clear();
  if (snapshot.taken_ns <= job.acted_wall_ns) return;
  const bool changed = AskedFor(job.seen) != job.asked;
  if (job.seen.state == SeenState::kHeld) {
    on_held(job, now);
    if (!changed && !begins_later(job.seen, now.unix_s)) return;
    event("change", job.seen.id, "its request was changed; taken in anew");
    return forget(job);
  }
  if (!job.ours && job.seen.admin_comment.starts_with(kDeadManMark)) job.ours = true;
  if (!job.ours) return make_foreign(job, kReleasedByPerson);
  if (job.started) stopped_outside(job, now, "requeued: " + job.seen.reason);
  // To be held first: Slurm would start it by the new request at the place of the old one.
  if (changed && wanted(job)) give_up_start(job, now, true, "its request was changed");
}

void LiveCluster::on_held(LiveJob& job, const Moment& now) {
  if (!job.ours) return;
  job.ours = false;
  const bool asked = job.requeued_wall_ns >= 0;
  job.checkpoint_wall_ns = job.requeued_wall_ns = job.placed_wall_ns = -1;
  if (!job.started) {
    if (state_.at(job.id).phase == Phase::kRunning && !job.placed_at.empty()) {
      give_up_start(job, now, true, "held again: " + job.seen.reason);
    }
  } else if (asked) {
    job.started = false;
    job.ready_wall_ns = now.wall_ns + kRestartPause_ns;
    event("stop", job.seen.id, "preempted");
  } else {
    stopped_outside(job, now, "requeued and held: " + job.seen.reason);
  }
  job.placed_at.clear();
}

void LiveCluster::give_up_start(LiveJob& job, const Moment& now, bool failure,
                                const std::string& why) {
  JIGE_CHECK(state_.at(job.id).phase == Phase::kRunning && !job.started, "job {} has started",
             job.seen.id);
  const Placement place = state_.at(job.id).placement;
  state_.undo_start(job.id, job.left_at_start);
  job.last_failure = why;
  if (failure) {
    // Slurm does not say which: one goes at a time, the first of them first.
    if (names_nodes(job.seen.reason)) job.avoided.push_back(place.front().node);
    ++job.failures;
    const double rest_s = std::min(kRestMax_s, kRest_s * std::exp2(job.failures - 1));
    job.retry_wall_ns = now.wall_ns + static_cast<int64_t>(rest_s * kSecond);
    job.resting = true;
    event("fail", job.seen.id, fmt::format("{}; rests {:g} s", why, rest_s));
  } else {
    policy_.arrived(state_, job.id);
    event("fail", job.seen.id, why);
  }
}

void LiveCluster::on_running(LiveJob& job, const Moment& now) {
  job.seen_at = layout_.placement_of(job.seen.nodes, job.seen.node_gpus);
  if (!job.ours) {
    const bool released = job.seen.admin_comment.starts_with(kDeadManMark);
    if (!released || !adopt(job, now)) make_foreign(job, kReleasedByPerson);
    return;
  }
  if (!job.started) return on_first_run(job, now);
  const bool asked = job.requeued_wall_ns >= 0;
  if (job.seen_at.size() < job.placed_at.size() && !asked) on_resized(job, now);
}

// A running job can give nodes back (`scontrol update JobId=… NumNodes=…`): it goes on as one of
// its new shape.
void LiveCluster::on_resized(LiveJob& job, const Moment& now) {
  const SeenJob seen = job.seen;
  event("change", seen.id,
        fmt::format("it has given nodes back; runs on {}", join_hosts(seen.nodes)));
  job.left_at_start = state_.left(job.id);
  forget(job);
  take_in(seen, now);
}

void LiveCluster::on_first_run(LiveJob& job, const Moment& now) {
  job.failures = job.crowded = 0;
  job.avoided.clear();
  job.sticks = false;
  job.started_wall_ns = now.wall_ns;
  const double took_s =
      job.placed_wall_ns < 0 ? -1 : static_cast<double>(now.wall_ns - job.placed_wall_ns) / kSecond;
  const std::optional<Placement> here = wanted(job);
  if (here && *here == job.seen_at) {
    job.started = true;
    state_.set_left(job.id, job.left_at_start);
    event("start", job.seen.id, "", took_s);
    return;
  }
  // Where it was sent, before the policy thought otherwise.
  if (job.placed_at == job.seen_at && state_.job(job.id).stoppable) {
    job.started = true;
    event("start", job.seen.id, "no longer wanted there", took_s);
    return;
  }
  if (!adopt(job, now)) make_foreign(job, kOtherPlace);
}

void LiveCluster::keep_running(LiveJob& job, const Moment& now, const std::string& why) {
  job.sticks = true;
  store_[static_cast<size_t>(job.id)].stoppable = false;
  job.checkpoint_wall_ns = job.requeued_wall_ns = -1;
  event("change", job.seen.id, "it cannot be stopped: " + why);
  if (!adopt(job, now)) make_foreign(job, kOtherPlace);
}

// A job that is seen to run where nobody wanted it is wanted there from now on.
bool LiveCluster::adopt(LiveJob& job, const Moment& now) {
  int32_t gpus = 0;
  for (const NodeShare& share : job.seen_at) gpus += share.gpus;
  if (gpus != state_.job(job.id).gpus) return false;
  if (state_.at(job.id).phase == Phase::kRunning) {
    state_.undo_start(job.id, job.left_at_start);
  } else if (!job.resting) {
    policy_.withdrawn(state_, job.id);
  }
  job.resting = true;
  if (!make_room(job.seen_at, job, now)) return false;
  job.resting = false;
  job.left_at_start = state_.at(job.id).left;
  state_.start(job.id, job.seen_at);
  job.placed_at = job.seen_at;
  job.ours = job.started = true;
  const int64_t age_s = std::clamp<int64_t>(now.unix_s - job.seen.start_s, 0, kAgeMax_s);
  job.started_wall_ns = now.wall_ns - age_s * kSecond;
  event("adopt", job.seen.id, fmt::format("{}", fmt::join(job.seen.nodes, ",")));
  return true;
}

// Takes GPUs from jobs that were to start there and have not.
bool LiveCluster::make_room(const Placement& placement, const LiveJob& newcomer,
                            const Moment& now) {
  for (const NodeShare& share : placement) {
    state_.set_blocked(share.node, 0);
    for (auto& [id, job] : jobs_) {
      if (state_.free().on_node(share.node) >= share.gpus) break;
      if (&job == &newcomer || job.started || state_.at(job.id).phase != Phase::kRunning) continue;
      const Placement& there = state_.at(job.id).placement;
      if (std::ranges::find(there, share.node, &NodeShare::node) == there.end()) continue;
      give_up_start(job, now, false, fmt::format("job {} runs there", newcomer.seen.id));
    }
    if (state_.free().on_node(share.node) < share.gpus) return false;
  }
  return true;
}

void LiveCluster::count_gpus(const Snapshot& snapshot, const Moment& now) {
  const auto node_count = static_cast<size_t>(layout_.spec().node_count());
  std::vector<int32_t> others(node_count), used(node_count), there(node_count);
  for (const SeenJob& seen : snapshot.jobs) {
    const bool ours = jobs_.contains(seen.id);
    for (const NodeShare& share : layout_.placement_of(seen.nodes, seen.node_gpus)) {
      used[static_cast<size_t>(share.node)] += share.gpus;
      if (!ours) others[static_cast<size_t>(share.node)] += share.gpus;
    }
  }
  for (const SeenNode& node : snapshot.nodes) {
    const int32_t index = layout_.index_of(node.name);
    if (index < 0 || !node.up || !in_partition(node, options_.partition)) continue;
    there[static_cast<size_t>(index)] = std::min(node.gpus, layout_.gpus_of(index));
  }
  for (size_t i = 0; i < node_count; ++i) {
    const auto node = static_cast<int32_t>(i);
    seen_free_[i] = std::max(0, there[i] - used[i]);
    const int32_t target = layout_.spec().gpus_per_node - std::max(0, there[i] - others[i]);
    const int32_t before = state_.blocked(node);
    if (state_.set_blocked(node, target) < target) {
      for (auto& [id, job] : jobs_) {
        if (job.started || state_.at(job.id).phase != Phase::kRunning) continue;
        const Placement& place = state_.at(job.id).placement;
        if (std::ranges::find(place, node, &NodeShare::node) == place.end()) continue;
        give_up_start(job, now, false,
                      fmt::format("{} has too few GPUs in service", layout_.name_of(node)));
        if (state_.set_blocked(node, target) == target) break;
      }
    }
    if (state_.blocked(node) != before) happened_ = true;
  }
}

std::vector<SeenNode> LiveCluster::nodes_with_jobs() const {
  std::set<int32_t> used;
  for (const auto& [id, job] : jobs_) {
    for (const NodeShare& share : job.seen_at) used.insert(share.node);
  }
  std::vector<SeenNode> nodes;
  for (const int32_t node : used) {
    nodes.push_back({.name = layout_.name_of(node),
                     .gpus = layout_.gpus_of(node),
                     .partitions = {options_.partition}});
  }
  return nodes;
}

bool LiveCluster::decide(const Moment& now, cluster::ChangeObserver* observer) {
  state_.advance_to(std::max(state_.now_ns(), now.cluster_ns));
  const int64_t round_ns = policy_.round_ns();
  const bool is_round = round_ns > 0 && state_.now_ns() >= next_round_ns_;
  if (!closed_.empty() || (!happened_ && !is_round)) return false;
  happened_ = false;
  if (round_ns > 0) next_round_ns_ = (state_.now_ns() / round_ns + 1) * round_ns;
  state_.refresh();
  std::map<int64_t, int32_t> starts;
  for (const auto& [id, job] : jobs_) starts[id] = state_.at(job.id).starts;
  state_.observe(observer);
  policy_.schedule(state_, is_round);
  state_.observe(nullptr);
  state_.refresh();
  state_.take_changed();
  for (auto& [id, job] : jobs_) {
    if (state_.at(job.id).starts != starts[id]) job.left_at_start = state_.at(job.id).left;
  }
  return true;
}

}  // namespace jige::slurm
