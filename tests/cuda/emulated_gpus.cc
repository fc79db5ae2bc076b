// The emulated GPU in place of the machine's, for cuda_emulated_test and jige_emulated; with
// JIGE_EMULATED_GPUS=N there are N of them.
#include <cstdlib>
#include <string>

#include "kernels/cuda/emulation/device_memory.h"
#include "kernels/cuda/emulation/emulated_device.h"
#include "tensor/cuda_device.h"

namespace jige {

bool cuda_built() { return true; }

Result<std::vector<CudaDeviceInfo>> list_cuda_devices() {
  const char* const count = std::getenv("JIGE_EMULATED_GPUS");
  std::vector<CudaDeviceInfo> gpus;
  for (int index = 0; index < (count ? std::atoi(count) : 1); ++index) {
    gpus.push_back({.index = index,
                    .name = "emulated",
                    .memory_bytes = cuda::emulation::DeviceMemory::kBytes});
  }
  return gpus;
}

Result<int64_t> cuda_free_bytes(int) { return cuda::emulation::DeviceMemory::kBytes; }

Result<std::unique_ptr<Device>> make_cuda_device(int) { return cuda::make_emulated_device(); }

}  // namespace jige
