#include "ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/cpu.h"
#include "kernels/cpu/logits.h"
#include "ops/sampling_filter.h"

namespace jige::ops {
namespace {

constexpr float kBiasMax = 100;

const cpu::LogitsKernels& logits_kernels() { return cpu::logits_kernels(active_isa()); }

// exp((logit - largest) · factor) of every logit, with sums by block and in all.
struct Weights {
  std::vector<float> values;  // empty where only the sums are wanted
  std::vector<double> block_sums;
  double total = 0;
};

// Computes exponentials of `logits` into weights.values, where the logits may be, and their sums.
void take_exponentials(Weights& weights, std::span<const float> logits, float largest,
                       float factor) {
  const auto count = static_cast<int64_t>(logits.size());
  weights.block_sums.resize(
      static_cast<size_t>((count + cpu::kLogitsBlock - 1) / cpu::kLogitsBlock));
  logits_kernels().exponentials(weights.values.empty() ? nullptr : weights.values.data(),
                                weights.block_sums.data(), logits.data(), count, largest, factor);
  weights.total = 0;
  for (const double sum : weights.block_sums) weights.total += sum;
}

float max_of(std::span<const float> logits) {
  return logits_kernels().max(logits.data(), static_cast<int64_t>(logits.size()));
}

bool has_filter(const SamplingParams& params, size_t vocabulary) {
  return params.top_p < 1 || params.min_p > 0 ||
         (params.top_k > 0 && params.top_k < static_cast<int64_t>(vocabulary));
}

bool changes_logits(const SamplingParams& params) {
  return has_penalty(params) || !params.logit_bias.empty();
}

int32_t greedy(std::span<const float> logits, float largest) {
  return logits_kernels().first_index(logits.data(), static_cast<int64_t>(logits.size()), largest);
}

int32_t draw(const Weights& weights, const SamplingParams& params, double uniform) {
  if (!has_filter(params, weights.values.size())) {
    return draw_from_all(weights.values, weights.block_sums, uniform);
  }
  return draw_from(filter(weights.values, weights.total, params), uniform);
}

// Within these bounds 0 · factor is 0 and -inf · factor is -inf; beyond them nothing would change.
float temperature_factor(const SamplingParams& params) {
  return static_cast<float>(std::clamp(1 / params.temperature, 1e-30, 1e30));
}

void apply_allowed(std::span<float> logits, std::span<const uint64_t> allowed) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const size_t word = i / 64;
    if (word >= allowed.size() || (allowed[word] >> (i % 64) & 1) == 0) logits[i] = -INFINITY;
  }
}

// Chooses from logits of which the largest is `largest`. Holds one array of the vocabulary's size.
Result<int32_t> choose(std::span<const float> logits, float largest, const SamplingParams& params,
                       std::span<const int32_t> prompt, std::span<const int32_t> generated,
                       std::span<const uint64_t> allowed, double uniform) {
  Weights weights;
  if (changes_logits(params) || !allowed.empty()) {
    weights.values.assign(logits.begin(), logits.end());
    if (has_penalty(params)) apply_penalties(weights.values, params, prompt, generated);
    apply_bias(weights.values, params);
    if (!allowed.empty()) apply_allowed(weights.values, allowed);
    logits = weights.values;
    largest = max_of(logits);
    if (!std::isfinite(largest)) {
      return fail(
          Code::kInvalidArgument,
          "logit_bias, or what the answer is constrained to, forbids every token that could "
          "come next; forbid fewer");
    }
  }
  if (params.temperature == 0) return greedy(logits, largest);
  weights.values.resize(logits.size());
  take_exponentials(weights, logits, largest, temperature_factor(params));
  return draw(weights, params, uniform);
}

Status check_bias(const SamplingParams& params) {
  for (const auto& [token, bias] : params.logit_bias) {
    if ((bias >= -kBiasMax && bias <= kBiasMax) || bias == -INFINITY) continue;
    return fail(Code::kInvalidArgument,
                "logit_bias of token {} is {}; it must be in {}..{} or -infinity", token, bias,
                -kBiasMax, kBiasMax);
  }
  return {};
}

Status check_range(bool good, const char* field, double value, const char* range) {
  if (good) return {};
  return fail(Code::kInvalidArgument, "{} is {}; it must be {}", field, value, range);
}

}  // namespace

Status validate(const SamplingParams& params) {
  JIGE_DO(check_range(params.temperature >= 0 && std::isfinite(params.temperature), "temperature",
                      params.temperature, "a number of at least 0"));
  if (params.top_k < 0) {
    return fail(Code::kInvalidArgument, "top_k is {}; it must be at least 0 (0 turns it off)",
                params.top_k);
  }
  JIGE_DO(check_range(params.top_p > 0 && params.top_p <= 1, "top_p", params.top_p,
                      "above 0 and at most 1"));
  JIGE_DO(check_range(params.min_p >= 0 && params.min_p < 1, "min_p", params.min_p,
                      "at least 0 and below 1"));
  JIGE_DO(check_range(params.repetition_penalty > 0 && std::isfinite(params.repetition_penalty),
                      "repetition_penalty", params.repetition_penalty, "a number above 0"));
  JIGE_DO(check_range(std::isfinite(params.presence_penalty), "presence_penalty",
                      params.presence_penalty, "a finite number"));
  JIGE_DO(check_range(std::isfinite(params.frequency_penalty), "frequency_penalty",
                      params.frequency_penalty, "a finite number"));
  return check_bias(params);
}

bool has_penalty(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 ||
         params.frequency_penalty != 0;
}

RowDraw row_draw(const SamplingParams& params, double uniform, std::span<const SeenToken> seen,
                 bool is_scored) {
  if (!params.logit_bias.empty() || (is_scored && has_penalty(params))) return {};
  RowDraw draw{.kind = params.temperature == 0 ? RowDraw::kLikeliest : RowDraw::kSample,
               .is_scored = is_scored ? 1 : 0};
  if (draw.kind == RowDraw::kSample) {
    draw.top_k = static_cast<int32_t>(std::min<int64_t>(params.top_k, INT32_MAX));
    draw.factor = temperature_factor(params);
    // What rounds to 0 is a filter still.
    constexpr float kLeast = std::numeric_limits<float>::denorm_min();
    if (params.min_p > 0) draw.min_weight = std::max(static_cast<float>(params.min_p), kLeast);
    draw.top_p = params.top_p;
    draw.uniform = uniform;
  }
  if (has_penalty(params)) {
    draw.repetition_penalty = params.repetition_penalty;
    draw.presence_penalty = params.presence_penalty;
    draw.frequency_penalty = params.frequency_penalty;
    draw.seen = seen.data();
    draw.seen_count = static_cast<int32_t>(seen.size());
  }
  return draw;
}

Result<SampledToken> sample(std::span<const float> logits, const SamplingParams& params,
                            std::span<const int32_t> prompt, std::span<const int32_t> generated,
                            Rng& rng, int top_count, std::span<const uint64_t> allowed) {
  const double uniform = rng.uniform();  // first, so that every call draws as much
  const float largest = max_of(logits);
  if (!std::isfinite(largest)) {
    return fail(Code::kInternal, "no token can be chosen: the largest of {} logits is {}",
                logits.size(), largest);
  }
  Weights raw;
  const bool draws_from_raw = params.temperature == 1 && !changes_logits(params) && allowed.empty();
  if (draws_from_raw) raw.values.resize(logits.size());
  take_exponentials(raw, logits, largest, 1.0f);
  if (std::isnan(raw.total)) {
    const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return x != x; });
    return fail(Code::kInternal, "the logit of token {} is NaN", bad - logits.begin());
  }
  SampledToken result;
  if (draws_from_raw) {
    result.token = draw(raw, params, uniform);
  } else {
    JIGE_TRY(result.token, choose(logits, largest, params, prompt, generated, allowed, uniform));
  }
  const double log_total = static_cast<double>(largest) + std::log(raw.total);
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - log_total);
  };
  result.logprob = logprob(logits[static_cast<size_t>(result.token)]);
  for (const Candidate& candidate : heaviest(logits, top_count)) {
    if (!std::isfinite(candidate.weight)) break;  // -inf: it and what follows cannot be
    result.top.push_back({candidate.token, logprob(candidate.weight)});
  }
  return result;
}

}  // namespace jige::ops
