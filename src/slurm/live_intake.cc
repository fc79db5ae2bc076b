// How jobs come into a LiveCluster, and how they leave it without having ended.
#include <algorithm>

#include "slurm/live_cluster.h"
#include "slurm/node_limits.h"

namespace jige::slurm {
namespace {

using cluster::JobId;
using cluster::kSecond;
using cluster::Phase;

constexpr double kScaledMax_s = 1e9;  // kAgeMax_s in time of the cluster

bool starts_with_mark(const std::string& admin_comment) {
  return admin_comment.starts_with(kPlacedMark) || admin_comment.starts_with(kDeadManMark);
}

}  // namespace

void LiveCluster::make_foreign(LiveJob& job, const std::string& why) {
  const int64_t id = job.seen.id;
  forget(job);
  foreign_.insert(id);
  event("foreign", id, why);
}

void LiveCluster::forget(LiveJob& job) {
  const int64_t id = job.seen.id;
  if (state_.at(job.id).phase == Phase::kRunning) {
    state_.undo_start(job.id, job.left_at_start);
    state_.withdraw(job.id);
  } else {
    leave_waiting(job);
  }
  past_[id] = {state_.job(job.id).arrival_ns,
               state_.job(job.id).iterations,
               {.left = state_.at(job.id).left,
                .held_ns = state_.at(job.id).held_ns,
                .first_start_ns = state_.at(job.id).first_start_ns,
                .starts = state_.at(job.id).starts,
                .preemptions = state_.at(job.id).preemptions,
                .migrations = state_.at(job.id).migrations}};
  jobs_.erase(id);
}

bool LiveCluster::take_in(const SeenJob& seen, const Moment& now) {
  if (seen.state == SeenState::kGone || seen.state == SeenState::kEnding) return false;
  if (full()) return false;
  const bool marked = starts_with_mark(seen.admin_comment) && !foreign_.contains(seen.id);
  if (seen.state != SeenState::kHeld && !marked) {
    refused_.erase(seen.id);
    if (foreign_.insert(seen.id).second) {
      event("foreign", seen.id, "not held, and not released by Jige; left to Slurm");
    }
    return false;
  }
  Result<JobRequest> request = request_of(seen, now);
  if (request && seen.state == SeenState::kHeld) {
    if (!seen.array.tasks.empty()) look_at_array(seen, now);
    if (const Status array = check_array(seen); !array) {
      request = tl::unexpected<Error>(array.error());
    }
  }
  if (!request) {
    std::string& why = refused_[seen.id];
    if (why == request.error().message) return false;
    why = request.error().message;
    event("refuse", seen.id, why);
    return false;
  }
  refused_.erase(seen.id);
  foreign_.erase(seen.id);
  arrive(seen, std::move(*request), now);
  return true;
}

// Fails with why it cannot be taken in, or not yet.
Result<JobRequest> LiveCluster::request_of(const SeenJob& seen, const Moment& now) const {
  if (seen.partition != options_.partition) {
    return fail(Code::kUnsupported, "it names the partitions {}; give {} alone", seen.partition,
                options_.partition);
  }
  SeenJob shaped = seen;
  JIGE_TRY(shaped.gpus_per_node, gpus_on_each(seen));
  JIGE_TRY(JobRequest request, read_request(shaped, layout_.spec(), options_.defaults));
  const std::string never = layout_.why_never(shaped.node_count, shaped.gpus_per_node);
  if (!never.empty()) return fail(Code::kUnsupported, "{}", never);
  if (const int32_t open = open_nodes(shaped.gpus_per_node, seen.needs, {});
      open < seen.node_count) {
    return fail(Code::kUnsupported,
                "asks for {} GPUs on each of {} nodes; {} nodes have so many and what else it asks "
                "for ({})",
                shaped.gpus_per_node, seen.node_count, open, describe(seen.needs));
  }
  if (seen.state == SeenState::kHeld && begins_later(seen, now.unix_s)) {
    return fail(Code::kUnsupported, "it begins at {} at the earliest", slurm_date(seen.begin_s));
  }
  return request;
}

void LiveCluster::arrive(const SeenJob& seen, JobRequest request, const Moment& now) {
  const JobId id = next_++;
  slurm_ids_[static_cast<size_t>(id)] = seen.id;
  cluster::Job& stored = store_[static_cast<size_t>(id)];
  stored = request.job;
  // One that was to begin later has waited since then.
  const bool was_placed = seen.restarts > 0 || starts_with_mark(seen.admin_comment);
  const int64_t since_s = was_placed ? seen.submit_s : std::max(seen.submit_s, seen.begin_s);
  const int64_t age_s = std::clamp<int64_t>(now.unix_s - since_s, 0, kAgeMax_s);
  const double scaled_s = std::min(static_cast<double>(age_s) * options_.time_scale, kScaledMax_s);
  stored.arrival_ns = state_.now_ns() - static_cast<int64_t>(scaled_s) * kSecond;
  jobs_.emplace(
      seen.id,
      LiveJob{.seen = seen, .asked = AskedFor(seen), .request = std::move(request), .id = id});
  LiveJob& job = jobs_.at(seen.id);
  if (seen.restarts > 0) {
    job.ready_wall_ns = now.wall_ns + static_cast<int64_t>(kRestartPause_s * kSecond);
  }
  const auto past = past_.find(seen.id);
  if (past != past_.end()) stored.arrival_ns = std::min(past->second.arrival_ns, state_.now_ns());
  state_.arrive(id);
  if (past != past_.end()) {
    cluster::ClusterState::History history = past->second.history;
    if (const double whole = past->second.iterations; whole > 0) {
      history.left = std::clamp(history.left / whole, 0.0, 1.0) * stored.iterations;
    }
    state_.restore(id, history);
    past_.erase(past);
  }
  event("arrive", seen.id,
        fmt::format("{}{} nodes x {} GPUs, model {}, {:.0f} s alone{}",
                    seen.array.task < 0
                        ? ""
                        : fmt::format("task {} of {}: ", seen.array.task, seen.array.array),
                    stored.nodes, stored.gpus / stored.nodes, job.request.model,
                    state_.alone_ns(id) / kSecond,
                    stored.stoppable ? "" : "; cannot be requeued, so it is not stopped"));
  job.left_at_start = state_.at(id).left;
  if (seen.state == SeenState::kRunning) {
    job.resting = true;  // the policy never hears that it waits
    job.seen_at = layout_.placement_of(seen.nodes, seen.node_gpus);
    if (!adopt(job, now)) make_foreign(job, kOtherPlace);
    return;
  }
  job.ours = seen.state == SeenState::kReleased;
  policy_.arrived(state_, id);
}

}  // namespace jige::slurm
