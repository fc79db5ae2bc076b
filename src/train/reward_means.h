// What a step or a measurement says of answers and their rewards.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace jige::train {

// One answer, as far as means are about it.
struct ScoredAnswer {
  double reward = 0;
  int64_t token_count = 0;
  bool cut = false;  // ended by its length
};

// Over all answers.
struct RewardMeans {
  int64_t answer_count = 0;
  double reward = 0;
  double spread = 0;      // standard deviation, with the divisor n
  double full_share = 0;  // with a reward of 1 or more
  double length = 0;      // tokens, the one that ends an answer among them
  double cut_share = 0;   // ended by their length

  bool operator==(const RewardMeans&) const = default;
};
// REQUIRES: an answer.
RewardMeans reward_means(std::span<const ScoredAnswer> answers);

// Of a step, besides.
struct RewardStep {
  RewardMeans means;
  int64_t group_count = 0;
  // Of groups that teach nothing: rewards are all the same, or no answer may be learned from.
  double silent_share = 0;
  std::optional<double> length_reward;  // what lengths add to rewards, mean; where they do
  double loss = 0;           // of a token, mean over updates, as what follows
  double clipped_share = 0;  // of tokens
  std::optional<double> kl;  // where a reference is kept
  // Between the log-probabilities of tokens as they were drawn and as they were learned, before the
  // first update; not there where nothing was learned.
  std::optional<double> logprob_gap;
  double draw_seconds = 0, score_seconds = 0, learn_seconds = 0;
};

}  // namespace jige::train
