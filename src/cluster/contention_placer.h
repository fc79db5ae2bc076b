// The contention-aware greedy: places a job where it runs fast and slows others least, lets it wait
// where that is not worth it, and moves jobs that stand badly.
//
//   score(P) = progress of the job at P - what others lose of theirs - span_cost * (nodes of P
//              beyond the fewest)
//
// Progress is speed as a share of the ideal one. The best candidate is taken when its score reaches
// the threshold, which falls to nothing while the job waits, so that none starves. A running job
// moves when
//
//   (gain in everybody's progress) * horizon > 2 * (progress lost in the restart)
//
// and it was so in the round before as well. The horizon is what is left of the job, or, where
// lengths are not known, the time it has run. Threads: one thread.
#pragma once

#include <memory>

#include "cluster/length_estimates.h"
#include "cluster/placer.h"

namespace jige::cluster {

struct ContentionPlacerOptions {
  double threshold = 0.7;
  double patience = 3;                       // the threshold is gone after patience * length ...
  int64_t patience_min_ns = 3600 * kSecond;  // ... and not before this
  double span_cost = 0.02;
  int64_t candidates_max = 16;
  int64_t moves_max = 4;  // a round; 0: nobody moves
  bool knows_lengths = true;
  LengthEstimates lengths = {};
};

struct PlacementScore {
  double progress = 0;     // of the job
  double loss = 0;         // of all others together
  int32_t slowed = 0;      // how many they are
  double extra_nodes = 0;  // beyond the fewest
  double score = 0;
};
// The best few of candidate_placements() by a cheap estimate, for which alone the whole forecast is
// worth its time, the best first. REQUIRES: the job waits and fits.
struct PromisingPlacements {
  std::vector<Placement> placements;
  double best_estimate = 0;  // of a score

  // The highest threshold that a forecast might still reach.
  double reach() const { return best_estimate + 0.1; }
  bool hopeless(double threshold) const { return reach() < threshold; }
};
PromisingPlacements promising_placements(ClusterState& cluster, JobId id,
                                         const ContentionPlacerOptions& options);

// REQUIRES: the job waits, the GPUs are free.
PlacementScore score_placement(ClusterState& cluster, JobId id, const Placement& placement,
                               const ContentionPlacerOptions& options);
// What a score must reach now.
double waiting_threshold(const ClusterState& cluster, JobId id,
                         const ContentionPlacerOptions& options);

// Jobs that were turned down for a score below their threshold. Until somebody leaves places only
// become worse, so nobody is looked at again before that or before the threshold has fallen.
class TurnedDown {
 public:
  bool still(const ClusterState& cluster, JobId id, double least) const;
  // `score` is the best, or one that none can pass.
  void note(const ClusterState& cluster, JobId id, double score);

 private:
  struct Seen {
    int64_t departures = -1;
    double score = 0;
  };
  std::vector<Seen> jobs_;
};

std::unique_ptr<Placer> make_contention_placer(const ContentionPlacerOptions& options);

}  // namespace jige::cluster
