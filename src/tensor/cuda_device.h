// NVIDIA GPUs as devices: plain device allocations, streams and events of the CUDA runtime.
//
// The header names no CUDA type, so nothing above needs the toolkit. In a build without CUDA, or on
// a machine without a driver, the functions say so. Out of memory is a Result; every other CUDA
// error is fatal with its call site, since the context is lost with it. Threads: as tensor/device.h
// says; what a CudaStream gives besides is used by the thread that submits its work.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/device.h"
#include "tensor/launch_record.h"

namespace jige {

struct CudaDeviceInfo {
  int index = 0;
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int64_t memory_bytes = 0;
  int64_t memory_bytes_per_s = 0;  // by the clock and the width of its memory; 0: it does not say
};

// What kernels need of a stream besides (kernels/cuda).
class CudaStream : public Stream {
 public:
  // Makes the stream's GPU that of the calling thread; a cudaStream_t.
  virtual void* handle() = 0;
  // Device memory for work that is submitted next, of at least `bytes`, aligned to 256. It is the
  // same memory in every call, so work that uses it must be done with it when later work runs; it
  // grows to the largest request.
  virtual void* scratch(int64_t bytes) = 0;
  // Zeros on the device for work that is submitted next, which leaves zeros there: `bytes` of them,
  // or more, aligned to 256. The same memory in every call.
  virtual void* zeros(int64_t bytes) = 0;
  // A copy of host memory on the device, for work that is submitted next; the host's may change
  // after the call. What was given most lately is not sent again. Valid until kUploads other
  // contents were uploaded; what repeated work gives, until other such work runs, and one copy
  // sends all of it before the work.
  static constexpr int kUploads = 8;
  virtual const void* upload(const void* data, int64_t bytes) = 0;
  // Where work is recorded now; null outside run_repeated().
  virtual LaunchRecord* launch_record() = 0;
  // Multiprocessors of the GPU, for choosing grids.
  virtual int multiprocessor_count() = 0;
  // Whether blocks of the kernel that is launched next may start before the kernel before is done:
  // where the GPU can, but not behind an event of another stream.
  virtual bool starts_early() = 0;
};

// Whether a stream belongs to a GPU, and the CUDA stream behind it. REQUIRES: it does.
inline bool on_cuda(Stream& stream) { return stream.device().kind() == DeviceKind::kCuda; }
CudaStream& as_cuda(Stream& stream);

// Whether this build has the CUDA backend.
bool cuda_built();

// The GPUs of this machine; empty when there are none. Fails with kUnsupported in a build without
// CUDA and with kUnavailable when the driver is missing or too old.
Result<std::vector<CudaDeviceInfo>> list_cuda_devices();

// Bytes that GPU `index` has left now. Fails as make_cuda_device.
Result<int64_t> cuda_free_bytes(int index);

// GPU `index`, named "cuda<index>". Fails as list_cuda_devices, or with kNotFound.
Result<std::unique_ptr<Device>> make_cuda_device(int index);

}  // namespace jige
