#include "ops/token_score.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/cpu.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/logits.h"
#include "ops/sampling_filter.h"

namespace jige::ops {
namespace {

// log Σ exp(x - largest): the loss of the token whose logit is the largest.
float log_of_sum(std::span<const float> logits, int32_t largest_index) {
  float loss = 0;
  cpu::CrossEntropyArgs args = {};
  args.loss = &loss;
  args.logits = logits.data();
  args.targets = &largest_index;
  args.vocabulary = static_cast<int64_t>(logits.size());
  cpu::cross_entropy_kernels(active_isa()).rows(args, 0, 1);
  return loss;
}

}  // namespace

TokenScore score_token(std::span<const float> logits, int32_t token, int top_count) {
  JIGE_CHECK(token >= 0 && static_cast<size_t>(token) < logits.size(), "token {} of {} logits",
             token, logits.size());
  const cpu::LogitsKernels& kernels = cpu::logits_kernels(active_isa());
  const auto count = static_cast<int64_t>(logits.size());
  const float largest = kernels.max(logits.data(), count);
  const float log_sum = log_of_sum(logits, kernels.first_index(logits.data(), count, largest));
  const auto logprob = [&](float logit) { return -((largest - logit) + log_sum); };
  const float own = logits[static_cast<size_t>(token)];
  TokenScore score{.logprob = logprob(own)};
  if (!std::isfinite(score.logprob)) return score;
  score.rank = static_cast<int32_t>(
      1 + std::ranges::count_if(logits, [own](float other) { return other > own; }));
  for (const Candidate& candidate : heaviest(logits, top_count)) {
    if (!std::isfinite(candidate.weight)) break;  // -inf: it and what follows cannot be
    score.top.push_back({candidate.token, logprob(candidate.weight)});
  }
  return score;
}

}  // namespace jige::ops
