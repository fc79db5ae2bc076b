// SlurmCommands: the backend that runs squeue, sinfo, scontrol and scancel.
//
// Jobs come from `squeue --json`, nodes from `sinfo --json` where that lists them (22.05); from
// 23.02 on it lists groups of them, and `scontrol --json show nodes` says what each one is.
//
// A task of a job array is called by the array's number and its own: by a number alone Slurm would
// change all tasks.
//
// A job that would take more nodes than it must (-N1-4) gets exactly those that it is placed on.
//
// Each call has a time limit, and is tried again, after a pause that doubles, where Slurm did not
// answer: the controller restarts, a socket times out, the program hangs. What Slurm refuses is not
// tried again. Threads: one thread.
#pragma once

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "slurm/backend.h"

namespace jige::slurm {

struct CommandOptions {
  double limit_s = 10;
  int tries = 3;
  double pause_s = 0.2;         // before the second try
  std::string signal = "USR1";  // asks for a checkpoint
  std::string partition;        // whose state is asked for; empty: none's
  std::string squeue = "squeue", sinfo = "sinfo", scontrol = "scontrol", scancel = "scancel";
  const std::atomic<bool>* cancel = nullptr;
};

class SlurmCommands final : public Backend {
 public:
  explicit SlurmCommands(CommandOptions options) : options_(std::move(options)) {}

  Result<Snapshot> snapshot() override;
  Status place(int64_t job, const std::vector<std::string>& nodes,
               const std::string& admin_comment) override;
  Status checkpoint(int64_t job) override;
  Status requeue_held(int64_t job) override;
  Status hold(int64_t job) override;
  Status release(int64_t job, const std::string& admin_comment) override;
  Status kill(int64_t job) override;
  Status split(int64_t job, int64_t task) override;
  Status annotate(int64_t job, const std::string& admin_comment) override;

  // `scontrol show topology`; empty without one.
  Result<std::string> topology() override;

  int64_t retries() const { return retries_; }

 private:
  Result<std::string> call(const std::vector<std::string>& words);
  Result<std::string> call(const std::vector<std::string>& words, int tries);
  Result<std::vector<SeenNode>> nodes();
  Result<std::string> closed();
  // As commands take it.
  std::string name_of(int64_t job) const;

  CommandOptions options_;
  int64_t retries_ = 0;
  // Of the last snapshot.
  std::map<int64_t, ArrayPart> arrays_;  // by job
  std::set<int64_t> ranges_;             // jobs that would take more nodes than they must
  std::set<int64_t> delayed_;            // that may not begin yet
  bool sinfo_groups_ = false;            // its list is none of nodes
};

// Whether the words of a Slurm command mean that it did not reach the controller.
bool means_unavailable(std::string_view text);

}  // namespace jige::slurm
