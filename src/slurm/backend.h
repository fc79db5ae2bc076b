// Backend: the calls by which a scheduler looks at Slurm and changes it.
//
//   place         release with exactly these nodes; Slurm starts the job within about a second
//   checkpoint    the signal that asks a job to write a checkpoint
//   requeue_held  ends it, and puts it back into the queue, held
//   hold          takes back a release that Slurm has not acted upon
//   release       without nodes: Slurm decides, as if there were no Jige
//   kill          cancels it
//   split         takes a task out of a job array, which makes it a job of its own, held
//   annotate      writes its AdminComment and nothing else; tried once, for it is no great loss
//   topology      which nodes share a switch, in Slurm's words (slurm/layout.h); may be empty
//
// A place that the caller knows to be free is taken; on busy nodes Slurm would let the job wait and
// give them to another. Every call is safe to repeat. Fails with kUnavailable where Slurm does not
// answer and with kCancelled where it is no longer waited for (what happened is then open until the
// next snapshot), else with what Slurm says.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "slurm/admin_comment.h"
#include "slurm/snapshot.h"

namespace jige::slurm {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Result<Snapshot> snapshot() = 0;
  virtual Status place(int64_t job, const std::vector<std::string>& nodes,
                       const std::string& admin_comment) = 0;
  virtual Status checkpoint(int64_t job) = 0;
  virtual Status requeue_held(int64_t job) = 0;
  virtual Status hold(int64_t job) = 0;
  virtual Status release(int64_t job, const std::string& admin_comment) = 0;
  virtual Status kill(int64_t job) = 0;
  virtual Status split(int64_t job, int64_t task) = 0;
  virtual Status annotate(int64_t job, const std::string& admin_comment) = 0;
  virtual Result<std::string> topology() = 0;
};

}  // namespace jige::slurm
