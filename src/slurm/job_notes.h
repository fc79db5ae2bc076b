// JobNotes: which jobs' notes are to be changed now. A note says in a job's AdminComment why the
// job waits, so that its user sees it with Slurm's own tools (slurm/admin_comment.h).
//
// Slurm's controller is to be spared, and people read slowly. So a reason has to last for settle_s
// before it is written, which most jobs do not live to see; the same reason with other numbers is
// written again after repeat_s, unless it went with a placement; no job is written to twice within
// pause_s, nor more than step_max jobs at one time, nor any within spacing_s of the last; those
// first that have waited longest for theirs. A note is taken away where a job has one and should
// not; a placement replaces it.
//
// It calls nothing, and a scheduler that starts anew goes on from the notes that it finds.
// Invariant: an AdminComment that somebody else wrote is kept, and so is a job that an
// administrator holds: what says "jige" is released by the dead-man timer.
// What is left of a job array is one job here; a task that is taken out of it leaves the note.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "slurm/decision_log.h"
#include "slurm/live_cluster.h"

namespace jige::slurm {

struct NoteOptions {
  bool on = true;
  int32_t step_max = 4;
  double spacing_s = 1;
  double settle_s = 2, pause_s = 15, repeat_s = 60;
};

struct JobNote {
  int64_t job = 0;
  std::string admin_comment;  // to be written
};

class JobNotes {
 public:
  explicit JobNotes(NoteOptions options) : options_(options) {}

  // REQUIRES: `live` has absorbed the snapshot; `log` has heard of its last decision.
  std::vector<JobNote> plan(const Snapshot& snapshot, const LiveCluster& live,
                            const DecisionLog& log, int64_t now_ns);
  // What became of a change: where Slurm does not answer, or refuses one after the other, nothing
  // is written for repeat_s. Whether to go on with the rest of the plan.
  bool wrote(const Status& status, int64_t now_ns);

 private:
  struct Known {
    int32_t restarts = 0;
    std::string kind;  // of the reason as it is
    int64_t since_ns = 0;
    std::string told_kind;
    int64_t told_ns = -1;
    bool listed = false;  // in this snapshot
  };

  bool is_due(const Known& known, bool has_note, int64_t now_ns) const;

  NoteOptions options_;
  std::map<int64_t, Known> known_;
  int64_t not_before_ns_ = 0;
  int32_t refusals_ = 0;  // in a row
};

}  // namespace jige::slurm
