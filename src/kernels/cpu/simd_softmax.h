// The parts of a softmax over one long row, shared by cross-entropy and sampling.
//
// Sums of exponentials go by blocks of kSoftmaxBlock elements: each block by the rule in simd.h,
// the blocks in ascending order in double. So a large vocabulary loses no accuracy. Threads: pure
// functions.
#pragma once

#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

constexpr int64_t kSoftmaxBlock = 4096;

// The largest element; NaN is passed over. -inf for an empty row.
JIGE_FLATTEN float max_of(const float* x, int64_t count) {
  using V = F32x16;
  const V lowest = V::broadcast(-__builtin_inff());
  V largest = lowest;
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    const V values = load_lanes<V>(x + i, lanes);
    largest =
        max(lanes == V::kLanes ? values : select(V::first_lanes(lanes), values, lowest), largest);
  });
  return horizontal_max(largest);
}

// Σ exp((x - shift) · factor) of one block; stores the exponentials where `dst` is not null (it may
// be x), and fetches as many elements at `ahead` where that is not null. REQUIRES: count <=
// kSoftmaxBlock.
JIGE_FLATTEN double block_exponentials(float* dst, const float* x, int64_t count, float shift,
                                       float factor, const float* ahead = nullptr) {
  using V = F32x16;
  const V shifts = V::broadcast(shift);
  const V factors = V::broadcast(factor);
  V sum = V::zero();
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    V e = exp((load_lanes<V>(x + i, lanes) - shifts) * factors);
    if (lanes < V::kLanes) e = select(V::first_lanes(lanes), e, V::zero());
    sum = sum + e;
    if (dst) store_lanes(e, dst + i, lanes);
    if (ahead) _mm_prefetch(reinterpret_cast<const char*>(ahead + i), _MM_HINT_T1);
  });
  return static_cast<double>(horizontal_sum(sum));
}

}  // namespace
}  // namespace jige::cpu::JIGE_ISA_NS
