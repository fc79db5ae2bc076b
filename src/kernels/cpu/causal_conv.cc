#include "kernels/cpu/causal_conv.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const CausalConvKernels kCausalConvKernels;
}
namespace avx512 {
extern const CausalConvKernels kCausalConvKernels;
}

const CausalConvKernels& causal_conv_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kCausalConvKernels : avx512::kCausalConvKernels;
}

}  // namespace jige::cpu
