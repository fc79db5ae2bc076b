#include "serve/layer_computer.h"

#include "base/cpu.h"

namespace jige::serve {

LayerComputer processor_as_computer(int threads) {
  return {.kernels = isa_name(active_isa()), .bytes_per_s = threads * kThreadBytesPerS};
}

LayerComputer gpu_as_computer(const CudaDeviceInfo& gpu) {
  return {.kernels = gpu.name,
          .bytes_per_s = gpu.memory_bytes_per_s > 0 ? gpu.memory_bytes_per_s : kGpuBytesPerS,
          .is_gpu = true};
}

}  // namespace jige::serve
