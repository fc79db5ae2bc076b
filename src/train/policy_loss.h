// Learning from rewards: what a group of answers to one prompt is worth, each beside the others,
// what long ones lose, and the loss of their tokens.
//
// Of a group with rewards r, the advantage of answer i (GRPO, Shao et al. 2024, arXiv 2402.03300):
//   A_i = (r_i - mean r) / (s + 1e-4)     s: standard deviation with the divisor G - 1
//   A_i = r_i - mean r                    AdvantageKind::kMean (arXiv 2503.20783)
//   A_i = (r_i - mean r) / (S + 1e-4)     AdvantageKind::kBatch (arXiv 2508.08221), S: as s, of all
//                                         answers of the step
// Before, of an answer with n tokens of at most N, of which the last L are its margin (arXiv
// 2503.14476):
//   r_i += -penalty max(0, n - (N - L)) / L
// Of a token with the log-probabilities p now, p_old when it was drawn, and p_ref by the first
// weights:
//   ρ = exp(p - p_old)
//   loss = -min(ρ A, clip(ρ, 1 - clip_low, 1 + clip_high) A) + β (exp(p_ref - p) - (p_ref - p) - 1)
// A step's loss is the mean over all tokens of the answers it learns from (arXiv 2503.14476). The
// gradient at the logits is that of cross-entropy times a weight for each token:
//   w = ρ A where the first term is the lesser or both are the same, else 0;
//       + β (exp(p_ref - p) - 1)
// Threads: pure functions and values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace jige::train {

enum class AdvantageKind { kStd, kMean, kBatch };
std::string_view advantage_name(AdvantageKind kind);

// What becomes of answers that are long.
struct OverlongOptions {
  bool masks = false;  // those cut by their length count beside others, and are not learned from
  double penalty = 0;  // that the longest lose of their reward; 0: none
  int64_t margin = 0;  // tokens in which they come to lose it, with a penalty at least 1

  bool operator==(const OverlongOptions&) const = default;
};
// What an answer with so many tokens of at most `tokens_max` has added to its reward: 0 or less.
double length_reward(const OverlongOptions& options, int64_t token_count, int64_t tokens_max);

struct PolicyLossOptions {
  AdvantageKind advantage = AdvantageKind::kStd;
  double clip_low = 0.2;    // above 0 to 1
  double clip_high = 0.28;  // above 0
  double kl = 0;            // β; 0: no reference is needed
};

// Empty where all rewards of the group are the same: it teaches nothing. `step`: those of all
// answers of the step, read with kBatch.
std::vector<double> group_advantages(AdvantageKind kind, std::span<const double> group,
                                     std::span<const double> step);

struct TokenLogProbs {
  double now = 0;
  double drawn = 0;
  double reference = 0;  // read where kl is above 0
};

struct TokenTerms {
  double loss = 0;
  double weight = 0;  // of cross-entropy in the gradient of this token's loss
  bool clipped = false;
  double kl = 0;  // before β
};

// What is not finite gives what is not finite.
TokenTerms token_terms(const PolicyLossOptions& options, double advantage,
                       const TokenLogProbs& logprobs);

}  // namespace jige::train
