#include "kernels/cpu/rope.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const RopeKernels kRopeKernels;
}
namespace avx512 {
extern const RopeKernels kRopeKernels;
}

const RopeKernels& rope_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kRopeKernels : avx512::kRopeKernels;
}

}  // namespace jige::cpu
