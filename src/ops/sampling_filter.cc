#include "ops/sampling_filter.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace jige::ops {
namespace {

bool heavier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

// Cuts candidates, of any order, to the shortest run of the heaviest whose sum reaches `wanted`,
// and leaves them heaviest first. Sorts by pieces that grow, so little more than the run is sorted.
void keep_mass(std::vector<Candidate>& candidates, double wanted) {
  double mass = 0;
  size_t sorted = 0;
  for (size_t piece = 256; sorted < candidates.size(); piece *= 4) {
    const size_t end = std::min(sorted + piece, candidates.size());
    const auto first = candidates.begin() + static_cast<ptrdiff_t>(sorted);
    const auto last = candidates.begin() + static_cast<ptrdiff_t>(end);
    if (last != candidates.end()) std::nth_element(first, last, candidates.end(), heavier);
    std::sort(first, last, heavier);
    for (; sorted < end; ++sorted) {
      mass += static_cast<double>(candidates[sorted].weight);
      if (mass >= wanted) {
        candidates.resize(sorted + 1);
        return;
      }
    }
  }
}

std::vector<Candidate> at_least(std::span<const float> weights, float smallest) {
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] >= smallest && weights[i] > 0) {
      candidates.push_back({weights[i], static_cast<int32_t>(i)});
    }
  }
  return candidates;
}

float penalised(double logit, const SamplingParams& params, int32_t generated_count) {
  logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  if (generated_count > 0) {
    logit -= params.presence_penalty + generated_count * params.frequency_penalty;
  }
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(logit, -kLargest, kLargest));
}

}  // namespace

std::vector<Candidate> heaviest(std::span<const float> weights, int64_t count) {
  const size_t kept = std::min(static_cast<size_t>(std::max<int64_t>(count, 0)), weights.size());
  std::vector<Candidate> candidates;
  if (kept == 0) return candidates;
  // Collects up to twice what is kept, then halves it and raises the bar: linear, whatever the
  // order. A later token of equal weight loses, so the bar is strict.
  const size_t room = std::max<size_t>(2 * kept, 64);
  candidates.reserve(std::min(room, weights.size()));
  float bar = -std::numeric_limits<float>::infinity();
  bool full = false;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (full && !(weights[i] > bar)) continue;
    candidates.push_back({weights[i], static_cast<int32_t>(i)});
    if (candidates.size() < room) continue;
    const auto last_kept = candidates.begin() + static_cast<ptrdiff_t>(kept - 1);
    std::nth_element(candidates.begin(), last_kept, candidates.end(), heavier);
    bar = last_kept->weight;
    full = true;
    candidates.resize(kept);
  }
  std::sort(candidates.begin(), candidates.end(), heavier);
  candidates.resize(std::min(kept, candidates.size()));
  return candidates;
}

std::vector<Candidate> filter(std::span<const float> weights, double total,
                              const SamplingParams& params) {
  const bool top_k = params.top_k > 0 && params.top_k < static_cast<int64_t>(weights.size());
  const auto min_weight = static_cast<float>(params.min_p);  // the largest weight is 1
  std::vector<Candidate> candidates;
  if (top_k) {
    candidates = heaviest(weights, params.top_k);
    total = 0;
    for (const Candidate& candidate : candidates) total += static_cast<double>(candidate.weight);
  } else {
    // What is lighter than this adds up to less than half of what top-p drops.
    const double dropped = params.top_p < 1 ? (1 - params.top_p) * total : 0;
    const double light = 0.5 * dropped / static_cast<double>(weights.size());
    candidates = at_least(
        weights, std::max(static_cast<float>(light), params.top_p < 1 ? 0.0f : min_weight));
  }
  if (params.top_p < 1) {
    keep_mass(candidates, params.top_p * total);
  } else if (!top_k) {
    std::sort(candidates.begin(), candidates.end(), heavier);
  }
  const auto end = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) {
    return c.weight < min_weight || c.weight <= 0;
  });
  candidates.erase(end, candidates.end());
  return candidates;
}

void apply_penalties(std::span<float> logits, const SamplingParams& params,
                     std::span<const int32_t> prompt, std::span<const int32_t> generated) {
  const auto known = [&](int32_t token) {
    return token >= 0 && static_cast<size_t>(token) < logits.size();
  };
  constexpr int32_t kDone = -1;
  std::vector<int32_t> counts(logits.size(), 0);
  for (const int32_t token : generated) {
    if (known(token)) ++counts[static_cast<size_t>(token)];
  }
  for (const auto tokens : {generated, prompt}) {
    for (const int32_t token : tokens) {
      if (!known(token)) continue;
      const auto i = static_cast<size_t>(token);
      if (counts[i] == kDone) continue;
      // -inf stays: a token that cannot be is not made possible.
      if (std::isfinite(logits[i])) {
        logits[i] = penalised(static_cast<double>(logits[i]), params, counts[i]);
      }
      counts[i] = kDone;
    }
  }
}

}  // namespace jige::ops
