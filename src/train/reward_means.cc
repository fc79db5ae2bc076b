#include "train/reward_means.h"

#include <cmath>

#include "base/check.h"

namespace jige::train {

RewardMeans reward_means(std::span<const ScoredAnswer> answers) {
  JIGE_CHECK(!answers.empty(), "the mean of no answer");
  const auto count = static_cast<double>(answers.size());
  RewardMeans means{.answer_count = std::ssize(answers)};
  for (const ScoredAnswer& answer : answers) {
    means.reward += answer.reward;
    means.full_share += answer.reward >= 1 ? 1 : 0;
    means.length += static_cast<double>(answer.token_count);
    means.cut_share += answer.cut ? 1 : 0;
  }
  for (double* sum : {&means.reward, &means.full_share, &means.length, &means.cut_share}) {
    *sum /= count;
  }
  double squares = 0;
  for (const ScoredAnswer& answer : answers) {
    squares += (answer.reward - means.reward) * (answer.reward - means.reward);
  }
  means.spread = std::sqrt(squares / count);
  return means;
}

}  // namespace jige::train
