#include "tensor/cuda_device.h"

#include <cuda_runtime_api.h>

#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_stream.h"

namespace jige {
namespace {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index), name_("cuda" + std::to_string(index)) {}
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  const std::string& name() const override { return name_; }
  Result<void*> allocate(int64_t bytes) override {
    JIGE_CUDA_CHECK(cudaSetDevice(index_));
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears it, or the next call would report it again
      return fail(Code::kExhausted, "{}: the GPU has no {} bytes left", name_, bytes);
    }
    JIGE_CUDA_CHECK(status);
    return data;
  }
  void release(void* data, int64_t) override {
    JIGE_CUDA_CHECK(cudaSetDevice(index_));
    JIGE_CUDA_CHECK(cudaFree(data));
  }
  Result<void*> allocate_host(int64_t bytes) override {
    JIGE_CUDA_CHECK(cudaSetDevice(index_));
    void* data = nullptr;
    const cudaError_t status = cudaMallocHost(&data, static_cast<size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return fail(Code::kExhausted, "{}: the host has no {} bytes for copies left", name_, bytes);
    }
    JIGE_CUDA_CHECK(status);
    return data;
  }
  void release_host(void* data, int64_t) override {
    JIGE_CUDA_CHECK(cudaSetDevice(index_));
    JIGE_CUDA_CHECK(cudaFreeHost(data));
  }
  Result<std::unique_ptr<Stream>> make_stream() override { return make_cuda_stream(*this, index_); }

 private:
  int index_;
  std::string name_;
};

// Bytes that the memory of a GPU gives in a second: both edges of its clock, over all of its width.
int64_t memory_bytes_per_s(int index) {
  int clock_khz = 0;
  int width_bits = 0;
  JIGE_CUDA_CHECK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, index));
  JIGE_CUDA_CHECK(cudaDeviceGetAttribute(&width_bits, cudaDevAttrGlobalMemoryBusWidth, index));
  constexpr int64_t kEdges = 2;
  return kEdges * clock_khz * 1000 * width_bits / 8;
}

Status check_index(int index) {
  JIGE_TRY(const auto infos, list_cuda_devices());
  if (0 <= index && index < static_cast<int>(infos.size())) return {};
  return fail(Code::kNotFound, "there is no GPU {}; this machine has {}", index, infos.size());
}

}  // namespace

bool cuda_built() { return true; }

Result<std::vector<CudaDeviceInfo>> list_cuda_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice) return std::vector<CudaDeviceInfo>{};
  if (status != cudaSuccess) {
    return fail(Code::kUnavailable, "no usable CUDA driver: {}", cudaGetErrorString(status));
  }
  std::vector<CudaDeviceInfo> infos;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    JIGE_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    infos.push_back({index, properties.name, properties.major, properties.minor,
                     static_cast<int64_t>(properties.totalGlobalMem), memory_bytes_per_s(index)});
  }
  return infos;
}

Result<int64_t> cuda_free_bytes(int index) {
  JIGE_DO(check_index(index));
  JIGE_CUDA_CHECK(cudaSetDevice(index));
  size_t free = 0;
  size_t total = 0;
  JIGE_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

Result<std::unique_ptr<Device>> make_cuda_device(int index) {
  JIGE_DO(check_index(index));
  return std::make_unique<CudaDevice>(index);
}

}  // namespace jige
