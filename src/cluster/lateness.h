// Lateness: which jobs an ageing policy lets pass others, so that the longest waits become shorter.
//
//   quick   among the jobs with little service, `quick` of all: they hold nobody up
//   late    can no longer be done, at the speed that contention leaves, within the deadline
//   giant   among the few with the most service, `giants` of all: never late, since everybody else
//           would wait for them
//
//   deadline = length that all but `giants` of the jobs have
//            + backlog * (service left of those here that are no giants) / (half of the GPUs),
//
// with lengths as they are estimated, about the time in which all would be through if they went by
// arrival: it grows with load by itself. Service is length alone * GPUs; to rank jobs, a node of
// several counts as kGpusOfANode more, for cards are what jobs contend for. Shares are of the last
// kSeenMax jobs that came, and there must be kSeenMin. Whoever was late once stays so. Threads: one
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "cluster/cluster_state.h"
#include "cluster/length_estimates.h"

namespace jige::cluster {

struct LatenessOptions {
  double quick = 0.8;
  double giants = 0.009;
  double backlog = 0.8;
  LengthEstimates lengths = {};
};

class Lateness {
 public:
  static constexpr size_t kSeenMin = 30, kSeenMax = 1000;

  explicit Lateness(const LatenessOptions& options) : options_(options) {}

  // A job has come, for the first time or again. Jobs that were not said to come are taken in when
  // they are asked about.
  void came(const ClusterState& cluster, JobId id);
  // Sets the deadline anew, from those that wait and those that run.
  void look(const ClusterState& cluster, std::span<const JobId> waiting);

  bool quick(const ClusterState& cluster, JobId id);
  bool late(const ClusterState& cluster, JobId id);
  // When it would end, by which its deadline is missed, in words. REQUIRES: it is late.
  std::string late_text(const ClusterState& cluster, JobId id) const;
  // 0 while too few jobs have come.
  double deadline_ns() const { return deadline_ns_; }

 private:
  // The last values, in the order in which they came and sorted.
  struct Window {
    std::deque<double> last;
    std::vector<double> sorted;
    void add(double value);
    double quantile(double share) const;
  };
  struct Known {
    bool seen = false, late = false;
    double service = 0;
  };

  Known& known(const ClusterState& cluster, JobId id);
  bool giant(const Known& job) const;
  double end_ns(const ClusterState& cluster, JobId id) const;

  LatenessOptions options_;
  Window services_, lengths_;
  std::vector<Known> known_;  // by job
  double deadline_ns_ = 0;
};

}  // namespace jige::cluster
