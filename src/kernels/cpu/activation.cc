#include "kernels/cpu/activation.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const ActivationKernels kActivationKernels;
}
namespace avx512 {
extern const ActivationKernels kActivationKernels;
}

const ActivationKernels& activation_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kActivationKernels : avx512::kActivationKernels;
}

}  // namespace jige::cpu
