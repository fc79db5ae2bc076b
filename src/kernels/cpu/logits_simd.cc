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
const LogitsKernels kLogitsKernels = {max_logit, first_index, exponentials};

}  // namespace jige::cpu::JIGE_ISA_NS
