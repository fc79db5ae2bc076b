#include "train/preference.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace jige::train {
namespace {

// -log σ(x), without overflow at either end.
double negative_log_sigmoid(double x) {
  return std::max(-x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

}  // namespace

PairTerms pair_terms(const DpoOptions& options, const PairLogProbs& policy,
                     const PairLogProbs& reference, int64_t chosen_tokens) {
  JIGE_CHECK(chosen_tokens >= 1, "a chosen answer of {} tokens", chosen_tokens);
  const double smoothing = options.label_smoothing;
  const double sft = options.sft_weight / static_cast<double>(chosen_tokens);
  PairTerms terms;
  terms.margin =
      options.beta * ((policy.chosen - reference.chosen) - (policy.rejected - reference.rejected));
  // std::max would hide a NaN.
  const double margin = terms.margin;
  terms.loss = std::isnan(margin)
                   ? margin
                   : (1 - smoothing) * negative_log_sigmoid(margin) +
                         smoothing * negative_log_sigmoid(-margin) - sft * policy.chosen;
  const double pull =
      options.beta * ((1 - smoothing) * sigmoid(-margin) - smoothing * sigmoid(margin));
  terms.chosen_weight = pull + sft;
  terms.rejected_weight = -pull;
  return terms;
}

void PreferenceSums::add(const PairRecord& pair) {
  ++sums_.pair_count;
  sums_.loss += pair.loss;
  sums_.margin += pair.margin;
  sums_.accuracy += pair.margin > 0 ? 1 : 0;
  sums_.chosen_logprob += pair.policy.chosen;
  sums_.rejected_logprob += pair.policy.rejected;
}

PreferenceMeans PreferenceSums::means() const {
  JIGE_CHECK(sums_.pair_count >= 1, "the mean of no pair");
  const auto count = static_cast<double>(sums_.pair_count);
  return {.pair_count = sums_.pair_count,
          .loss = sums_.loss / count,
          .margin = sums_.margin / count,
          .accuracy = sums_.accuracy / count,
          .chosen_logprob = sums_.chosen_logprob / count,
          .rejected_logprob = sums_.rejected_logprob / count};
}

}  // namespace jige::train
