#include "kernels/cpu/head_parts.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const HeadPartsKernels kHeadPartsKernels;
}
namespace avx512 {
extern const HeadPartsKernels kHeadPartsKernels;
}

const HeadPartsKernels& head_parts_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kHeadPartsKernels : avx512::kHeadPartsKernels;
}

}  // namespace jige::cpu
