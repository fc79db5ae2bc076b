#include "kernels/cpu/selective_scan.h"

#include "base/cpu.h"
#include "kernels/cpu/selective_scan_layout.h"

namespace jige::cpu {

namespace avx2 {
extern const SelectiveScanKernels kSelectiveScanKernels;
}
namespace avx512 {
extern const SelectiveScanKernels kSelectiveScanKernels;
}

const SelectiveScanKernels& selective_scan_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kSelectiveScanKernels : avx512::kSelectiveScanKernels;
}

int64_t selective_scan_forward_scratch_bytes(int64_t state_dim) noexcept {
  return scan_forward_layout(state_dim).total * int64_t{sizeof(float)};
}

int64_t selective_scan_backward_scratch_bytes(int64_t state_dim, int64_t row_count) noexcept {
  return scan_backward_layout(state_dim, row_count).total * int64_t{sizeof(float)};
}

}  // namespace jige::cpu
