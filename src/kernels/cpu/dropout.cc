#include "kernels/cpu/dropout.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const DropoutKernels kDropoutKernels;
}  // namespace avx2
namespace avx512 {
extern const DropoutKernels kDropoutKernels;
}  // namespace avx512

const DropoutKernels& dropout_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kDropoutKernels : avx512::kDropoutKernels;
}

}  // namespace jige::cpu
