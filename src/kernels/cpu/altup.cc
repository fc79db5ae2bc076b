#include "kernels/cpu/altup.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const AltUpKernels kAltUpKernels;
}
namespace avx512 {
extern const AltUpKernels kAltUpKernels;
}

const AltUpKernels& altup_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kAltUpKernels : avx512::kAltUpKernels;
}

}  // namespace jige::cpu
