#include "train/policy_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace jige::train {
namespace {

// As much of a standard deviation as keeps what is divided by it finite.
constexpr double kDeviationFloor = 1e-4;

}  // namespace

std::string_view advantage_name(AdvantageKind kind) {
  return kind == AdvantageKind::kMean ? "mean" : "std";
}

std::vector<double> group_advantages(AdvantageKind kind, std::span<const double> rewards) {
  const auto differs = [&](double reward) { return reward != rewards.front(); };
  if (std::ranges::none_of(rewards, differs)) return {};
  const auto count = static_cast<double>(rewards.size());
  const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / count;
  double squares = 0;
  for (const double reward : rewards) squares += (reward - mean) * (reward - mean);
  const double deviation = std::sqrt(squares / (count - 1));
  const double divisor = kind == AdvantageKind::kMean ? 1 : deviation + kDeviationFloor;
  std::vector<double> advantages;
  for (const double reward : rewards) advantages.push_back((reward - mean) / divisor);
  return advantages;
}

TokenTerms token_terms(const PolicyLossOptions& options, double advantage,
                       const TokenLogProbs& logprobs) {
  const double ratio = std::exp(logprobs.now - logprobs.drawn);
  TokenTerms terms;
  terms.clipped =
      advantage > 0 ? ratio > 1 + options.clip_high : advantage < 0 && ratio < 1 - options.clip_low;
  const double bound = advantage > 0 ? 1 + options.clip_high : 1 - options.clip_low;
  terms.loss = -(terms.clipped ? bound : ratio) * advantage;
  terms.weight = terms.clipped ? 0 : ratio * advantage;
  if (options.kl == 0) return terms;
  const double apart = logprobs.reference - logprobs.now;
  terms.kl = std::exp(apart) - apart - 1;
  terms.loss += options.kl * terms.kl;
  terms.weight += options.kl * (std::exp(apart) - 1);
  return terms;
}

}  // namespace jige::train
