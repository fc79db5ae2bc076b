#include "kernels/cpu/cross_entropy.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const CrossEntropyKernels kCrossEntropyKernels;
}
namespace avx512 {
extern const CrossEntropyKernels kCrossEntropyKernels;
}

const CrossEntropyKernels& cross_entropy_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kCrossEntropyKernels : avx512::kCrossEntropyKernels;
}

}  // namespace jige::cpu
