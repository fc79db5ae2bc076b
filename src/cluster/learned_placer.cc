#include "cluster/learned_placer.h"

#include <algorithm>
#include <cmath>

namespace jige::cluster {
namespace {

double hours(double ns) { return ns / kSecond / 3600; }

// What all candidates of a choice have in common.
std::vector<double> common_features(const ClusterState& cluster, JobId id,
                                    const LengthEstimates& lengths) {
  const auto gpus = static_cast<double>(cluster.spec().gpu_count());
  const auto waited_ns = static_cast<double>(cluster.now_ns() - cluster.at(id).waiting_since_ns);
  return {static_cast<double>(cluster.job(id).gpus) / gpus,
          std::log1p(hours(waited_ns)) / 3,
          std::log1p(hours(lengths.remaining_ns(cluster, id))) / 3,
          static_cast<double>(cluster.free().total()) / gpus,
          std::log1p(static_cast<double>(cluster.waiting_count())) / 5,
          std::log1p(static_cast<double>(cluster.running().size())) / 5};
}

void add_candidate(Choice& choice, const std::vector<double>& own,
                   const std::vector<double>& common, double prior) {
  choice.features.insert(choice.features.end(), own.begin(), own.end());
  choice.features.insert(choice.features.end(), common.begin(), common.end());
  choice.priors.push_back(prior);
}

double leaf_count(const Placement& placement, const ClusterSpec& spec) {
  double leaves = 0;
  int32_t before = -1;
  for (const NodeShare& share : placement) {
    leaves += spec.leaf_of(share.node) != before;
    before = spec.leaf_of(share.node);
  }
  return leaves;
}

}  // namespace

LearnedPlacer::LearnedPlacer(std::shared_ptr<const PolicyNetwork> network,
                             const LearnedOptions& options, Episode* episode, uint64_t seed)
    : network_(std::move(network)),
      options_(options),
      greedy_(make_contention_placer(options.greedy)),
      episode_(episode),
      rng_(derive_key(seed, "learned placer")) {}

std::optional<Placement> LearnedPlacer::place(ClusterState& cluster, JobId id, bool must) {
  if (idle_rounds_ >= options_.idle_rounds) {
    ++decided_.guard;
    return greedy_->place(cluster, id, must);
  }
  const auto i = static_cast<size_t>(id);
  if (waited_at_.size() <= i) waited_at_.resize(i + 1, -1);
  // Asked again before anything changed, a drawn answer would not be the policy's.
  if (!must && episode_ && waited_at_[i] == cluster.version()) return std::nullopt;
  const double threshold = waiting_threshold(cluster, id, options_.greedy);
  if (!must && turned_down_.still(cluster, id, threshold)) return std::nullopt;
  PromisingPlacements promising = promising_placements(cluster, id, options_.greedy);
  if (!must && promising.hopeless(threshold)) {
    turned_down_.note(cluster, id, promising.reach());
    return std::nullopt;
  }
  std::vector<Placement>& candidates = promising.placements;
  if (candidates.size() == 1 && (must || candidates[0].size() == 1)) return candidates[0];
  const std::vector<double> common = common_features(cluster, id, options_.greedy.lengths);
  Choice choice;
  double best = -1e300;
  for (const Placement& placement : candidates) {
    const PlacementScore score = score_placement(cluster, id, placement, options_.greedy);
    best = std::max(best, score.score);
    add_candidate(choice,
                  {1, 0, score.progress, score.loss, score.extra_nodes / 4,
                   leaf_count(placement, cluster.spec()) / 4 + score.slowed / 16.0},
                  common, options_.prior_scale * score.score);
  }
  if (!must) {
    add_candidate(choice, {1, 1, threshold, 0, 0, 0}, common, options_.prior_scale * threshold);
  }
  const size_t chosen = choose(cluster, std::move(choice));
  if (chosen < candidates.size()) {
    ++decided_.network;
    return std::move(candidates[chosen]);
  }
  ++decided_.waiting;
  waited_at_[i] = cluster.version();
  turned_down_.note(cluster, id, best);
  return std::nullopt;
}

size_t LearnedPlacer::choose(const ClusterState& cluster, Choice choice) {
  if (!episode_) {
    // Of probabilities two that are nearly equal may be the same number.
    const std::vector<double> logits = network_->logits(choice);
    return static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
  }
  const std::vector<double> shares = network_->probabilities(choice);
  double left = rng_.uniform();
  size_t chosen = 0;
  while (chosen + 1 < shares.size() && (left -= shares[chosen]) >= 0) ++chosen;
  const double value = network_->value(choice);
  episode_->steps.push_back({.choice = std::move(choice),
                             .chosen = chosen,
                             .probability = shares[chosen],
                             .value = value});
  episode_->times_ns.push_back(cluster.now_ns());
  return chosen;
}

void LearnedPlacer::improve(ClusterState& cluster) {
  const double idle = static_cast<double>(cluster.free().total()) / cluster.spec().gpu_count();
  idle_rounds_ = idle > options_.idle_share && cluster.waiting_count() > 0 ? idle_rounds_ + 1 : 0;
  if (episode_) episode_->rounds.push_back(sample_round(cluster));
  greedy_->improve(cluster);
}

}  // namespace jige::cluster
