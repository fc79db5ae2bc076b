#include "tensor/cuda_device.h"

namespace jige {
namespace {

tl::unexpected<Error> not_built() {
  return fail(
      Code::kUnsupported,
      "this build has no CUDA backend; build where nvcc and the CUDA toolkit are installed");
}

}  // namespace

bool cuda_built() { return false; }

Result<std::vector<CudaDeviceInfo>> list_cuda_devices() { return not_built(); }

Result<int64_t> cuda_free_bytes(int) { return not_built(); }

Result<std::unique_ptr<Device>> make_cuda_device(int) { return not_built(); }

}  // namespace jige
