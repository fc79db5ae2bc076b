#include "kernels/cpu/adamw_blocks.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const AdamWBlockKernels kAdamWBlockKernels;
}  // namespace avx2
namespace avx512 {
extern const AdamWBlockKernels kAdamWBlockKernels;
}  // namespace avx512

const AdamWBlockKernels& adamw_block_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kAdamWBlockKernels : avx512::kAdamWBlockKernels;
}

}  // namespace jige::cpu
