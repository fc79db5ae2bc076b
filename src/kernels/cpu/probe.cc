#include "kernels/cpu/probe.h"

namespace jige::cpu {

namespace avx2 {
extern const ProbeKernels kProbeKernels;
}
namespace avx512 {
extern const ProbeKernels kProbeKernels;
}

const ProbeKernels& probe_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kProbeKernels : avx512::kProbeKernels;
}

}  // namespace jige::cpu
