#include "kernels/cpu/logits.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const LogitsKernels kLogitsKernels;
}
namespace avx512 {
extern const LogitsKernels kLogitsKernels;
}

const LogitsKernels& logits_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kLogitsKernels : avx512::kLogitsKernels;
}

}  // namespace jige::cpu
