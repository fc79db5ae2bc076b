#include "cluster/cluster_state.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#include "base/check.h"
#include "cluster/recorder.h"

namespace jige::cluster {
namespace {

// A job that would take longer is cut to this; the simulation ends long before.
constexpr int64_t kRunMax_ns = std::numeric_limits<int64_t>::max() / 4;

}  // namespace

ClusterState::ClusterState(const ClusterSpec& spec, std::span<const Job> jobs,
                           std::unique_ptr<Contention> contention, Recorder* recorder)
    : spec_(spec),
      jobs_(jobs),
      contention_(std::move(contention)),
      recorder_(recorder),
      free_(spec),
      states_(jobs.size()),
      spread_on_node_(static_cast<size_t>(spec.node_count())),
      spread_on_leaf_(static_cast<size_t>(spec.leaf_count)),
      blocked_(static_cast<size_t>(spec.node_count())),
      gpus_in_service_(spec.gpu_count()) {}

ClusterState::~ClusterState() = default;

const NodeOrders& ClusterState::node_orders() const {
  if (orders_version_ == version_) return orders_;
  orders_version_ = version_;
  std::vector<int32_t> nodes;
  for (int32_t node = 0; node < spec_.node_count(); ++node) {
    if (free_.on_node(node) > 0) nodes.push_back(node);
  }
  orders_ = {nodes, nodes, nodes, std::move(nodes)};
  const auto room = [&](int32_t node) { return free_.on_node(node); };
  std::ranges::stable_sort(orders_.tightest, {}, room);
  std::ranges::stable_sort(orders_.roomiest, std::greater<>(), room);
  std::ranges::stable_sort(orders_.quiet, {}, [&](int32_t node) {
    return std::pair(spread_on_node(node), -room(node));
  });
  std::ranges::stable_sort(orders_.quiet_leaves, {}, [&](int32_t node) {
    const int32_t leaf = spec_.leaf_of(node);
    return std::tuple(spread_on_leaf(leaf), leaf, spread_on_node(node), -room(node));
  });
  return orders_;
}

int64_t ClusterState::held_ns(JobId id) const {
  const JobState& job = at(id);
  return job.held_ns + (job.phase == Phase::kRunning ? now_ns_ - job.run_since_ns : 0);
}

double ClusterState::left(JobId id) const {
  const JobState& job = at(id);
  if (job.phase != Phase::kRunning) return job.left;
  const int64_t from_ns = std::max(job.updated_ns, job.progress_from_ns);
  if (now_ns_ <= from_ns) return job.left;
  return std::max(0.0, job.left - job.rate * static_cast<double>(now_ns_ - from_ns));
}

void ClusterState::update(JobId id) {
  JobState& job = state(id);
  const double left_now = left(id);
  if (recorder_ && left_now < job.left) {
    const int64_t from_ns = std::max(job.updated_ns, job.progress_from_ns);
    recorder_->moved(from_ns, now_ns_, job.left - left_now, contention_->loads(id));
  }
  job.left = left_now;
  job.updated_ns = now_ns_;
}

void ClusterState::count_spread(const Placement& placement, int32_t change) {
  if (placement.size() < 2) return;
  const int32_t first_leaf = spec_.leaf_of(placement.front().node);
  const bool crosses = spec_.leaf_of(placement.back().node) != first_leaf;
  int32_t leaf_before = -1;
  for (const NodeShare& share : placement) {
    spread_on_node_[static_cast<size_t>(share.node)] += change;
    const int32_t leaf = spec_.leaf_of(share.node);
    if (crosses && leaf != leaf_before) spread_on_leaf_[static_cast<size_t>(leaf)] += change;
    leaf_before = leaf;
  }
}

void ClusterState::start(JobId id, const Placement& placement) {
  JobState& job = state(id);
  JIGE_CHECK(job.phase == Phase::kWaiting, "job {} does not wait", id);
  int32_t gpus = 0;
  for (const NodeShare& share : placement) gpus += share.gpus;
  JIGE_CHECK(gpus == this->job(id).gpus, "job {} asks for {} GPUs and got {}", id,
             this->job(id).gpus, gpus);
  if (observer_) observer_->starting(*this, id, placement);
  free_.take(placement);
  begin(id, placement);
}

void ClusterState::join(JobId id, JobId host) {
  JIGE_CHECK(at(id).phase == Phase::kWaiting, "job {} does not wait", id);
  JIGE_CHECK(colocation_ && at(host).phase == Phase::kRunning && at(host).partner < 0 &&
                 job(host).gpus == job(id).gpus,
             "job {} cannot join job {}", id, host);
  const Placement placement = at(host).placement;
  if (observer_) observer_->starting(*this, id, placement);
  state(id).partner = host;
  state(host).partner = id;
  suspects_.push_back(host);
  begin(id, placement);
}

double ClusterState::share_beside_partner(JobId id) const {
  const JobState& job = at(id);
  if (job.partner < 0) return 1;
  const auto nodes = static_cast<int32_t>(job.placement.size());
  return colocation_->share(this->job(id), this->job(job.partner), nodes);
}

void ClusterState::begin(JobId id, const Placement& placement) {
  JobState& job = state(id);
  contention_->start(id, this->job(id), placement);
  job.phase = Phase::kRunning;
  job.placement = placement;
  job.run_since_ns = job.updated_ns = now_ns_;
  const Job& request = this->job(id);
  job.progress_from_ns = now_ns_ + (job.starts > 0 ? request.restart_ns : request.start_ns);
  if (job.starts++ == 0) job.first_start_ns = now_ns_;
  job.running_index = running_.size();
  running_.push_back(id);
  count_spread(placement, 1);
  --waiting_count_;
  ++version_;
}

void ClusterState::leave(JobId id) {
  JobState& job = state(id);
  JIGE_CHECK(job.phase == Phase::kRunning, "job {} does not run", id);
  update(id);
  contention_->stop(id);
  if (job.partner < 0) {
    free_.give(job.placement);
  } else {
    suspects_.push_back(job.partner);
    state(job.partner).partner = -1;
    job.partner = -1;
  }
  count_spread(job.placement, -1);
  job.placement.clear();
  job.held_ns += now_ns_ - job.run_since_ns;
  job.restart_ns += std::min(now_ns_, job.progress_from_ns) - job.run_since_ns;
  ++job.stint;
  running_[job.running_index] = running_.back();
  state(running_.back()).running_index = job.running_index;
  running_.pop_back();
  ++version_;
  ++departures_;
}

void ClusterState::preempt(JobId id) {
  if (observer_) observer_->stopping(*this, id);
  leave(id);
  JobState& job = state(id);
  job.phase = Phase::kWaiting;
  job.waiting_since_ns = now_ns_;
  ++job.preemptions;
  ++waiting_count_;
}

void ClusterState::migrate(JobId id, const Placement& placement) {
  preempt(id);
  --state(id).preemptions;
  ++state(id).migrations;
  start(id, placement);
}

void ClusterState::refresh() {
  const std::span<const JobId> settled = contention_->settle();
  suspects_.insert(suspects_.end(), settled.begin(), settled.end());
  for (const JobId id : suspects_) {
    JobState& job = state(id);
    if (job.phase != Phase::kRunning) continue;
    const double rate = contention_->rate(id) * share_beside_partner(id);
    if (rate == job.rate && job.updated_ns < now_ns_) continue;
    update(id);
    job.rate = rate;
    changed_.push_back(id);
  }
  suspects_.clear();
}

Contention::Forecast ClusterState::forecast(JobId id, const Placement& placement) {
  refresh();
  Contention::Forecast forecast = contention_->forecast(id, job(id), placement);
  for (auto& [other, rate] : forecast.others) rate *= share_beside_partner(other);
  return forecast;
}

Contention::Forecast ClusterState::estimate(JobId id, const Placement& placement) {
  refresh();
  Contention::Forecast forecast = contention_->estimate(id, job(id), placement);
  for (auto& [other, rate] : forecast.others) rate *= share_beside_partner(other);
  return forecast;
}

std::vector<ClusterState::Move> ClusterState::forecast_moves(
    JobId id, std::span<const Placement> placements) {
  refresh();
  const auto progress_of = [&](JobId other, double rate) {
    return rate * at(other).ideal_iteration_ns * share_beside_partner(other);
  };
  contention_->stop(id);
  double released = 0;  // what the others gain when the job goes
  const std::span<const JobId> settled = contention_->settle();
  suspects_.assign(settled.begin(), settled.end());
  for (const JobId other : suspects_) {
    if (other == id || at(other).phase != Phase::kRunning) continue;
    released += progress_of(other, contention_->rate(other)) - progress(other);
  }
  std::vector<Move> moves;
  for (const Placement& placement : placements) {
    const Contention::Forecast forecast = contention_->forecast(id, job(id), placement);
    Move move{.rate = forecast.rate, .others_gain = released};
    for (const auto& [other, rate] : forecast.others) {
      move.others_gain += progress_of(other, rate) - progress_of(other, contention_->rate(other));
    }
    moves.push_back(move);
  }
  contention_->start(id, job(id), at(id).placement);
  refresh();
  return moves;
}

void ClusterState::advance_to(int64_t now_ns) {
  JIGE_CHECK(now_ns >= now_ns_, "time went back from {} to {} ns", now_ns_, now_ns);
  if (recorder_) recorder_->held(now_ns_, now_ns, spec_.gpu_count() - free_.total());
  now_ns_ = now_ns;
}

void ClusterState::arrive(JobId id) {
  JobState& job = state(id);
  JIGE_CHECK(job.phase == Phase::kFuture, "job {} came already", id);
  job.phase = Phase::kWaiting;
  job.waiting_since_ns = now_ns_;
  job.left = this->job(id).iterations;
  job.ideal_iteration_ns = ideal_iteration_ns(this->job(id), spec_);
  ++waiting_count_;
}

void ClusterState::refuse(JobId id) { state(id).phase = Phase::kRefused; }

void ClusterState::finish(JobId id) {
  leave(id);
  state(id).phase = Phase::kDone;
  state(id).left = 0;
  state(id).finish_ns = now_ns_;
}

void ClusterState::withdraw(JobId id) {
  JIGE_CHECK(at(id).phase == Phase::kWaiting, "job {} does not wait", id);
  state(id).phase = Phase::kDone;
  --waiting_count_;
}

void ClusterState::restore(JobId id, const History& history) {
  JobState& job = state(id);
  JIGE_CHECK(job.phase == Phase::kWaiting && job.starts == 0, "job {} is not new", id);
  job.left = std::clamp(history.left, 0.0, this->job(id).iterations);
  job.held_ns = history.held_ns;
  job.first_start_ns = history.first_start_ns;
  job.starts = history.starts;
  job.preemptions = history.preemptions;
  job.migrations = history.migrations;
}

void ClusterState::undo_start(JobId id, double left) {
  leave(id);
  JobState& job = state(id);
  job.phase = Phase::kWaiting;
  job.left = std::clamp(left, 0.0, this->job(id).iterations);
  if (--job.starts == 0) job.first_start_ns = -1;
  ++waiting_count_;
}

void ClusterState::set_left(JobId id, double left) {
  JIGE_CHECK(at(id).phase == Phase::kRunning, "job {} does not run", id);
  refresh();
  update(id);
  state(id).left = std::clamp(left, 0.0, job(id).iterations);
  state(id).progress_from_ns = now_ns_;
  changed_.push_back(id);
}

int32_t ClusterState::set_blocked(int32_t node, int32_t gpus) {
  int32_t& blocked = blocked_[static_cast<size_t>(node)];
  const int32_t change = std::min(gpus - blocked, free_.on_node(node));
  if (change > 0) free_.take(Placement{{node, change}});
  if (change < 0) free_.give(Placement{{node, -change}});
  version_ += change != 0;
  departures_ += change != 0;
  blocked += change;
  gpus_in_service_ -= change;
  return blocked;
}

int64_t ClusterState::planned_end_ns(JobId id) const {
  const JobState& job = at(id);
  const double needed_ns = std::ceil(job.left / job.rate);
  const int64_t from_ns = std::max(job.updated_ns, job.progress_from_ns);
  if (needed_ns >= static_cast<double>(kRunMax_ns)) return from_ns + kRunMax_ns;
  return from_ns + std::max<int64_t>(1, static_cast<int64_t>(needed_ns));
}

std::vector<JobId> ClusterState::take_changed() {
  std::erase_if(changed_, [&](JobId id) { return at(id).phase != Phase::kRunning; });
  std::ranges::sort(changed_);
  changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
  for (const JobId id : changed_) ++state(id).stint;
  return std::exchange(changed_, {});
}

}  // namespace jige::cluster
