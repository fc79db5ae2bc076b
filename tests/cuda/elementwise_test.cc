// Sums and activations on a GPU, beside those of the CPU.
#include "ops/elementwise.h"

#include "cuda/test_device.h"

namespace jige {
namespace {

class CudaElementwise : public CudaTest {};

TEST_F(CudaElementwise, AddsAsTheCpuDoes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t columns : {1, 33, 1000}) {
      const Pair a = random(dtype, {7, columns});
      const Pair b = random(DType::kF32, {7, columns});
      const Pair dst = filled(dtype, {7, columns});
      ops::add(*cpu_stream_, dst.host, a.host, b.host);
      ops::add(*gpu_stream_, dst.gpu, a.gpu, b.gpu);
      expect_equal(dst);
    }
  }
}

}  // namespace
}  // namespace jige
