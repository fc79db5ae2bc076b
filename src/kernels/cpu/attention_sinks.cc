#include "kernels/cpu/attention_sinks.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const AttentionSinkKernels kAttentionSinkKernels;
}  // namespace avx2
namespace avx512 {
extern const AttentionSinkKernels kAttentionSinkKernels;
}  // namespace avx512

const AttentionSinkKernels& attention_sink_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kAttentionSinkKernels : avx512::kAttentionSinkKernels;
}

}  // namespace jige::cpu
