// Direct Preference Optimization: the loss of a pair of answers to one prompt, of which one is
// preferred, and what a step or a measurement says of many pairs.
//
//   log π(a) = Σ over the answer's tokens; reference: the model that the run starts from
//   margin = β ((log π(c) - log π_ref(c)) - (log π(r) - log π_ref(r)))     c chosen, r rejected
//   loss = -(1 - s) log σ(margin) - s log σ(-margin) - w log π(c) / |c|
//   s: label smoothing (conservative DPO); w: weight of the chosen answer's own loss, the mean over
//   its |c| tokens (RPO).
//
// The gradient at the logits is that of cross-entropy times one weight for each answer's tokens:
//   chosen: g + w / |c|, rejected: -g, with g = β ((1 - s) σ(-margin) - s σ(margin))
// which is known once both log-probabilities are. A step's loss is the mean over its pairs.
// Threads: pure functions and values.
#pragma once

#include <cstdint>

namespace jige::train {

struct DpoOptions {
  double beta = 0.1;           // above 0
  double label_smoothing = 0;  // 0 to below 0.5
  double sft_weight = 0;       // 0 or more
};

// The sums of the log-probabilities of both answers' tokens, in nats.
struct PairLogProbs {
  double chosen = 0;
  double rejected = 0;

  bool operator==(const PairLogProbs&) const = default;
};

struct PairTerms {
  double loss = 0;
  double margin = 0;
  // Of cross-entropy in the gradient of this pair's loss, for every token of the answer.
  double chosen_weight = 0;
  double rejected_weight = 0;
};

// `chosen_tokens` is |c|. What is not finite gives what is not finite. REQUIRES: chosen_tokens
// >= 1.
PairTerms pair_terms(const DpoOptions& options, const PairLogProbs& policy,
                     const PairLogProbs& reference, int64_t chosen_tokens);

// What means are made of: the numbers of one pair.
struct PairRecord {
  double loss = 0;
  double margin = 0;
  PairLogProbs policy;

  bool operator==(const PairRecord&) const = default;
};

// Means over pairs.
struct PreferenceMeans {
  int64_t pair_count = 0;
  double loss = 0;
  double margin = 0;
  double accuracy = 0;  // part of the pairs with a margin above 0
  double chosen_logprob = 0;
  double rejected_logprob = 0;
};

// Adds pairs in the order of the data, which decides the bits of the means.
class PreferenceSums {
 public:
  void add(const PairRecord& pair);
  double loss() const { return sums_.loss; }
  // REQUIRES: a pair was added.
  PreferenceMeans means() const;

 private:
  PreferenceMeans sums_;  // accuracy: how many
};

}  // namespace jige::train
