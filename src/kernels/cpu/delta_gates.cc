#include "kernels/cpu/delta_gates.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const DeltaGateKernels kDeltaGateKernels;
}
namespace avx512 {
extern const DeltaGateKernels kDeltaGateKernels;
}

const DeltaGateKernels& delta_gate_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kDeltaGateKernels : avx512::kDeltaGateKernels;
}

}  // namespace jige::cpu
