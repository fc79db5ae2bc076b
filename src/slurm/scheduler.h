// Scheduler: the loop of `jige cluster run`. One step looks at Slurm, corrects what is known, asks
// the policy, and acts:
//
//   snapshot -> absorb -> decide -> act -> tell users why they wait, and once a second write state
//
// Where nodes, or GPUs of them, come to the partition or leave it, the snapshot that shows it makes
// a new layout, and jobs are taken over; nodes that left stay in it while jobs run on them,
// blocked.
//
// Where Slurm does not answer, a step does nothing and everything is kept. FOLDER holds
//
//   lock             one scheduler for one folder
//   state.json       what Slurm does not know about jobs; replaced whole
//   decisions.jsonl  slurm/decision_log.h; decisions.jsonl.1 is what came before
//   heartbeat        changes with every step and action; slurm/dead_man.h watches it
//   status.json      one picture for `jige cluster top`
//   rates/JOB        speed of each job as a share of its ideal one, where `emulate` is set
//
// Clocks: cluster time follows the monotonic clock, so that a wall clock that jumps moves nothing;
// across a restart the time that passed is taken from the wall clock, between nothing and a week.
//
// Threads: one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "slurm/backend.h"
#include "slurm/decision_log.h"
#include "slurm/job_notes.h"
#include "slurm/live_cluster.h"
#include "slurm/reconcile.h"

namespace jige::slurm {

struct SchedulerOptions {
  std::string folder;
  LiveOptions live;
  NetworkAssumption network;  // of layouts that are made later
  ReconcileOptions reconcile;
  NoteOptions notes;
  bool dry_run = false;  // decides once, changes nothing, writes nothing
  bool emulate = false;
  double status_s = 0.5;
  int64_t log_bytes_max = int64_t{64} << 20;  // of decisions.jsonl (base/log_file.h)
};

// Makes contention and policy anew; called again for each new LiveCluster (when one is full, when
// nodes came or went), for what a policy remembers is about that one's numbers of jobs.
struct SchedulerParts {
  std::function<std::unique_ptr<cluster::Contention>(const Layout&)> contention;
  std::function<std::unique_ptr<cluster::Policy>()> policy;
};

struct SchedulerCounts {
  int64_t steps = 0, blind_steps = 0;  // those without an answer of Slurm
  int64_t decisions = 0, places = 0, preemptions = 0, failures = 0;
  double start_s_sum = 0, start_s_max = 0;  // from the release until the job was seen to run
  int64_t starts = 0;
};

class Scheduler {
 public:
  // Fails with kUnavailable where another scheduler has the folder, and with what state.json says.
  // REQUIRES: backend and clock outlive it.
  static Result<std::unique_ptr<Scheduler>> create(Backend& backend, const Clock& clock,
                                                   Layout layout, SchedulerOptions options,
                                                   SchedulerParts parts);
  ~Scheduler();

  // Fails only where going on would do harm: another scheduler has taken over.
  Status step();

  const SchedulerCounts& counts() const { return counts_; }
  const LiveCluster& live() const { return *live_; }
  Moment now() const;
  // Higher than that of every scheduler before: the second in which it was made, also where the
  // state of those before is lost.
  int64_t epoch() const { return epoch_; }
  // Jobs that ended since the last call.
  std::vector<LiveOutcome> take_outcomes() { return std::exchange(outcomes_, {}); }
  // Of a dry run: what would be done.
  const std::vector<Action>& last_actions() const { return actions_; }
  // Says in the heartbeat that the scheduler has ended in order: no timer needs to act.
  void end_in_order();

 private:
  Scheduler(Backend& backend, const Clock& clock, SchedulerOptions options, SchedulerParts parts,
            DecisionLog log);
  Status load(Layout layout);
  void make_live(Layout layout);
  Status save();
  void act(const Moment& now);
  void write_notes(const Snapshot& snapshot);
  Status check_epoch(const Snapshot& snapshot) const;
  void follow_nodes(const Snapshot& snapshot);
  void rebuild(Layout layout, const std::string& why);
  void log_events(const Moment& now);
  void write_status(const Moment& now);
  void write_rates();
  void beat(std::string_view word);
  std::string path(const char* name) const { return options_.folder + "/" + name; }

  Backend& backend_;
  const Clock& clock_;
  SchedulerOptions options_;
  SchedulerParts parts_;
  DecisionLog log_;
  JobNotes notes_;
  std::unique_ptr<cluster::Policy> policy_;
  std::unique_ptr<LiveCluster> live_;
  int lock_fd_ = -1;
  int64_t epoch_ = 1, beats_ = 0;
  int64_t base_cluster_ns_ = 0, base_wall_ns_ = 0;
  int64_t saved_wall_ns_ = -1, status_wall_ns_ = -1;
  std::vector<Action> actions_;
  std::vector<LiveOutcome> outcomes_;
  std::map<int64_t, std::string> rates_;  // as written
  SchedulerCounts counts_;
  bool blind_ = false;
  bool notes_fault_ = false;               // once one could not be written
  std::string layout_fault_, save_fault_;  // as logged; empty: none
};

// The file's last change, by the wall clock of its file system, is later than `since_wall_ns` of
// the monotonic clock.
bool marker_changed_since(const std::string& path, int64_t since_wall_ns);

}  // namespace jige::slurm
