#include "ops/sampling_filter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/cpu.h"
#include "kernels/cpu/logits.h"

namespace jige::ops {
namespace {

bool heavier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

// Weights of [0, 1] by the upper half of their bits, which is in the order of the weights.
constexpr size_t kBucketCount = 0x3f81;
size_t bucket_of(float weight) { return std::bit_cast<uint32_t>(weight) >> 16; }

size_t exponent_of(float weight) { return std::bit_cast<uint32_t>(weight) >> 23; }
constexpr size_t kExponentCount = 128;
// Of an exponent's buckets.
bool is_last_of_exponent(size_t bucket) { return bucket % (1 << 7) == 0; }

// By exponents, from the largest down.
double sum_of_weights(std::span<const Candidate> candidates) {
  std::array<double, kExponentCount> sums{};
  for (const Candidate& candidate : candidates) {
    sums[exponent_of(candidate.weight)] += static_cast<double>(candidate.weight);
  }
  double total = 0;
  for (size_t exponent = kExponentCount; exponent-- > 0;) total += sums[exponent];
  return total;
}

// Keeps the shortest run of the heaviest candidates whose sum reaches `wanted`, in the order they
// have.
void keep_mass(std::vector<Candidate>& candidates, double wanted) {
  std::vector<double> masses(kBucketCount, 0.0);
  for (const Candidate& candidate : candidates) {
    masses[bucket_of(candidate.weight)] += static_cast<double>(candidate.weight);
  }
  double before = 0;  // of larger exponents
  double mass = 0;    // of the bucket's own exponent, exact
  size_t bucket = kBucketCount - 1;
  for (; bucket > 0 && before + (mass + masses[bucket]) < wanted; --bucket) {
    mass += masses[bucket];
    if (!is_last_of_exponent(bucket)) continue;
    before += mass;
    mass = 0;
  }
  // The run ends in this bucket, at `lightest`.
  std::vector<Candidate> members;
  for (const Candidate& candidate : candidates) {
    if (bucket_of(candidate.weight) == bucket) members.push_back(candidate);
  }
  if (members.empty()) return;  // by rounding, all of them do not quite reach what is wanted
  std::sort(members.begin(), members.end(), heavier);
  Candidate lightest = members.back();
  for (const Candidate& member : members) {
    mass += static_cast<double>(member.weight);
    if (before + mass >= wanted) {
      lightest = member;
      break;
    }
  }
  std::erase_if(candidates, [&](const Candidate& c) { return heavier(lightest, c); });
}

// Calls body(i) for weights from index `begin` on that are above the bar, ascending. Where the body
// raises the bar, the next ones may be under it.
template <typename Body>
void for_each_above(std::span<const float> weights, size_t begin, const float& bar,
                    const Body& body) {
  constexpr size_t kAtOnce = 1024;
  const auto above = cpu::logits_kernels(active_isa()).above;
  std::array<int32_t, kAtOnce> found;
  for (size_t at = begin; at < weights.size(); at += kAtOnce) {
    const auto part = weights.subspan(at, std::min(kAtOnce, weights.size() - at));
    const int64_t count = above(found.data(), part.data(), std::ssize(part), bar);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      body(at + static_cast<size_t>(found[i]));
    }
  }
}

// Those of at least `smallest` that are not zero.
std::vector<Candidate> at_least(std::span<const float> weights, float smallest) {
  std::vector<Candidate> candidates;
  const float bar = smallest > 0 ? std::nextafter(smallest, 0.0f) : 0.0f;
  for_each_above(weights, 0, bar, [&](size_t i) {
    candidates.push_back({weights[i], static_cast<int32_t>(i)});
  });
  return candidates;
}

uint64_t draw_units(float weight) { return static_cast<uint64_t>(weight * cpu::kDrawUnits); }

// Of values at(0) … at(count - 1), the first with which the sum passes `wanted`, or the last that
// is positive; `before`, the sum so far, becomes that in front of it.
template <typename At>
size_t step_until(size_t count, double wanted, double& before, const At& at) {
  size_t chosen = 0;
  double sum = before;
  for (size_t i = 0; i < count; ++i) {
    const double value = at(i);
    if (value <= 0) continue;
    chosen = i;
    before = sum;
    sum += value;
    if (sum > wanted) break;
  }
  return chosen;
}

double to_float_range(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return std::clamp(value, -kLargest, kLargest);
}

float penalised(double logit, const SamplingParams& params, int32_t generated_count) {
  logit = to_float_range(logit > 0 ? logit / params.repetition_penalty
                                   : logit * params.repetition_penalty);
  if (generated_count > 0) {
    logit -= params.presence_penalty + generated_count * params.frequency_penalty;
  }
  return static_cast<float>(to_float_range(logit));
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
  const auto add = [&](size_t i) {
    candidates.push_back({weights[i], static_cast<int32_t>(i)});
    if (candidates.size() < room) return;
    const auto last_kept = candidates.begin() + static_cast<ptrdiff_t>(kept - 1);
    std::nth_element(candidates.begin(), last_kept, candidates.end(), heavier);
    bar = last_kept->weight;
    candidates.resize(kept);
  };
  const size_t first = std::min(room, weights.size());
  for (size_t i = 0; i < first; ++i) add(i);
  for_each_above(weights, first, bar, [&](size_t i) {
    if (weights[i] > bar) add(i);
  });
  std::sort(candidates.begin(), candidates.end(), heavier);
  candidates.resize(std::min(kept, candidates.size()));
  return candidates;
}

int32_t draw_from(std::span<const Candidate> candidates, double uniform) {
  uint64_t total = 0;
  for (const Candidate& candidate : candidates) total += draw_units(candidate.weight);
  const auto wanted =
      std::min(static_cast<uint64_t>(uniform * static_cast<double>(total)), total - 1);
  uint64_t sum = 0;
  for (const Candidate& candidate : candidates) {
    sum += draw_units(candidate.weight);
    if (sum > wanted) return candidate.token;
  }
  return candidates.back().token;
}

int32_t draw_from_all(std::span<const float> weights, std::span<const double> block_sums,
                      double uniform) {
  constexpr auto kBlock = static_cast<size_t>(cpu::kLogitsBlock);
  constexpr auto kPiece = static_cast<size_t>(cpu::kDrawPiece);
  double total = 0;
  for (const double sum : block_sums) total += sum;
  const double wanted = uniform * total;
  double before = 0;
  const size_t block =
      step_until(block_sums.size(), wanted, before, [&](size_t i) { return block_sums[i]; });
  const auto in_block =
      weights.subspan(block * kBlock).first(std::min(kBlock, weights.size() - block * kBlock));
  // A block's sum was rounded in another order than those of its pieces are, so these may end just
  // short of what is wanted: then it is the last with a weight.
  const size_t pieces = (in_block.size() + kPiece - 1) / kPiece;
  const size_t piece = step_until(pieces, wanted, before, [&](size_t i) {
    const size_t end = std::min(in_block.size(), (i + 1) * kPiece);
    double sum = 0;
    for (size_t at = i * kPiece; at < end; ++at) sum += static_cast<double>(in_block[at]);
    return sum;
  });
  const auto in_piece = in_block.subspan(piece * kPiece);
  const size_t place = step_until(std::min(kPiece, in_piece.size()), wanted, before,
                                  [&](size_t i) { return static_cast<double>(in_piece[i]); });
  return static_cast<int32_t>(block * kBlock + piece * kPiece + place);
}

std::vector<Candidate> filter(std::span<const float> weights, double total,
                              const SamplingParams& params) {
  const bool top_k = params.top_k > 0 && params.top_k < static_cast<int64_t>(weights.size());
  const auto min_weight = static_cast<float>(params.min_p);  // the largest weight is 1
  std::vector<Candidate> candidates;
  if (top_k) {
    candidates = heaviest(weights, params.top_k);
    total = sum_of_weights(candidates);
  } else {
    // What is lighter than this adds up to less than half of what top-p drops.
    const double dropped = params.top_p < 1 ? (1 - params.top_p) * total : 0;
    const double light = 0.5 * dropped / static_cast<double>(weights.size());
    candidates = at_least(
        weights, std::max(static_cast<float>(light), params.top_p < 1 ? 0.0f : min_weight));
  }
  if (params.top_p < 1) keep_mass(candidates, params.top_p * total);
  std::erase_if(candidates,
                [&](const Candidate& c) { return c.weight < min_weight || c.weight <= 0; });
  if (top_k) {
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  }
  return candidates;
}

void apply_penalties(std::span<float> logits, const SamplingParams& params,
                     std::span<const int32_t> prompt, std::span<const int32_t> generated) {
  std::vector<bool> done(logits.size(), false);
  const auto apply = [&](int32_t token, int32_t generated_count) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) return;
    const auto i = static_cast<size_t>(token);
    if (done[i]) return;
    done[i] = true;
    // -inf stays: a token that cannot be is not made possible.
    if (std::isfinite(logits[i])) {
      logits[i] = penalised(static_cast<double>(logits[i]), params, generated_count);
    }
  };
  std::vector<int32_t> sorted(generated.begin(), generated.end());
  std::sort(sorted.begin(), sorted.end());
  for (auto run = sorted.begin(); run != sorted.end();) {
    const auto end = std::find_if(run, sorted.end(), [&](int32_t token) { return token != *run; });
    apply(*run, static_cast<int32_t>(end - run));
    run = end;
  }
  for (const int32_t token : prompt) apply(token, 0);
}

void apply_bias(std::span<float> logits, const SamplingParams& params) {
  for (const LogitBias& bias : params.logit_bias) {
    if (bias.token < 0 || static_cast<size_t>(bias.token) >= logits.size()) continue;
    logits[static_cast<size_t>(bias.token)] += bias.bias;
  }
}

}  // namespace jige::ops
