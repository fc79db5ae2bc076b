#include "slurm/decision_log.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/counted.h"
#include "base/log.h"
#include "cluster/contention_placer.h"
#include "cluster/placement.h"
#include "slurm/node_limits.h"

namespace jige::slurm {
namespace {

using cluster::ClusterState;
using cluster::JobId;
using cluster::kSecond;
using cluster::NodeShare;
using cluster::Phase;
using cluster::Placement;

constexpr size_t kAlternativesMax = 8;

// To a tenth of a thousandth: nobody reads more.
double rounded(double value) { return std::round(value * 1e4) / 1e4; }

Json score_json(const cluster::PlacementScore& score) {
  return {{"score", rounded(score.score)},
          {"progress", rounded(score.progress)},
          {"loss_of_others", rounded(score.loss)},
          {"slowed", score.slowed},
          {"extra_nodes", score.extra_nodes}};
}

bool share_nodes(const Placement& a, const Placement& b) {
  return std::ranges::any_of(a, [&](const NodeShare& share) {
    return std::ranges::find(b, share.node, &NodeShare::node) != b.end();
  });
}

// `with_room` nodes have GPUs enough free; `barred` of them it cannot have, for its `needs`.
std::string brief_room(const ClusterState& state, const cluster::Job& wants,
                       const std::string& needs, int64_t with_room, int64_t barred) {
  const std::string gpus = counted(wants.gpus / wants.nodes, "GPU");
  std::string text = wants.nodes == 1
                         ? fmt::format("waits for {} on one node", gpus)
                         : fmt::format("waits for {} on each of {} nodes", gpus, wants.nodes);
  if (with_room == 0) {
    const auto free = state.free().nodes();
    return text + fmt::format("; {} free on one at most",
                              free.empty() ? 0 : std::max(0, std::ranges::max(free)));
  }
  text += fmt::format("; free on {}", with_room);
  if (barred > 0)
    text += fmt::format(", {} of them without what else it needs ({})", barred, needs);
  return text;
}

}  // namespace

Json DecisionLog::head(const char* kind, const Moment& now) const {
  return {{"time_s", std::round(unix_now_s() * 1e3) / 1e3},
          {"cluster_s", rounded(static_cast<double>(now.cluster_ns) / kSecond)},
          {"event", kind}};
}

void DecisionLog::write(const Json& line) {
  ++lines_;
  if (!file_) return;
  // Scheduling goes on without its log; the disk may be full.
  if (const Status status = file_->append(dump_json(line)); !status) {
    if (lost_++ == 0) log_warn("decisions are not logged: {}", status.error().message);
    return;
  }
  if (const int64_t lost = std::exchange(lost_, 0); lost > 0) {
    Json gap = head("gap", now_);
    gap["text"] = fmt::format("{} lines before this one could not be written", lost);
    write(gap);
    log_warn("decisions are logged again; {} lines are lost", lost);
  }
}

void DecisionLog::begin(LiveCluster& live, const Moment& now, int64_t decision) {
  live_ = &live;
  now_ = now;
  decision_ = decision;
  evicted_.clear();
}

void DecisionLog::stopping(ClusterState& cluster, JobId id) {
  evicted_.push_back({.id = id,
                      .placement = cluster.at(id).placement,
                      .left_s = cluster.remaining_ns(id) / kSecond,
                      .restart_s = static_cast<double>(cluster.job(id).restart_ns) / kSecond});
}

void DecisionLog::starting(ClusterState& cluster, JobId id, const Placement& placement) {
  const cluster::ContentionPlacerOptions options;
  const Layout& layout = live_->layout();
  Json line = head("place", now_);
  line["decision"] = decision_;
  line["job"] = live_->slurm_id(id);
  line["nodes"] = layout.names_of(placement);
  line["gpus_per_node"] = placement.front().gpus;
  line["waited_s"] =
      rounded(static_cast<double>(cluster.now_ns() - cluster.at(id).waiting_since_ns) / kSecond);
  line["left_s"] = rounded(cluster.remaining_ns(id) / kSecond);
  const cluster::Policy::Standing standing = live_->standing(id);
  if (!standing.word.empty()) line["class"] = standing.word;
  if (!standing.text.empty()) line["class_text"] = standing.text;
  if (standing.for_shape) line["for_shape"] = true;
  line["score"] = score_json(score_placement(cluster, id, placement, options));
  Json others = Json::array();
  for (const Placement& other : candidate_placements(cluster, id, kAlternativesMax)) {
    if (other == placement) continue;
    Json item = score_json(score_placement(cluster, id, other, options));
    item["nodes"] = layout.names_of(other);
    others.push_back(std::move(item));
  }
  line["alternatives"] = std::move(others);
  Json evicted = Json::array();
  double soonest_s = 0, cost_s = 0;
  for (Evicted& victim : evicted_) {
    if (victim.id == id) {
      line["moved_from"] = layout.names_of(victim.placement);
      victim.charged = true;
      cost_s += victim.restart_s;
    }
    if (victim.charged || !share_nodes(victim.placement, placement)) continue;
    victim.charged = true;
    evicted.push_back({{"job", live_->slurm_id(victim.id)},
                       {"left_s", rounded(victim.left_s)},
                       {"restart_s", rounded(victim.restart_s)}});
    soonest_s = std::max(soonest_s, victim.left_s);
    cost_s += victim.restart_s;
  }
  if (!evicted.empty()) {
    // Without the eviction it would have had to wait until they had ended.
    line["evicted"] = std::move(evicted);
    line["earlier_s"] = rounded(soonest_s);
  }
  if (cost_s > 0) line["restart_cost_s"] = rounded(cost_s);
  write(line);
}

void DecisionLog::end() {
  for (const Evicted& victim : evicted_) {
    const int64_t job = live_->slurm_id(victim.id);
    if (live_->state().at(victim.id).phase == Phase::kRunning) continue;
    Json line = head("preempt", now_);
    line["decision"] = decision_;
    line["job"] = job;
    line["nodes"] = live_->layout().names_of(victim.placement);
    line["left_s"] = rounded(victim.left_s);
    line["restart_s"] = rounded(victim.restart_s);
    write(line);
  }
  std::erase_if(why_, [&](const auto& entry) { return !live_->jobs().contains(entry.first); });
  for (const auto& [id, job] : live_->jobs()) log_waiting(job);
  live_ = nullptr;
}

void DecisionLog::log_waiting(const LiveJob& job) {
  if (live_->wanted(job)) {
    why_.erase(job.seen.id);
    return;
  }
  WaitingReason reason = why_waiting(*live_, job);
  std::swap(why_[job.seen.id], reason);
  const std::string& kind_before = reason.kind;
  const WaitingReason& now_is = why_[job.seen.id];
  if (now_is.kind == kind_before) return;
  Json line = head("wait", now_);
  line["decision"] = decision_;
  line["job"] = job.seen.id;
  line["why"] = now_is.kind;
  line["text"] = now_is.text;
  write(line);
}

const WaitingReason* DecisionLog::waiting(int64_t job) const {
  const auto found = why_.find(job);
  return found == why_.end() ? nullptr : &found->second;
}

void DecisionLog::event(const LiveEvent& event, const Moment& now) {
  Json line = head(event.kind.c_str(), now);
  line["job"] = event.job;
  if (!event.text.empty()) line["text"] = event.text;
  if (event.seconds >= 0) line["seconds"] = rounded(event.seconds);
  write(line);
}

void DecisionLog::action(const LiveCluster& live, const Action& action, const Status& status,
                         double took_s, const Moment& now) {
  Json line = head("action", now);
  line["step"] = step_name(action.step);
  line["job"] = action.job;
  if (action.task >= 0) line["task"] = action.task;
  if (!action.placement.empty()) line["nodes"] = live.layout().names_of(action.placement);
  line["took_s"] = rounded(took_s);
  if (!status) line["error"] = status.error().message;
  write(line);
}

void DecisionLog::note(const std::string& kind, const std::string& text, const Moment& now) {
  Json line = head(kind.c_str(), now);
  line["text"] = text;
  write(line);
}

WaitingReason why_waiting(LiveCluster& live, const LiveJob& job) {
  ClusterState& state = live.state();
  if (job.resting) {
    return {"resting",
            fmt::format("{} starts in a row came to nothing, the last: {}; it is tried again soon",
                        job.failures, job.last_failure),
            "is tried again soon; its last start came to nothing: " + job.last_failure};
  }
  const cluster::Job& wants = state.job(job.id);
  const int32_t each = wants.gpus / wants.nodes;
  const auto enough = [&](int32_t free) { return free >= each; };
  const auto with_room = std::ranges::count_if(state.free().nodes(), enough);
  if (!state.free().fits(wants)) {
    const auto barred = std::ranges::count_if(
        wants.barred, [&](int32_t node) { return enough(state.free().on_node(node)); });
    std::string closed;
    if (barred > 0) {
      closed = fmt::format("; {} of these it cannot have now: it asks for {}", barred,
                           describe(job.seen.needs));
    }
    return {"room",
            fmt::format("needs {} GPUs on each of {} nodes; {} nodes have so many free "
                        "({} GPUs free in all, {} of {} in service){}",
                        each, wants.nodes, with_room, state.free().total(), state.gpus_in_service(),
                        live.layout().gpu_count(), closed),
            brief_room(state, wants, describe(job.seen.needs), with_room, barred)};
  }
  const cluster::ContentionPlacerOptions options;
  double best = -1e300;
  std::vector<std::string> nodes;
  for (const Placement& place : candidate_placements(state, job.id, kAlternativesMax)) {
    const double score = score_placement(state, job.id, place, options).score;
    if (score <= best) continue;
    best = score;
    nodes = live.layout().names_of(place);
  }
  const double least = waiting_threshold(state, job.id, options);
  if (best < least) {
    return {"contention",
            fmt::format("the best free place, {}, scores {:.2f} of {:.2f} that it "
                        "takes: the job would be slow there or slow others down",
                        fmt::join(nodes, ","), best, least),
            "waits for a better place: on the free GPUs it would be slow, or slow others down"};
  }
  return {
      "order",
      fmt::format("{} is free, but jobs before it in the queue come first", fmt::join(nodes, ",")),
      "waits for its turn: GPUs are free, but jobs before it come first"};
}

}  // namespace jige::slurm
