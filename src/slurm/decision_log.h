// DecisionLog: every decision, what it cost whom, what was thought of instead, and what became of
// it, as JSON lines; docs/formats.md has the fields. `jige cluster explain` reads them.
//
// Scores are those of the contention-aware greedy (cluster/contention_placer.h) whatever the policy
// is, so that two policies' logs can be compared; the policy's own choice is marked.
//
// Threads: one thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log_file.h"
#include "slurm/live_cluster.h"
#include "slurm/reconcile.h"

namespace jige::slurm {

// Why a job that waits does not run now: a word for the kind, a sentence, and what its user is told
// (slurm/job_notes.h), with as few numbers that change as possible.
struct WaitingReason {
  std::string kind, text, brief;
};

class DecisionLog final : public cluster::ChangeObserver {
 public:
  // Writes to a file, or to none.
  explicit DecisionLog(std::optional<LogFile> file) : file_(std::move(file)) {}

  // Before the policy is asked, and behind it. `live` is used in between.
  void begin(LiveCluster& live, const Moment& now, int64_t decision);
  void end();

  void starting(cluster::ClusterState& cluster, cluster::JobId id,
                const cluster::Placement& placement) override;
  void stopping(cluster::ClusterState& cluster, cluster::JobId id) override;

  void event(const LiveEvent& event, const Moment& now);
  void action(const LiveCluster& live, const Action& action, const Status& status, double took_s,
              const Moment& now);
  void note(const std::string& kind, const std::string& text, const Moment& now);

  // Why a job waits, as of the last decision; nothing where it does not.
  const WaitingReason* waiting(int64_t job) const;
  int64_t lines() const { return lines_; }

 private:
  Json head(const char* kind, const Moment& now) const;
  void write(const Json& line);
  void log_waiting(const LiveJob& job);

  std::optional<LogFile> file_;
  int64_t lines_ = 0;
  int64_t lost_ = 0;  // of them, since one could be written
  LiveCluster* live_ = nullptr;
  Moment now_;
  int64_t decision_ = 0;
  struct Evicted {
    cluster::JobId id = 0;
    cluster::Placement placement;
    double left_s = 0, restart_s = 0;
    bool charged = false;
  };
  std::vector<Evicted> evicted_;          // in this decision
  std::map<int64_t, WaitingReason> why_;  // by job
};

WaitingReason why_waiting(LiveCluster& live, const LiveJob& job);

}  // namespace jige::slurm
