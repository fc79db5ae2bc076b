#include "cluster/published_reward.h"

#include <algorithm>

namespace jige::cluster {
namespace {

constexpr double kFade = 1 - 2.0 / (10 + 1);  // a span of 10

}  // namespace

RoundSample sample_round(ClusterState& cluster) {
  cluster.refresh();
  RoundSample sample{.at_ns = cluster.now_ns(), .running = std::ssize(cluster.running())};
  for (const JobId id : cluster.running()) {
    const double alone = cluster.progress_alone(id, cluster.at(id).placement);
    sample.loss += std::max(0.0, 1 - cluster.progress(id) / alone);
  }
  if (sample.running > 0) sample.loss /= static_cast<double>(sample.running);
  sample.used = 1 - static_cast<double>(cluster.free().total()) / cluster.spec().gpu_count();
  return sample;
}

std::vector<double> published_rewards(std::span<const RoundSample> rounds, double loss_weight) {
  std::vector<double> rewards;
  double sum = 0, weights = 0;
  for (const RoundSample& round : rounds) {
    sum = sum * kFade + round.used;
    weights = weights * kFade + 1;
    const double reward = -loss_weight * round.loss + (1 - loss_weight) * sum / weights;
    rewards.push_back(round.running > 0 ? reward : 0);
  }
  return rewards;
}

}  // namespace jige::cluster
