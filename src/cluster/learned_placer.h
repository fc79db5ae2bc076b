// LearnedPlacer: a PolicyNetwork that chooses among the greedy's candidates for a job and waiting.
//
// Features of a candidate say what the job would do there, what others would lose, how it spreads,
// and how long the job has waited and has left; the prior is the greedy's own score, and its
// threshold for waiting, so that an untrained network nearly follows the greedy. A job that must
// start has no waiting among its candidates.
//
// Guard: when more than `idle_share` of the GPUs were free at `idle_rounds` rounds in a row while
// jobs waited, the greedy decides until that is over. Running jobs move as with the greedy.
// Threads: one thread.
#pragma once

#include <memory>
#include <vector>

#include "base/rng.h"
#include "cluster/contention_placer.h"
#include "cluster/policy_network.h"
#include "cluster/ppo.h"
#include "cluster/published_reward.h"

namespace jige::cluster {

inline constexpr int32_t kPolicyFeatures = 12;

struct LearnedOptions {
  ContentionPlacerOptions greedy;
  double prior_scale = 16;  // a power of two: scores that differ stay different
  double idle_share = 0.5;
  int idle_rounds = 12;
};

// Choices that were drawn, with the time of each, for training, and the cluster at each round.
struct Episode {
  std::vector<PpoStep> steps;
  std::vector<int64_t> times_ns;
  std::vector<RoundSample> rounds;
};

class LearnedPlacer final : public Placer {
 public:
  // Without an episode the likeliest candidate is taken, else one is drawn and recorded.
  LearnedPlacer(std::shared_ptr<const PolicyNetwork> network, const LearnedOptions& options,
                Episode* episode = nullptr, uint64_t seed = 1);

  std::optional<Placement> place(ClusterState& cluster, JobId id, bool must) override;
  void improve(ClusterState& cluster) override;

  // Who decided.
  struct Decided {
    int64_t network = 0, waiting = 0, guard = 0;
  };
  const Decided& decided() const { return decided_; }

 private:
  size_t choose(const ClusterState& cluster, Choice choice);

  std::shared_ptr<const PolicyNetwork> network_;
  LearnedOptions options_;
  std::unique_ptr<Placer> greedy_;
  Episode* episode_;
  Rng rng_;
  TurnedDown turned_down_;
  std::vector<int64_t> waited_at_;  // by job: the version at which it was told to wait
  int idle_rounds_ = 0;
  Decided decided_;
};

}  // namespace jige::cluster
