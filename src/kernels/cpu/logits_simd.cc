#include "kernels/cpu/logits.h"

#include "kernels/cpu/simd_softmax.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

static_assert(kLogitsBlock == kSoftmaxBlock);

float max_logit(const float* logits, int64_t count) noexcept { return max_of(logits, count); }

int32_t first_index(const float* logits, int64_t count, float value) noexcept {
  return first_index_of(logits, count, value);
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
