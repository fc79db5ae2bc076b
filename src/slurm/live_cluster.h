// LiveCluster: a policy at work on a Slurm partition. It holds what is wanted (a ClusterState that
// the policy changes, as in the simulation) beside what was seen (snapshots), and lets the second
// correct the first. It calls nothing: slurm/reconcile.h says what to do so that Slurm follows.
//
//   absorb(snapshot)   jobs that came, started, stopped or ended, nodes that went; each is an event
//   decide()           one call of the policy, where something happened or a round is due
//   acted()            what became of an action
//
// Whose job it is: one that is held, or that we released (AdminComment) and is seen to run. A job
// that a person released, or one of another partition, is left to Slurm: the GPUs it has are
// blocked. One that is held again is ours again.
//
// Nodes that a job may not have, for what else it asks for or as Slurm would not start it there,
// are barred for it (Job::barred), anew with each snapshot. A job array is no job; its tasks are,
// once they have been taken out of it.
//
// Slurm wins every dispute: a job that runs where it should not is adopted there, and jobs that
// were to start on its GPUs wait again. Jobs that Slurm would not start rest for a while, longer
// each time. Time is given in two kinds: `cluster_ns` that policies and lengths are measured in,
// and `wall_ns`, monotonic, for what Slurm owes us.
//
// Invariants: of two jobs neither is wanted on one GPU; a job that is alive in Slurm is waiting or
// running in the state, resting, foreign or refused, and never lost.
// Threads: one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "cluster/cluster_state.h"
#include "cluster/policy.h"
#include "slurm/backend.h"
#include "slurm/job_request.h"
#include "slurm/layout.h"
#include "slurm/node_limits.h"

namespace jige::slurm {

struct Moment {
  int64_t wall_ns = 0;
  int64_t cluster_ns = 0;
  int64_t unix_s = 0;  // only for ages of jobs that are new to us
};

struct LiveJob {
  SeenJob seen;
  AskedFor asked;  // what the request was read from
  JobRequest request;
  cluster::JobId id = 0;
  bool ours = false;     // released by us, until it is seen held
  bool started = false;  // seen running since
  bool resting = false;  // the policy does not know it waits
  bool sticks = false;   // Slurm has refused to requeue it
  cluster::Placement seen_at, placed_at;
  int64_t acted_wall_ns = -1;  // the last action; snapshots from before say nothing about it
  int64_t placed_wall_ns = -1, checkpoint_wall_ns = -1, requeued_wall_ns = -1;
  int64_t started_wall_ns = 0;  // when `started` became so
  int64_t retry_wall_ns = 0;    // when it has rested
  int64_t ready_wall_ns = 0;    // not to be placed before: kRestartPause_s after a stop
  double left_at_start = 0;
  int32_t failures = 0;  // starts in a row that came to nothing
  int32_t crowded = 0;   // places in a row that lacked CPUs or memory when it was to start
  std::string last_failure;
  std::vector<int32_t> avoided;  // nodes where Slurm would not start it, until it starts
  int32_t missing = 0;           // snapshots in a row without it
};

// A node daemon counts a credential as revoked that was made in the second in which the job was
// stopped there, and Slurm then fails the job: it must not start anew before the next second.
inline constexpr double kRestartPause_s = 1.1;

// An integer of a saved state, so small that sums of two stay whole numbers. Fails as get_int(),
// and with kCorrupt.
Result<int64_t> get_saved_int(const Json& object, std::string_view field, std::string_view where);

// What happened, for the log.
struct LiveEvent {
  std::string kind;  // arrive, start, stop, finish, fail, adopt, foreign, refuse, change
  int64_t job = 0;
  std::string text;
  double seconds = -1;  // of start: from the release until it was seen; of finish: JCT (cluster)
};

struct LiveOptions {
  double time_scale = 1;  // seconds of the cluster in one second
  RequestDefaults defaults;
  std::string partition;
  int32_t jobs_max = 16384;  // over the life of the object
};

// A job that ended.
struct LiveOutcome {
  int64_t job = 0;
  std::string slurm_state;
  int64_t arrival_ns = 0, first_start_ns = -1, finish_ns = 0;  // of the cluster
  int32_t starts = 0, preemptions = 0, migrations = 0;
};

// Why a job array is no job.
inline constexpr const char* kWholeArray =
    "a job array, whose tasks become jobs of their own as places become free";
// Tasks of one array that wait as jobs of their own: enough to fill what becomes free.
inline constexpr int64_t kTasksOutMax = 16;

class LiveCluster {
 public:
  LiveCluster(Layout layout, LiveOptions options, std::unique_ptr<cluster::Contention> contention,
              cluster::Policy& policy);

  void absorb(const Snapshot& snapshot, const Moment& now);
  // Whether the policy was asked.
  bool decide(const Moment& now, cluster::ChangeObserver* observer);

  const std::map<int64_t, LiveJob>& jobs() const { return jobs_; }
  LiveJob& job(int64_t slurm_id) { return jobs_.at(slurm_id); }
  int64_t slurm_id(cluster::JobId id) const { return slurm_ids_[static_cast<size_t>(id)]; }
  cluster::Policy::Standing standing(cluster::JobId id) { return policy_.standing(state_, id); }
  std::vector<cluster::JobId> queue() const { return policy_.queue(); }
  const cluster::ClusterState& state() const { return state_; }
  cluster::ClusterState& state() { return state_; }
  const Layout& layout() const { return layout_; }
  const LiveOptions& options() const { return options_; }
  // GPUs that nothing seen has, by node; none on nodes that are out of service.
  const std::vector<int32_t>& seen_free() const { return seen_free_; }
  // As last seen, by index; unnamed where there is none.
  const std::vector<SeenNode>& nodes() const { return nodes_; }
  // Job arrays with tasks to be taken out now, and which.
  const std::map<int64_t, std::vector<int64_t>>& to_split() const { return to_split_; }
  // The state in which the partition starts no jobs; empty: it does.
  const std::string& closed() const { return closed_; }
  // Jobs that cannot be placed, and why; looked at again in each snapshot, for people change them.
  const std::map<int64_t, std::string>& refused() const { return refused_; }
  const std::set<int64_t>& foreign() const { return foreign_; }
  // Nodes that jobs of ours are seen on, with all their GPUs.
  std::vector<SeenNode> nodes_with_jobs() const;

  // Where the policy wants it; nothing: waiting.
  std::optional<cluster::Placement> wanted(const LiveJob& job) const;
  // A start that did not happen: the job waits again; after a failure it rests first.
  void give_up_start(LiveJob& job, const Moment& now, bool failure, const std::string& why);
  // Of a running job that Slurm would not requeue: it is wanted where it is, and not stopped again.
  void keep_running(LiveJob& job, const Moment& now, const std::string& why);

  // Since the last call.
  std::vector<LiveEvent> take_events() { return std::exchange(events_, {}); }
  std::vector<LiveOutcome> take_outcomes() { return std::exchange(outcomes_, {}); }
  // No more jobs can be taken in: build it anew from save().
  bool full() const { return next_ == options_.jobs_max; }

  // What Slurm does not know about jobs, to be given to restore() after a restart, before the first
  // absorb(). restore() fails with kCorrupt, naming `where`.
  Json save() const;
  Status restore(const Json& saved, std::string_view where);
  // The same from an object that this one takes the place of.
  Status go_on_from(const LiveCluster& before);

 private:
  // Of a job that is new to us; more is a clock that jumped.
  static constexpr int64_t kAgeMax_s = 30 * 86400;
  static constexpr const char* kOtherPlace =
      "it does not have the GPUs that it asked for; left to Slurm";

  struct Past {
    int64_t arrival_ns = 0;
    double iterations = 0;  // that history.left is a part of; 0: those of the request
    cluster::ClusterState::History history;
    int32_t missing = 0;  // snapshots without the job
  };

  void absorb_known(const Snapshot& snapshot, const Moment& now);
  void on_pending(LiveJob& job, const Snapshot& snapshot, const Moment& now);
  void on_held(LiveJob& job, const Moment& now);
  void on_running(LiveJob& job, const Moment& now);
  void on_first_run(LiveJob& job, const Moment& now);
  void on_resized(LiveJob& job, const Moment& now);
  void on_gone(LiveJob& job);
  void stopped_outside(LiveJob& job, const Moment& now, const std::string& why);
  bool take_in(const SeenJob& seen, const Moment& now);
  Result<JobRequest> request_of(const SeenJob& seen, const Moment& now) const;
  void arrive(const SeenJob& seen, JobRequest request, const Moment& now);
  bool adopt(LiveJob& job, const Moment& now);
  bool make_room(const cluster::Placement& placement, const LiveJob& newcomer, const Moment& now);
  void make_foreign(LiveJob& job, const std::string& why);
  void forget(LiveJob& job);
  void leave_waiting(LiveJob& job);
  void count_gpus(const Snapshot& snapshot, const Moment& now);
  void see_nodes(const Snapshot& snapshot);
  std::vector<NodeUse> firm_use(const Snapshot& snapshot) const;
  void bar_nodes(const Snapshot& snapshot);
  int32_t open_nodes(int32_t gpus_each, const NodeNeeds& needs,
                     const std::vector<int32_t>& avoided) const;
  Result<int32_t> gpus_on_each(const SeenJob& seen) const;
  Status check_array(const SeenJob& seen) const;
  void look_at_array(const SeenJob& seen, const Moment& now);
  void event(std::string kind, int64_t job, std::string text = "", double seconds = -1);

  Layout layout_;
  LiveOptions options_;
  std::vector<cluster::Job> store_;  // by JobId; never moves
  cluster::ClusterState state_;
  cluster::Policy& policy_;
  std::vector<int64_t> slurm_ids_;
  std::map<int64_t, LiveJob> jobs_;  // alive and ours
  std::map<int64_t, std::string> refused_;
  std::set<int64_t> foreign_;
  std::map<int64_t, Past> past_;
  std::vector<int32_t> seen_free_;
  std::vector<SeenNode> nodes_;
  std::map<int64_t, std::vector<int64_t>> to_split_;
  struct Asked {
    std::string tasks;
    int64_t wall_ns = 0;
  };
  std::map<int64_t, Asked> split_asked_;  // of arrays, last
  std::string closed_;
  std::vector<LiveEvent> events_;
  std::vector<LiveOutcome> outcomes_;
  int32_t next_ = 0;
  int64_t next_round_ns_ = 0;
  bool happened_ = true;
};

}  // namespace jige::slurm
