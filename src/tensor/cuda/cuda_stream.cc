#include "tensor/cuda/cuda_stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tensor/cuda/cuda_check.h"

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

// Contents that were uploaded: as they were, on the way, and on the device.
struct Upload {
  std::vector<std::byte> contents;
  void* pinned = nullptr;
  void* device = nullptr;
  int64_t capacity = 0;
  cudaEvent_t sent = nullptr;  // when `pinned` may change
  uint64_t used = 0;           // a count of calls
};

class GpuStream final : public CudaStream {
 public:
  GpuStream(Device& device, int index, cudaStream_t stream, int multiprocessors)
      : device_(device), index_(index), stream_(stream), multiprocessors_(multiprocessors) {}
  ~GpuStream() override {
    synchronize();
    for (Upload& upload : uploads_) release(upload);
    JIGE_CUDA_CHECK(cudaFree(scratch_));
    JIGE_CUDA_CHECK(cudaStreamDestroy(stream_));
  }
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
  void synchronize() override {
    select();
    JIGE_CUDA_CHECK(cudaStreamSynchronize(stream_));
  }

  void* handle() override {
    select();
    return stream_;
  }
  int multiprocessor_count() override { return multiprocessors_; }

  void* scratch(int64_t bytes) override {
    if (bytes <= scratch_bytes_) return scratch_;
    synchronize();  // work that was submitted may use the old one
    JIGE_CUDA_CHECK(cudaFree(scratch_));
    scratch_bytes_ = std::max(bytes, 2 * scratch_bytes_);
    JIGE_CUDA_CHECK(cudaMalloc(&scratch_, static_cast<size_t>(scratch_bytes_)));
    return scratch_;
  }

  const void* upload(const void* data, int64_t bytes) override {
    const auto size = static_cast<size_t>(bytes);
    Upload* oldest = uploads_.data();
    for (Upload& upload : uploads_) {
      if (upload.used > 0 && upload.contents.size() == size &&
          std::memcmp(upload.contents.data(), data, size) == 0) {
        upload.used = ++upload_calls_;
        return upload.device;
      }
      if (upload.used < oldest->used) oldest = &upload;
    }
    select();
    reserve(*oldest, bytes);
    oldest->used = ++upload_calls_;
    const auto* begin = static_cast<const std::byte*>(data);
    oldest->contents.assign(begin, begin + size);
    JIGE_CUDA_CHECK(cudaEventSynchronize(oldest->sent));
    std::memcpy(oldest->pinned, data, size);
    JIGE_CUDA_CHECK(
        cudaMemcpyAsync(oldest->device, oldest->pinned, size, cudaMemcpyHostToDevice, stream_));
    JIGE_CUDA_CHECK(cudaEventRecord(oldest->sent, stream_));
    return oldest->device;
  }

 private:
  void select() const { JIGE_CUDA_CHECK(cudaSetDevice(index_)); }

  void reserve(Upload& upload, int64_t bytes) {
    constexpr int64_t kLeast = 4096;
    if (bytes <= upload.capacity) return;
    synchronize();
    release(upload);
    upload.capacity = std::max({kLeast, bytes, 2 * upload.capacity});
    const auto capacity = static_cast<size_t>(upload.capacity);
    JIGE_CUDA_CHECK(cudaMallocHost(&upload.pinned, capacity));
    JIGE_CUDA_CHECK(cudaMalloc(&upload.device, capacity));
    JIGE_CUDA_CHECK(cudaEventCreateWithFlags(&upload.sent, cudaEventDisableTiming));
  }

  static void release(Upload& upload) {
    if (!upload.device) return;
    JIGE_CUDA_CHECK(cudaFreeHost(upload.pinned));
    JIGE_CUDA_CHECK(cudaFree(upload.device));
    JIGE_CUDA_CHECK(cudaEventDestroy(upload.sent));
  }

  Device& device_;
  int index_;
  cudaStream_t stream_;
  int multiprocessors_;
  void* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  std::array<Upload, kUploads> uploads_;
  uint64_t upload_calls_ = 0;
};

}  // namespace

std::unique_ptr<Stream> make_cuda_stream(Device& device, int index) {
  JIGE_CUDA_CHECK(cudaSetDevice(index));
  cudaStream_t stream = nullptr;
  JIGE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  int multiprocessors = 0;
  JIGE_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, index));
  return std::make_unique<GpuStream>(device, index, stream, multiprocessors);
}

}  // namespace jige
