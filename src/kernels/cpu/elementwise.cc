#include "kernels/cpu/elementwise.h"

#include "base/cpu.h"

namespace jige::cpu {

namespace avx2 {
extern const ElementwiseKernels kElementwiseKernels;
extern const VectorMath kVectorMath;
}  // namespace avx2
namespace avx512 {
extern const ElementwiseKernels kElementwiseKernels;
extern const VectorMath kVectorMath;
}  // namespace avx512

const ElementwiseKernels& elementwise_kernels(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kElementwiseKernels : avx512::kElementwiseKernels;
}

const VectorMath& vector_math(Isa isa) {
  return isa == Isa::kAvx2 ? avx2::kVectorMath : avx512::kVectorMath;
}

}  // namespace jige::cpu
