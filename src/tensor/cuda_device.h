// NVIDIA GPUs as devices: plain device allocations, streams and events of the CUDA runtime.
//
// The header names no CUDA type, so nothing above needs the toolkit. In a build without CUDA, or on
// a machine without a driver, the functions say so. Out of memory is a Result; every other CUDA
// error is fatal with its call site, since the context is lost with it. Threads: as tensor/device.h
// says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/device.h"

namespace jige {

struct CudaDeviceInfo {
  int index = 0;
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int64_t memory_bytes = 0;
};

// Whether this build has the CUDA backend.
bool cuda_built();

// The GPUs of this machine; empty when there are none. Fails with kUnsupported in a build without
// CUDA and with kUnavailable when the driver is missing or too old.
Result<std::vector<CudaDeviceInfo>> list_cuda_devices();

// GPU `index`, named "cuda<index>". Fails as list_cuda_devices, or with kNotFound.
Result<std::unique_ptr<Device>> make_cuda_device(int index);

}  // namespace jige
