// Emulated GPUs in place of the machine's, for cuda_emulated_test and jige_emulated; with
// JIGE_EMULATED_GPUS=N there are N of them, each with memory of its own (JIGE_EMULATED_MIB).
#include <algorithm>
#include <cstdlib>
#include <string>

#include "kernels/cuda/emulation/device_memory.h"
#include "kernels/cuda/emulation/emulated_device.h"
#include "tensor/cuda_device.h"

namespace jige {
namespace {

using cuda::emulation::DeviceMemory;

int gpu_count() {
  const char* const count = std::getenv("JIGE_EMULATED_GPUS");
  return std::min(count ? std::atoi(count) : 1, DeviceMemory::kGpusMax);
}

Status check_gpu(int index) {
  if (0 <= index && index < gpu_count()) return {};
  return fail(Code::kNotFound, "there is no GPU {}; this machine has {}", index, gpu_count());
}

}  // namespace

bool cuda_built() { return true; }

Result<std::vector<CudaDeviceInfo>> list_cuda_devices() {
  std::vector<CudaDeviceInfo> gpus;
  for (int index = 0; index < gpu_count(); ++index) {
    gpus.push_back(
        {.index = index, .name = "emulated", .memory_bytes = DeviceMemory::size_bytes(index)});
  }
  return gpus;
}

Result<int64_t> cuda_free_bytes(int index) {
  JIGE_DO(check_gpu(index));
  return DeviceMemory::free_bytes(index);
}

Result<std::unique_ptr<Device>> make_cuda_device(int index) {
  JIGE_DO(check_gpu(index));
  return cuda::make_emulated_device(index);
}

}  // namespace jige
