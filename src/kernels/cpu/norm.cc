#include "kernels/cpu/norm.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const NormKernels kNormKernels;
}
namespace avx512 {
extern const NormKernels kNormKernels;
}

const NormKernels& norm_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kNormKernels : avx512::kNormKernels;
}

}  // namespace jige::cpu
