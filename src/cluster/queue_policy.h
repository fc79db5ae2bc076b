// QueuePolicy: an order, an admission rule and a placer put together. All classical policies are
// one of these.
//
//   strict   the first job that does not fit holds up all behind it
//   skip     those behind it may start
//   easy     they may if they end before the first one can start, as running jobs are estimated, or
//            leave it enough GPUs (EASY backfill)
//
// A preemptive one looks, at each instant or each round, which jobs come first in the order while
// there are GPUs, and stops others, the last first, only as far as those that wait need their GPUs.
// Running jobs that cannot be stopped (Job::stoppable) come before all others.
//
// With a Colocation, a job that does not fit joins a running one with which it is compatible, where
// both together then progress most. What a preemptive policy counts and stops are jobs with GPUs of
// their own; a partner goes on with them.
//
// Ageing: a job that has been without GPUs for longer than urgent_min + urgent_factor * its length
// is overdue: it stands before all others, by arrival; while it does not fit nobody behind it
// starts, and it is not preempted again. With `deadlines` there are two classes between these and
// the others (cluster/lateness.h): quick jobs in order, then late ones by arrival.
//
// With `shape_margin` a preemptive policy also stops those that stand in the way of a fixed shape,
// where GPUs enough are free but not on enough nodes (cluster/shape_room.h): for any such job those
// with a key at least so many times its own, late ones among them, and for one that is late itself
// also those that are not. A late one that got in so counts as overdue from then on and is not
// stopped again. Threads: one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "cluster/lateness.h"
#include "cluster/length_estimates.h"
#include "cluster/order.h"
#include "cluster/placer.h"
#include "cluster/policy.h"

namespace jige::cluster {

enum class Admission : uint8_t { kStrict, kSkip, kEasy };

struct QueueOptions {
  Admission admission = Admission::kSkip;
  bool preemptive = false;
  bool preempt_in_rounds = false;  // else at each instant
  int64_t round_ns = 0;
  double urgent_factor = -1;  // below 0: nobody becomes urgent
  int64_t urgent_min_ns = 0;
  std::optional<LatenessOptions> deadlines = std::nullopt;
  double shape_margin = 0;       // 0: nobody is stopped for a shape
  LengthEstimates lengths = {};  // for ageing and EASY
};

class QueuePolicy final : public Policy {
 public:
  QueuePolicy(const QueueOptions& options, std::unique_ptr<Order> order,
              std::unique_ptr<Placer> placer);

  int64_t round_ns() const override { return options_.round_ns; }
  void arrived(const ClusterState& cluster, JobId id) override;
  void withdrawn(const ClusterState& cluster, JobId id) override;
  void finished(const ClusterState& cluster, JobId id) override;
  void schedule(ClusterState& cluster, bool is_round) override;
  // Words: overdue, quick, late.
  Standing standing(const ClusterState& cluster, JobId id) override;
  std::vector<JobId> queue() const override;

 private:
  // kUnstoppable: only of running jobs.
  enum class Class : uint8_t { kUnstoppable, kOverdue, kQuick, kLate, kOrdinary };
  // Where a job stands; the lowest first.
  struct Rank {
    Class urgency = Class::kOrdinary;
    double key = 0;
    int64_t arrival_ns = 0;
    JobId id = 0;
    auto operator<=>(const Rank&) const = default;
  };
  // What an EASY head was promised.
  struct Reservation {
    double start_ns = 0;
    int32_t spare_gpus = 0;  // at that time
  };

  Rank rank_of(const ClusterState& cluster, JobId id);
  void wait(const ClusterState& cluster, JobId id);
  void stop_waiting(const ClusterState& cluster, JobId id);
  void rank_anew(const ClusterState& cluster);
  void make_room(ClusterState& cluster);
  std::vector<Rank> ranked_running(const ClusterState& cluster);
  bool stop_others_for(ClusterState& cluster, JobId id, std::vector<JobId>& victims);
  bool start_in_the_way(ClusterState& cluster, JobId id, const std::vector<Rank>& running);
  void stop(ClusterState& cluster, JobId victim);
  void fill(ClusterState& cluster);
  bool join_other(ClusterState& cluster, JobId id);
  bool start(ClusterState& cluster, JobId id, bool must);
  Reservation reserve(const ClusterState& cluster, JobId head) const;
  bool may_backfill(const ClusterState& cluster, JobId id, Reservation& reservation) const;

  QueueOptions options_;
  std::unique_ptr<Order> order_;
  std::unique_ptr<Placer> placer_;
  std::set<Rank> waiting_;
  std::vector<Rank> ranks_;    // by job, of those that wait
  std::vector<bool> overdue_;  // by job; stays
  std::optional<Lateness> lateness_;
  JobId got_in_ = -1;                   // for whose shape others were stopped last
  std::map<int32_t, int64_t> by_size_;  // how many wait, by GPUs
};

}  // namespace jige::cluster
