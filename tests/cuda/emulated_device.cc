// cuda_emulated_test has one GPU, which is emulated, in place of the machine's.
#include "kernels/cuda/emulation/emulated_device.h"

#include "cuda/test_device.h"
#include "kernels/cuda/emulation/device_memory.h"
#include "tensor/cuda_device.h"

namespace jige {

bool test_device_is_emulated() { return true; }

bool set_streams_late(bool late) { return cuda::set_emulated_streams_late(late); }

bool cuda_built() { return true; }

Result<std::vector<CudaDeviceInfo>> list_cuda_devices() {
  return std::vector<CudaDeviceInfo>{
      {.index = 0, .name = "emulated", .memory_bytes = cuda::emulation::DeviceMemory::kBytes}};
}

Result<int64_t> cuda_free_bytes(int) { return cuda::emulation::DeviceMemory::kBytes; }

Result<std::unique_ptr<Device>> make_cuda_device(int) { return cuda::make_emulated_device(); }

}  // namespace jige
