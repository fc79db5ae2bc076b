#include "kernels/cpu/gate.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const GateKernels kGateKernels;
}
namespace avx512 {
extern const GateKernels kGateKernels;
}

const GateKernels& gate_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kGateKernels : avx512::kGateKernels;
}

}  // namespace jige::cpu
