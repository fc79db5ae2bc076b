#include "kernels/cpu/adamw.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const AdamWKernels kAdamWKernels;
}  // namespace avx2
namespace avx512 {
extern const AdamWKernels kAdamWKernels;
}  // namespace avx512

const AdamWKernels& adamw_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kAdamWKernels : avx512::kAdamWKernels;
}

}  // namespace jige::cpu
