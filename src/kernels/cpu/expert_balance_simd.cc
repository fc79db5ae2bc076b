#include "kernels/cpu/expert_balance.h"

#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

// Rows [begin, end) of the batch, and how many of them chose each expert.
struct SequenceUse {
  int32_t begin, end;
  float counts[kBalancedExpertsMax];
};

// How many of an expert's ascending places come before `place`.
int32_t places_before(const int32_t* places, int32_t count, int32_t place) {
  int32_t low = 0;
  for (int32_t high = count; low < high;) {
    const int32_t middle = low + (high - low) / 2;
    if (places[middle] < place) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Short sequences are counted; of long ones each range of rows would do so again, so they are
// looked up.
void count_choices(const BalanceArgs& args, SequenceUse& use) {
  constexpr int64_t kCountedPerExpert = 8;
  const int64_t chosen = args.chosen;
  if ((use.end - use.begin) * chosen < kCountedPerExpert * args.experts) {
    for (int64_t e = 0; e < args.experts; ++e) use.counts[e] = 0;
    for (int64_t place = use.begin * chosen; place < use.end * chosen; ++place) {
      use.counts[args.experts_of[place]] += 1.0f;
    }
    return;
  }
  const auto first = static_cast<int32_t>(use.begin * chosen);
  const auto last = static_cast<int32_t>(use.end * chosen);
  for (int64_t e = 0; e < args.experts; ++e) {
    const int32_t begin = e > 0 ? args.row_ends[e - 1] : 0;
    const int32_t* places = args.places + begin;
    const int32_t count = args.row_ends[e] - begin;
    use.counts[e] = static_cast<float>(places_before(places, count, last) -
                                       places_before(places, count, first));
  }
}

struct RowSums {
  float scores;   // S
  float counted;  // Σ c q
};

// Leaves q in `scores`.
JIGE_FLATTEN RowSums score_row(const BalanceArgs& args, const float* logits, const float* counts,
                               float* scores) {
  float max = -__builtin_inff();
  for (int64_t e = 0; e < args.experts; ++e) max = logits[e] > max ? logits[e] : max;
  V sum = V::zero();
  V counted = V::zero();
  for_each_vector<V>(args.experts, [&](int64_t i, int lanes) {
    const V logit = load_lanes<V>(logits + i, lanes);
    V score = args.sigmoid ? sigmoid(logit) : exp(logit - V::broadcast(max));
    if (lanes < V::kLanes) score = select(V::first_lanes(lanes), score, V::zero());
    sum = sum + score;
    counted = counted + score * load_lanes<V>(counts + i, lanes);
    store_lanes(score, scores + i, lanes);
  });
  return {horizontal_sum(sum), horizontal_sum(counted)};
}

JIGE_FLATTEN void add_slopes(const BalanceArgs& args, const float* counts, const float* scores,
                             const RowSums& sums, float weight, float* out) {
  const V mean = V::broadcast(sums.counted / sums.scores);
  const V sum = V::broadcast(sums.scores);
  const V weights = V::broadcast(weight);
  for_each_vector<V>(args.experts, [&](int64_t i, int lanes) {
    const V score = load_lanes<V>(scores + i, lanes);
    V slope = weights * (score / sum) * (load_lanes<V>(counts + i, lanes) - mean);
    if (args.sigmoid) slope = slope * (V::broadcast(1.0f) - score);
    store_lanes(load_lanes<V>(out + i, lanes) + slope, out + i, lanes);
  });
}

void balance_rows(const BalanceArgs& args, int64_t begin, int64_t end) noexcept {
  SequenceUse use;
  use.begin = use.end = 0;
  const int32_t* next = args.sequence_ends;
  float scores[kBalancedExpertsMax];
  float unit = 0;
  for (int64_t t = begin; t < end; ++t) {
    if (t >= use.end) {
      while (*next <= t) use.end = *next++;
      use.begin = use.end;
      use.end = *next;
      count_choices(args, use);
      unit = static_cast<float>(args.experts) /
             (static_cast<float>(args.chosen) * static_cast<float>(use.end - use.begin));
    }
    const RowSums sums = score_row(args, args.logits + t * args.logits_stride, use.counts, scores);
    args.losses[t] = unit * (sums.counted / sums.scores);
    add_slopes(args, use.counts, scores, sums, args.weight * unit,
               args.grad_logits + t * args.grad_stride);
  }
}

}  // namespace

extern const ExpertBalanceKernels kExpertBalanceKernels;
const ExpertBalanceKernels kExpertBalanceKernels = {.rows = balance_rows};

}  // namespace jige::cpu::JIGE_ISA_NS
