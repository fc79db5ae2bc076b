#include "kernels/cpu/expert_balance.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const ExpertBalanceKernels kExpertBalanceKernels;
}
namespace avx512 {
extern const ExpertBalanceKernels kExpertBalanceKernels;
}

const ExpertBalanceKernels& expert_balance_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kExpertBalanceKernels : avx512::kExpertBalanceKernels;
}

}  // namespace jige::cpu
