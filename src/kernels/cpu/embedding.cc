#include "kernels/cpu/embedding.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const EmbeddingKernels kEmbeddingKernels;
}
namespace avx512 {
extern const EmbeddingKernels kEmbeddingKernels;
}

const EmbeddingKernels& embedding_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kEmbeddingKernels : avx512::kEmbeddingKernels;
}

}  // namespace jige::cpu
