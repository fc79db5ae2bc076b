// ClusterState: who runs where and how far each job is. A policy reads it and changes it; time is
// given to it.
//
//   arrive -> kWaiting -> start -> kRunning -> finish -> kDone
//                 ^----- preempt -----'
//
// On a real cluster (src/slurm) the state is what is wanted, and what was seen corrects it: jobs
// that were under way before (restore), that left without having run (withdraw), whose progress is
// known better (set_left), and GPUs that are out of service or others' (set_blocked).
//
// A preempted job keeps its progress, frees its GPUs at once, and pays for checkpoint, requeue and
// restore when it starts again: it then holds its GPUs for restart_ns without progress (start_ns
// the first time), and is already counted as a neighbour on the network. A migration is both at
// once.
//
// With a Colocation a waiting job may join a running one on its GPUs; each then is the other's
// partner, and has the GPUs for itself when that leaves.
//
// Invariants: a GPU has one job at most, or two partners; `left` never grows; held time is time
// with GPUs.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cluster/colocation.h"
#include "cluster/contention.h"
#include "cluster/free_gpus.h"
#include "cluster/job.h"

namespace jige::cluster {

class Recorder;

enum class Phase : uint8_t { kFuture, kWaiting, kRunning, kDone, kRefused };

struct JobState {
  Phase phase = Phase::kFuture;
  Placement placement;
  double left = 0;  // iterations at updated_ns
  double rate = 0;  // iterations a nanosecond
  double ideal_iteration_ns = 0;
  int64_t updated_ns = 0;
  int64_t progress_from_ns = 0;  // end of the start
  int64_t run_since_ns = 0;
  int64_t waiting_since_ns = 0;
  int64_t held_ns = 0;     // in stints that are over
  int64_t restart_ns = 0;  // of those, without progress
  int64_t first_start_ns = -1;
  int64_t finish_ns = -1;
  int32_t starts = 0, preemptions = 0, migrations = 0;
  JobId partner = -1;  // on the same GPUs
  uint32_t stint = 0;  // changes whenever a planned end no longer holds
  size_t running_index = 0;
};

// Nodes with free GPUs in the orders in which places are looked for; equals by number.
struct NodeOrders {
  std::vector<int32_t> tightest;      // least room first
  std::vector<int32_t> roomiest;      // most room first
  std::vector<int32_t> quiet;         // fewest jobs on several nodes, then most room
  std::vector<int32_t> quiet_leaves;  // leaf by leaf, those that fewest jobs cross first
};

class ClusterState;

// Told of starts and stops just before they change the state; a migration is a stop and a start.
class ChangeObserver {
 public:
  virtual ~ChangeObserver() = default;
  virtual void starting(ClusterState& cluster, JobId id, const Placement& placement) = 0;
  virtual void stopping(ClusterState& cluster, JobId id) = 0;
};

class ClusterState {
 public:
  // `recorder` may be null. REQUIRES: jobs and recorder outlive the state.
  ClusterState(const ClusterSpec& spec, std::span<const Job> jobs,
               std::unique_ptr<Contention> contention, Recorder* recorder);
  ~ClusterState();

  const ClusterSpec& spec() const { return spec_; }
  int64_t now_ns() const { return now_ns_; }
  const FreeGpus& free() const { return free_; }
  const Job& job(JobId id) const { return jobs_[static_cast<size_t>(id)]; }
  const JobState& at(JobId id) const { return states_[static_cast<size_t>(id)]; }
  size_t job_count() const { return jobs_.size(); }
  const std::vector<JobId>& running() const { return running_; }
  int64_t waiting_count() const { return waiting_count_; }
  // Grows with every start and every end of a stint: what was forecast at one version holds.
  int64_t version() const { return version_; }
  // Grows with every end of a stint, and with GPUs that go out of service or come back.
  int64_t departures() const { return departures_; }
  // Computed once a version. Valid until the state changes.
  const NodeOrders& node_orders() const;
  // Jobs on several nodes that have this one; those on several leaves that have this one.
  int32_t spread_on_node(int32_t node) const { return spread_on_node_[static_cast<size_t>(node)]; }
  int32_t spread_on_leaf(int32_t leaf) const { return spread_on_leaf_[static_cast<size_t>(leaf)]; }

  // Time with GPUs until now.
  int64_t held_ns(JobId id) const;
  // Iterations left now.
  double left(JobId id) const;
  // What is left, and the whole job, alone on its ideal placement.
  double remaining_ns(JobId id) const { return left(id) * at(id).ideal_iteration_ns; }
  double alone_ns(JobId id) const { return job(id).iterations * at(id).ideal_iteration_ns; }
  // Speed as a share of the ideal one, of a running job. REQUIRES: refreshed.
  double progress(JobId id) const { return at(id).rate * at(id).ideal_iteration_ns; }

  // For policies. REQUIRES: the job waits and the GPUs are free; the job runs.
  void start(JobId id, const Placement& placement);
  // REQUIRES: colocation, `id` waits, `host` runs without a partner on as many GPUs, and on as many
  // nodes as the job asks for, if it does.
  void join(JobId id, JobId host);
  void preempt(JobId id);
  void migrate(JobId id, const Placement& placement);
  // Brings rates up to date after changes.
  void refresh();
  // Its speed at a place if nobody else ran, as a share of the ideal one.
  double progress_alone(JobId id, const Placement& placement) const {
    return contention_->rate_alone(id, job(id), placement) * at(id).ideal_iteration_ns;
  }
  // What would happen if a waiting job came; refreshes.
  Contention::Forecast forecast(JobId id, const Placement& placement);
  // The same, cheaper and not quite (Contention::estimate).
  Contention::Forecast estimate(JobId id, const Placement& placement);

  // What would happen if a running job moved, for each placement on GPUs that are free or its own;
  // refreshes before and after.
  struct Move {
    double rate = 0;         // of the job at its new place
    double others_gain = 0;  // change in the sum of the others' progress
  };
  std::vector<Move> forecast_moves(JobId id, std::span<const Placement> placements);

  // May be null: nobody shares GPUs. Set before the first job comes.
  void set_colocation(std::shared_ptr<const Colocation> colocation) {
    colocation_ = std::move(colocation);
  }
  const Colocation* colocation() const { return colocation_.get(); }
  // What a job keeps of its speed beside its partner; 1 without one.
  double share_beside_partner(JobId id) const;

  // For the one who drives. Time never goes back.
  void advance_to(int64_t now_ns);
  void arrive(JobId id);
  void refuse(JobId id);
  void finish(JobId id);
  // A job that waits leaves: cancelled, or no longer ours.
  void withdraw(JobId id);
  // What a job had before it came here. REQUIRES: it has just arrived.
  struct History {
    double left = 0;
    int64_t held_ns = 0, first_start_ns = -1;
    int32_t starts = 0, preemptions = 0, migrations = 0;
  };
  void restore(JobId id, const History& history);
  // A running job that never really started waits again, as if nothing had been.
  void undo_start(JobId id, double left);
  // Iterations left of a running job as measured; progress counts from now on.
  void set_left(JobId id, double left);
  // GPUs of a node that nobody may have: `gpus`, as far as they are free. How many became so.
  int32_t set_blocked(int32_t node, int32_t gpus);
  int32_t blocked(int32_t node) const { return blocked_[static_cast<size_t>(node)]; }
  // All that are not blocked.
  int32_t gpus_in_service() const { return gpus_in_service_; }
  // May be null. Told of start(), preempt() and migrate().
  void observe(ChangeObserver* observer) { observer_ = observer; }
  // When a running job ends if nothing changes.
  int64_t planned_end_ns(JobId id) const;
  // Jobs whose planned end has changed since the last call, ascending.
  std::vector<JobId> take_changed();

 private:
  JobState& state(JobId id) { return states_[static_cast<size_t>(id)]; }
  void update(JobId id);
  void begin(JobId id, const Placement& placement);
  void leave(JobId id);
  void count_spread(const Placement& placement, int32_t change);

  ClusterSpec spec_;
  std::span<const Job> jobs_;
  std::unique_ptr<Contention> contention_;
  std::shared_ptr<const Colocation> colocation_;
  Recorder* recorder_;
  ChangeObserver* observer_ = nullptr;
  FreeGpus free_;
  std::vector<JobState> states_;
  std::vector<int32_t> spread_on_node_, spread_on_leaf_, blocked_;
  std::vector<JobId> running_, changed_;
  std::vector<JobId> suspects_;  // rates may differ in their last bits
  int32_t gpus_in_service_ = 0;
  int64_t waiting_count_ = 0;
  int64_t version_ = 0, departures_ = 0;
  mutable NodeOrders orders_;
  mutable int64_t orders_version_ = -1;
  int64_t now_ns_ = 0;
};

}  // namespace jige::cluster
