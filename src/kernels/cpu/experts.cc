#include "kernels/cpu/experts.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const ExpertKernels kExpertKernels;
}
namespace avx512 {
extern const ExpertKernels kExpertKernels;
}

const ExpertKernels& expert_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kExpertKernels : avx512::kExpertKernels;
}

}  // namespace jige::cpu
