#include "tensor/cuda_device.h"

#include <cuda_runtime_api.h>

#include "base/check.h"

// Fatal unless the call succeeded; for calls that fail only when the context is lost.
#define JIGE_CUDA_CHECK(...)                                                                       \
  do {                                                                                             \
    const cudaError_t jige_cuda_status = (__VA_ARGS__);                                            \
    JIGE_CHECK(jige_cuda_status == cudaSuccess, "CUDA: {}", cudaGetErrorString(jige_cuda_status)); \
  } while (false)

namespace jige {
namespace {

cudaMemcpyKind to_cuda(CopyKind kind) {
  switch (kind) {
    case CopyKind::kHostToDevice:
      return cudaMemcpyHostToDevice;
    case CopyKind::kDeviceToHost:
      return cudaMemcpyDeviceToHost;
    case CopyKind::kDeviceToDevice:
      return cudaMemcpyDeviceToDevice;
    case CopyKind::kHostToHost:
      return cudaMemcpyHostToHost;
  }
  return cudaMemcpyDefault;
}

class CudaEventState final : public Event::State {
 public:
  explicit CudaEventState(cudaEvent_t event) : event_(event) {}
  ~CudaEventState() override { JIGE_CUDA_CHECK(cudaEventDestroy(event_)); }
  bool complete() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    JIGE_CUDA_CHECK(status);
    return true;
  }
  void wait() override { JIGE_CUDA_CHECK(cudaEventSynchronize(event_)); }
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_;
};

class CudaStream final : public Stream {
 public:
  CudaStream(Device& device, int index, cudaStream_t stream)
      : device_(device), index_(index), stream_(stream) {}
  ~CudaStream() override { JIGE_CUDA_CHECK(cudaStreamDestroy(stream_)); }
  Device& device() override { return device_; }
  void copy(void* dst, const void* src, int64_t bytes, CopyKind kind) override {
    select();
    JIGE_CUDA_CHECK(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), to_cuda(kind), stream_));
  }
  void fill_zero(void* dst, int64_t bytes) override {
    select();
    JIGE_CUDA_CHECK(cudaMemsetAsync(dst, 0, static_cast<size_t>(bytes), stream_));
  }
  Event record() override {
    select();
    cudaEvent_t event = nullptr;
    JIGE_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    JIGE_CUDA_CHECK(cudaEventRecord(event, stream_));
    return Event(std::make_shared<CudaEventState>(event));
  }
  void wait(const Event& event) override {
    if (const auto* state = dynamic_cast<const CudaEventState*>(event.state())) {
      select();
      JIGE_CUDA_CHECK(cudaStreamWaitEvent(stream_, state->event(), 0));
    } else {
      event.wait();  // an event of another kind of device: the submitting thread waits
    }
  }
  void synchronize() override { JIGE_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  void select() const { JIGE_CUDA_CHECK(cudaSetDevice(index_)); }
  Device& device_;
  int index_;
  cudaStream_t stream_;
};

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
  Result<std::unique_ptr<Stream>> make_stream() override {
    JIGE_CUDA_CHECK(cudaSetDevice(index_));
    cudaStream_t stream = nullptr;
    JIGE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return std::make_unique<CudaStream>(*this, index_, stream);
  }

 private:
  int index_;
  std::string name_;
};

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
                     static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return infos;
}

Result<std::unique_ptr<Device>> make_cuda_device(int index) {
  JIGE_TRY(const auto infos, list_cuda_devices());
  if (index < 0 || index >= static_cast<int>(infos.size())) {
    return fail(Code::kNotFound, "there is no GPU {}; this machine has {}", index, infos.size());
  }
  return std::make_unique<CudaDevice>(index);
}

}  // namespace jige
