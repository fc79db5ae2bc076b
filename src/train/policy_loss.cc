#include "train/policy_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace jige::train {
namespace {

// As much of a standard deviation as keeps what is divided by it finite.
constexpr double kDeviationFloor = 1e-4;

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// With the divisor n - 1.
double deviation_of(std::span<const double> values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

}  // namespace

std::string_view advantage_name(AdvantageKind kind) {
  switch (kind) {
    case AdvantageKind::kStd:
      return "std";
    case AdvantageKind::kMean:
      return "mean";
    case AdvantageKind::kBatch:
      break;
  }
  return "batch";
}

double length_reward(const OverlongOptions& options, int64_t token_count, int64_t tokens_max) {
  const int64_t over = token_count - (tokens_max - options.margin);
  if (options.penalty == 0 || over <= 0) return 0;
  return -options.penalty * static_cast<double>(over) / static_cast<double>(options.margin);
}

std::vector<double> group_advantages(AdvantageKind kind, std::span<const double> group,
                                     std::span<const double> step) {
  const auto differs = [&](double reward) { return reward != group.front(); };
  if (std::ranges::none_of(group, differs)) return {};
  const double mean = mean_of(group);
  const double divisor =
      kind == AdvantageKind::kMean
          ? 1
          : deviation_of(kind == AdvantageKind::kBatch ? step : group) + kDeviationFloor;
  std::vector<double> advantages;
  for (const double reward : group) advantages.push_back((reward - mean) / divisor);
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
