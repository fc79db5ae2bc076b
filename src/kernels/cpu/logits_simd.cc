#include "kernels/cpu/logits.h"

#include "kernels/cpu/simd_softmax.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

static_assert(kLogitsBlock == kSoftmaxBlock);

float max_logit(const float* logits, int64_t count) noexcept { return max_of(logits, count); }

// The lowest index of an element equal to `value`; 0 when there is none.
JIGE_FLATTEN int32_t first_index(const float* logits, int64_t count, float value) noexcept {
  using V = F32x16;
  const V values = V::broadcast(value);
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const int lanes = count - i < V::kLanes ? static_cast<int>(count - i) : V::kLanes;
    const auto equal = (load_lanes<V>(logits + i, lanes) == values) & V::first_lanes(lanes);
    const uint32_t bits = mask_bits(equal);
    if (bits != 0) return static_cast<int32_t>(i + __builtin_ctz(bits));
  }
  return 0;
}

// Few are above the bar as a rule, so four vectors are asked at once.
JIGE_FLATTEN int64_t above(int32_t* indices, const float* logits, int64_t count,
                           float bar) noexcept {
  using V = F32x16;
  constexpr int kVectors = 4;
  const V bars = V::broadcast(bar);
  int64_t found = 0;
  const auto put = [&](int64_t begin, uint64_t bits) {
    for (; bits != 0; bits &= bits - 1) {
      indices[found++] = static_cast<int32_t>(begin + __builtin_ctzll(bits));
    }
  };
  int64_t i = 0;
  for (; i + kVectors * V::kLanes <= count; i += kVectors * V::kLanes) {
    uint64_t bits = 0;
    for (int v = 0; v < kVectors; ++v) {
      const uint64_t own = mask_bits(bars < V::load(logits + i + v * V::kLanes));
      bits |= own << (v * V::kLanes);
    }
    put(i, bits);
  }
  for (; i < count; i += V::kLanes) {
    const int lanes = count - i < V::kLanes ? static_cast<int>(count - i) : V::kLanes;
    put(i, mask_bits((bars < load_lanes<V>(logits + i, lanes)) & V::first_lanes(lanes)));
  }
  return found;
}

void exponentials(float* dst, double* block_sums, const float* logits, int64_t count, float shift,
                  float factor) noexcept {
  for (int64_t begin = 0; begin < count; begin += kSoftmaxBlock) {
    const int64_t size = count - begin < kSoftmaxBlock ? count - begin : kSoftmaxBlock;
    *block_sums++ =
        block_exponentials(dst ? dst + begin : nullptr, logits + begin, size, shift, factor);
  }
}

}  // namespace

extern const LogitsKernels kLogitsKernels;
const LogitsKernels kLogitsKernels = {max_logit, first_index, above, exponentials};

}  // namespace jige::cpu::JIGE_ISA_NS
