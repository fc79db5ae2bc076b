// Contention: how fast jobs run beside one another. Three back-ends with one interface:
//
//   make_link_contention    max-min fair rates on the links of a cluster (cluster/fair_share.h)
//   make_table_contention   measured pairs (cluster/slowdown_table.h)
//   make_no_contention      every job as if alone where it stands
//
// Invariants: rates are iterations a nanosecond and above zero; they change only in settle().
// Threads: one thread.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cluster/cluster_spec.h"
#include "cluster/job.h"
#include "cluster/slowdown_table.h"
#include "cluster/traffic.h"

namespace jige::cluster {

class Contention {
 public:
  virtual ~Contention() = default;

  // REQUIRES: start and stop in turns for one job; a job with its id stays the same.
  virtual void start(JobId id, const Job& job, const Placement& placement) = 0;
  virtual void stop(JobId id) = 0;
  // Brings rates up to date. The jobs whose rate may have changed; valid until the next call.
  virtual std::span<const JobId> settle() = 0;
  // REQUIRES: settled, the job runs.
  virtual double rate(JobId id) const = 0;

  // What the rate would be if nobody else ran.
  virtual double rate_alone(JobId id, const Job& job, const Placement& placement) const = 0;

  // Rates if the job came: its own, and those of others that may change. REQUIRES: settled.
  struct Forecast {
    double rate = 0;
    std::vector<std::pair<JobId, double>> others;
  };
  virtual Forecast forecast(JobId id, const Job& job, const Placement& placement) = 0;

  // The same, where that takes long from the links of the job alone: what others have elsewhere is
  // taken to stay.
  virtual Forecast estimate(JobId id, const Job& job, const Placement& placement) {
    return forecast(id, job, placement);
  }

  // What a running job puts on links in an iteration; empty without links.
  virtual std::span<const LinkLoad> loads(JobId) const { return {}; }
};

// What max-min makes equal between jobs that are held back.
enum class Fairness : uint8_t {
  kIterations,  // iterations a second
  kBytes,       // bytes a second on the job's busiest link, as flows of one transport would
  kProgress,    // the share of what each would do alone
};

// When jobs communicate in their iterations.
enum class Phases : uint8_t {
  kSpread,   // communication of different jobs falls into one another's pauses: the least slowdown
  kCollide,  // it always falls together: bandwidth while communicating is shared by all
};

struct LinkModel {
  Fairness fairness = Fairness::kBytes;
  Phases phases = Phases::kCollide;
};

std::unique_ptr<Contention> make_link_contention(const ClusterSpec& spec, const LinkModel& model);
// `models` are the names that Job::model stands for.
std::unique_ptr<Contention> make_table_contention(const ClusterSpec& spec, SlowdownTable table,
                                                  std::vector<std::string> models);
std::unique_ptr<Contention> make_no_contention(const ClusterSpec& spec);

}  // namespace jige::cluster
