#include "kernels/cpu/delta_rule.h"

#include "base/cpu.h"
#include "kernels/cpu/delta_rule_layout.h"

namespace jige::cpu {

namespace avx2 {
extern const DeltaRuleKernels kDeltaRuleKernels;
}
namespace avx512 {
extern const DeltaRuleKernels kDeltaRuleKernels;
}

const DeltaRuleKernels& delta_rule_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kDeltaRuleKernels : avx512::kDeltaRuleKernels;
}

int64_t delta_rule_forward_scratch_bytes(int64_t key_dim, int64_t value_dim, bool by_key) noexcept {
  return delta_forward_layout(key_dim, value_dim, by_key).total * int64_t{sizeof(float)};
}

int64_t delta_rule_backward_scratch_bytes(int64_t key_dim, int64_t row_count,
                                          bool by_key) noexcept {
  return delta_backward_layout(key_dim, row_count, by_key).total * int64_t{sizeof(float)};
}

}  // namespace jige::cpu
