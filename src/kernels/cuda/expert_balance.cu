// The loss for unequal use of experts: a warp a token, which looks up how many of its sequence's
// tokens chose each expert among the ascending places of the expert's rows.
#include "kernels/cuda/expert_balance.h"

#include "kernels/cuda/exact_math.cuh"

namespace jige::cuda {
namespace {

constexpr int kBalanceWarps = 4;  // of a block
constexpr int64_t kWordsMax = 48 * 1024 / int64_t{sizeof(float)};
static_assert(kBalanceWarps * 2 * cpu::kBalancedExpertsMax <= kWordsMax);

// How many of `count` ascending numbers are below `value`.
__device__ inline int count_below(const int32_t* numbers, int count, int value) {
  int low = 0;
  for (int high = count; low < high;) {
    const int middle = low + (high - low) / 2;
    if (numbers[middle] < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kBalanceWarps* kWarp)
    balance_kernel(cpu::BalanceArgs args, int64_t tokens, int sequences) {
  begin_kernel();
  const int64_t token = int64_t{blockIdx.x} * kBalanceWarps + warp_id();
  if (token >= tokens) return;
  const int experts = static_cast<int>(args.experts);
  const int chosen = static_cast<int>(args.chosen);
  float* counts = reinterpret_cast<float*>(dynamic_shared()) + warp_id() * 2 * experts;
  float* scores = counts + experts;
  const float* logits = args.logits + token * args.logits_stride;
  const int s = count_below(args.sequence_ends, sequences, static_cast<int>(token) + 1);
  const int begin = s > 0 ? args.sequence_ends[s - 1] : 0;
  const int end = args.sequence_ends[s];
  float max = -__builtin_inff();
  for (int e = lane_id(); e < experts; e += kWarp) max = logits[e] > max ? logits[e] : max;
  max = warp_max(max);
  for (int e = lane_id(); e < experts; e += kWarp) {
    const int first = e > 0 ? args.row_ends[e - 1] : 0;
    const int32_t* places = args.places + first;
    const int count = args.row_ends[e] - first;
    counts[e] = static_cast<float>(count_below(places, count, end * chosen) -
                                   count_below(places, count, begin * chosen));
    scores[e] = args.sigmoid ? exact_sigmoid(logits[e]) : exact_exp(logits[e] - max);
  }
  __syncwarp();
  const float sum = row_sum(experts, [&](int e) { return scores[e]; });
  const float counted = row_sum(experts, [&](int e) { return scores[e] * counts[e]; });
  const float mean = counted / sum;
  const float unit =
      static_cast<float>(experts) / (static_cast<float>(chosen) * static_cast<float>(end - begin));
  const float weight = args.weight * unit;
  if (lane_id() == 0) args.losses[token] = unit * mean;
  float* out = args.grad_logits + token * args.grad_stride;
  for (int e = lane_id(); e < experts; e += kWarp) {
    float slope = weight * (scores[e] / sum) * (counts[e] - mean);
    if (args.sigmoid) slope = slope * (1.0f - scores[e]);
    out[e] = out[e] + slope;
  }
}

}  // namespace

void balance_experts(const LaunchStream& stream, const cpu::BalanceArgs& args,
                     const BalanceLaunch& launched) {
  if (launched.tokens == 0) return;
  const int64_t bytes = kBalanceWarps * 2 * args.experts * int64_t{sizeof(float)};
  launch(stream, {blocks_for(launched.tokens, kBalanceWarps), kBalanceWarps * kWarp, bytes},
         balance_kernel, args, launched.tokens, static_cast<int>(launched.sequences));
}

}  // namespace jige::cuda
