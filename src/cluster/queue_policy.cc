#include "cluster/queue_policy.h"

#include <algorithm>
#include <limits>

#include "cluster/shape_room.h"
#include "cluster/vacancy.h"

namespace jige::cluster {
namespace {

// Jobs that a placer may turn down at one instant before the queue is left alone.
constexpr int kDeclinedMax = 32;
// Shapes for which room is looked for in vain at one instant.
constexpr int kShapesMax = 16;

}  // namespace

QueuePolicy::QueuePolicy(const QueueOptions& options, std::unique_ptr<Order> order,
                         std::unique_ptr<Placer> placer)
    : options_(options), order_(std::move(order)), placer_(std::move(placer)) {
  if (options_.deadlines) lateness_.emplace(*options_.deadlines);
}

QueuePolicy::Rank QueuePolicy::rank_of(const ClusterState& cluster, JobId id) {
  const auto i = static_cast<size_t>(id);
  if (overdue_.size() <= i) overdue_.resize(i + 1);
  const int64_t arrival_ns = cluster.job(id).arrival_ns;
  if (options_.urgent_factor >= 0 && !overdue_[i]) {
    const int64_t without_ns = cluster.now_ns() - arrival_ns - cluster.held_ns(id);
    const double bound_ns = static_cast<double>(options_.urgent_min_ns) +
                            options_.urgent_factor * options_.lengths.alone_ns(cluster, id);
    overdue_[i] = static_cast<double>(without_ns) > bound_ns;
  }
  if (overdue_[i]) return {Class::kOverdue, 0, arrival_ns, id};
  Class urgency = Class::kOrdinary;
  if (lateness_ && lateness_->quick(cluster, id)) {
    urgency = Class::kQuick;
  } else if (lateness_ && lateness_->late(cluster, id)) {
    return {Class::kLate, 0, arrival_ns, id};
  }
  return {urgency, order_->key(cluster, id), arrival_ns, id};
}

void QueuePolicy::wait(const ClusterState& cluster, JobId id) {
  const auto i = static_cast<size_t>(id);
  if (ranks_.size() <= i) ranks_.resize(i + 1);
  ranks_[i] = rank_of(cluster, id);
  waiting_.insert(ranks_[i]);
  ++by_size_[cluster.job(id).gpus];
}

void QueuePolicy::stop_waiting(const ClusterState& cluster, JobId id) {
  waiting_.erase(ranks_[static_cast<size_t>(id)]);
  const auto size = by_size_.find(cluster.job(id).gpus);
  if (--size->second == 0) by_size_.erase(size);
}

void QueuePolicy::arrived(const ClusterState& cluster, JobId id) {
  if (lateness_) lateness_->came(cluster, id);
  wait(cluster, id);
}

void QueuePolicy::withdrawn(const ClusterState& cluster, JobId id) { stop_waiting(cluster, id); }

void QueuePolicy::finished(const ClusterState&, JobId) {}

void QueuePolicy::rank_anew(const ClusterState& cluster) {
  std::vector<Rank> changed;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const Rank anew = rank_of(cluster, at->id);
    if (anew == *at) {
      ++at;
      continue;
    }
    changed.push_back(anew);
    at = waiting_.erase(at);
  }
  for (const Rank& rank : changed) {
    ranks_[static_cast<size_t>(rank.id)] = rank;
    waiting_.insert(rank);
  }
}

std::vector<JobId> QueuePolicy::queue() const {
  std::vector<JobId> waiting;
  waiting.reserve(waiting_.size());
  for (const Rank& rank : waiting_) waiting.push_back(rank.id);
  return waiting;
}

void QueuePolicy::schedule(ClusterState& cluster, bool is_round) {
  if (is_round && lateness_) lateness_->look(cluster, queue());
  if (is_round && (order_->ages() || options_.urgent_factor >= 0 || lateness_)) rank_anew(cluster);
  if (options_.preemptive && (!options_.preempt_in_rounds || is_round)) make_room(cluster);
  fill(cluster);
  if (is_round) placer_->improve(cluster);
}

Policy::Standing QueuePolicy::standing(const ClusterState& cluster, JobId id) {
  Standing standing{.word = {}, .text = {}, .for_shape = got_in_ == id};
  const auto i = static_cast<size_t>(id);
  if (i >= ranks_.size()) return standing;
  switch (ranks_[i].urgency) {
    case Class::kOverdue:
      standing.word = "overdue";
      standing.text = "it has waited long enough to come first, and is not stopped again";
      break;
    case Class::kQuick:
      standing.word = "quick";
      standing.text = "it is among the jobs with little work, which hold nobody up";
      break;
    case Class::kLate:
      standing.word = "late";
      standing.text = lateness_->late_text(cluster, id);
      break;
    case Class::kUnstoppable:
    case Class::kOrdinary:
      break;
  }
  return standing;
}

bool QueuePolicy::start(ClusterState& cluster, JobId id, bool must) {
  const std::optional<Placement> placement = placer_->place(cluster, id, must);
  if (!placement) return false;
  stop_waiting(cluster, id);
  cluster.start(id, *placement);
  return true;
}

std::vector<QueuePolicy::Rank> QueuePolicy::ranked_running(const ClusterState& cluster) {
  std::vector<Rank> ranks;
  ranks.reserve(cluster.running().size());
  for (const JobId id : cluster.running()) {
    ranks.push_back(rank_of(cluster, id));
    if (!cluster.job(id).stoppable) ranks.back().urgency = Class::kUnstoppable;
  }
  std::ranges::sort(ranks);
  if (!cluster.colocation()) return ranks;
  // Of two that share GPUs the first keeps them for both.
  std::set<JobId> kept;
  std::erase_if(ranks, [&](const Rank& rank) {
    if (kept.contains(cluster.at(rank.id).partner)) return true;
    kept.insert(rank.id);
    return false;
  });
  return ranks;
}

// Walks both queues in order while there are GPUs; running jobs that are not reached can be
// stopped for waiting ones that are.
void QueuePolicy::make_room(ClusterState& cluster) {
  if (waiting_.empty()) return;
  const std::vector<Rank> running = ranked_running(cluster);
  if (running.empty() || running.back() < *waiting_.begin()) return;
  std::vector<JobId> chosen;   // of those that wait
  std::vector<JobId> victims;  // of those that run; the first to stop is the last
  int32_t room = cluster.gpus_in_service();
  auto next_waiting = waiting_.begin();
  const bool skips = options_.admission == Admission::kSkip;
  // Nobody who waits fits any more where there is less room than this.
  const int32_t least = skips ? by_size_.begin()->first : 1;
  for (size_t i = 0; i < running.size() || (next_waiting != waiting_.end() && room >= least);) {
    const bool nobody_waits = next_waiting == waiting_.end() || room < least;
    const bool runs = i < running.size() && (nobody_waits || running[i] < *next_waiting);
    const JobId id = runs ? running[i++].id : (next_waiting++)->id;
    const int32_t gpus = cluster.job(id).gpus;
    if (gpus <= room) {
      room -= gpus;
      if (!runs) chosen.push_back(id);
    } else if (runs) {
      if (cluster.job(id).stoppable) victims.push_back(id);
    } else if (!skips) {
      room = 0;
    }
  }
  int declined = 0, shapes = 0;
  for (const JobId id : chosen) {
    if (cluster.free().fits(cluster.job(id))) {
      if (!start(cluster, id, false) && ++declined == kDeclinedMax) return;
    } else if (victims.empty() && options_.shape_margin <= 0) {
      return;
    } else if (!victims.empty() && stop_others_for(cluster, id, victims)) {
      start(cluster, id, true);
    } else if (options_.shape_margin > 0 && cluster.job(id).nodes > 0 && shapes < kShapesMax) {
      shapes += !start_in_the_way(cluster, id, running);
    }
  }
}

void QueuePolicy::stop(ClusterState& cluster, JobId victim) {
  const JobId partner = cluster.at(victim).partner;
  for (const JobId stopped : {victim, partner}) {
    if (stopped < 0) continue;
    cluster.preempt(stopped);
    wait(cluster, stopped);
  }
}

// Stops victims from the last on until the job fits; nobody where all together do not suffice.
bool QueuePolicy::stop_others_for(ClusterState& cluster, JobId id, std::vector<JobId>& victims) {
  Vacancy vacancy(cluster);
  std::erase_if(victims, [&](JobId job) { return cluster.at(job).phase != Phase::kRunning; });
  size_t kept = victims.size();
  while (kept > 0 && !vacancy.free().fits(cluster.job(id))) {
    const JobId victim = victims[--kept];
    const JobId partner = cluster.at(victim).partner;
    vacancy.leave(victim);
    if (partner >= 0) vacancy.leave(partner);
  }
  if (!vacancy.free().fits(cluster.job(id))) return false;
  while (victims.size() > kept) {
    stop(cluster, victims.back());
    victims.pop_back();
  }
  return true;
}

// Starts a fixed shape where those in its way may be stopped, the last in the order first.
bool QueuePolicy::start_in_the_way(ClusterState& cluster, JobId id,
                                   const std::vector<Rank>& running) {
  const Class own = ranks_[static_cast<size_t>(id)].urgency;
  const bool presses = own == Class::kLate || own == Class::kOverdue;
  const double least = options_.shape_margin * order_->key(cluster, id);
  std::vector<JobId> candidates;
  for (size_t i = running.size(); i-- > 0;) {
    const Rank& rank = running[i];
    if (rank.urgency <= Class::kOverdue) break;
    if (cluster.at(rank.id).phase != Phase::kRunning) continue;
    const bool yields = presses && rank.urgency != Class::kLate;
    if (yields || order_->key(cluster, rank.id) >= least) candidates.push_back(rank.id);
  }
  const std::optional<std::vector<JobId>> victims = who_must_make_way(cluster, id, candidates);
  if (!victims) return false;
  for (const JobId victim : *victims) stop(cluster, victim);
  got_in_ = id;
  start(cluster, id, true);
  got_in_ = -1;
  // Whoever has just been stopped for it would else come back and stop it in turn.
  if (own == Class::kLate) overdue_[static_cast<size_t>(id)] = true;
  return true;
}

void QueuePolicy::fill(ClusterState& cluster) {
  std::optional<Reservation> reservation;
  int declined = 0;
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    if (!cluster.colocation() && cluster.free().total() < by_size_.begin()->first) return;
    const Rank rank = *next++;
    const bool urgent = rank.urgency == Class::kOverdue;
    if (!cluster.free().fits(cluster.job(rank.id))) {
      if (join_other(cluster, rank.id)) continue;
      if (options_.admission == Admission::kStrict || urgent) return;
      if (options_.admission == Admission::kEasy && !reservation) {
        cluster.refresh();
        reservation = reserve(cluster, rank.id);
      }
      continue;
    }
    if (reservation && !may_backfill(cluster, rank.id, *reservation)) continue;
    if (start(cluster, rank.id, urgent || cluster.running().empty())) continue;
    if (options_.admission == Admission::kStrict || ++declined == kDeclinedMax) return;
  }
}

bool QueuePolicy::join_other(ClusterState& cluster, JobId id) {
  const Colocation* colocation = cluster.colocation();
  if (!colocation) return false;
  const Job& job = cluster.job(id);
  JobId best = -1;
  double best_sum = 0;
  for (const JobId host : cluster.running()) {
    const auto nodes = static_cast<int32_t>(cluster.at(host).placement.size());
    if (cluster.at(host).partner >= 0 || cluster.job(host).gpus != job.gpus) continue;
    if (job.nodes > 0 && job.nodes != nodes) continue;
    const Job& other = cluster.job(host);
    if (!colocation->compatible(job, other, nodes)) continue;
    const double sum = colocation->share(job, other, nodes) + colocation->share(other, job, nodes);
    // Equals by age, so that the order of the list does not matter.
    if (sum < best_sum || (sum == best_sum && host > best)) continue;
    best_sum = sum;
    best = host;
  }
  if (best < 0) return false;
  stop_waiting(cluster, id);
  cluster.join(id, best);
  return true;
}

QueuePolicy::Reservation QueuePolicy::reserve(const ClusterState& cluster, JobId head) const {
  std::vector<std::pair<double, JobId>> ends;
  for (const JobId id : cluster.running()) {
    const auto now_ns = static_cast<double>(cluster.now_ns());
    const double left_ns = options_.lengths.remaining_ns(cluster, id);
    ends.emplace_back(now_ns + left_ns / cluster.progress(id), id);
  }
  std::ranges::sort(ends);
  Vacancy vacancy(cluster);
  for (const auto& [end_ns, id] : ends) {
    vacancy.leave(id);
    if (vacancy.free().fits(cluster.job(head))) {
      return {end_ns, vacancy.free().total() - cluster.job(head).gpus};
    }
  }
  return {std::numeric_limits<double>::infinity(), 0};
}

bool QueuePolicy::may_backfill(const ClusterState& cluster, JobId id,
                               Reservation& reservation) const {
  const double end_ns =
      static_cast<double>(cluster.now_ns()) + options_.lengths.remaining_ns(cluster, id);
  if (end_ns <= reservation.start_ns) return true;
  const int32_t gpus = cluster.job(id).gpus;
  if (gpus > reservation.spare_gpus) return false;
  reservation.spare_gpus -= gpus;
  return true;
}

}  // namespace jige::cluster
