#include "kernels/cpu/row_spread.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const RowSpreadKernels kRowSpreadKernels;
}
namespace avx512 {
extern const RowSpreadKernels kRowSpreadKernels;
}

const RowSpreadKernels& row_spread_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kRowSpreadKernels : avx512::kRowSpreadKernels;
}

}  // namespace jige::cpu
