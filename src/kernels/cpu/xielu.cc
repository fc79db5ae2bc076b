#include "kernels/cpu/xielu.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const XieluKernels kXieluKernels;
}
namespace avx512 {
extern const XieluKernels kXieluKernels;
}

const XieluKernels& xielu_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kXieluKernels : avx512::kXieluKernels;
}

}  // namespace jige::cpu
