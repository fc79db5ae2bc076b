#include "tensor/cuda/cuda_stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_graphs.h"
#include "tensor/upload_slots.h"

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

// Memory of the host and of the device for contents that go there.
class UploadRoom {
 public:
  UploadRoom() = default;
  UploadRoom(const UploadRoom&) = delete;
  UploadRoom& operator=(const UploadRoom&) = delete;
  ~UploadRoom() { release(); }

  const std::byte* device() const { return static_cast<const std::byte*>(device_); }
  // Room for so many bytes; contents are lost where there was less.
  void reserve(cudaStream_t stream, int64_t bytes) {
    if (bytes <= capacity_) return;
    JIGE_CUDA_CHECK(cudaStreamSynchronize(stream));  // work there may read the old memory
    release();
    capacity_ = bytes;
    const auto capacity = static_cast<size_t>(capacity_);
    JIGE_CUDA_CHECK(cudaMallocHost(&pinned_, capacity));
    JIGE_CUDA_CHECK(cudaMalloc(&device_, capacity));
    JIGE_CUDA_CHECK(cudaEventCreateWithFlags(&sent_, cudaEventDisableTiming));
  }
  // Takes other contents, in the order of the stream. REQUIRES: there is room.
  void send(cudaStream_t stream, const void* data, size_t bytes) {
    JIGE_CUDA_CHECK(cudaEventSynchronize(sent_));
    std::memcpy(pinned_, data, bytes);
    JIGE_CUDA_CHECK(cudaMemcpyAsync(device_, pinned_, bytes, cudaMemcpyHostToDevice, stream));
    JIGE_CUDA_CHECK(cudaEventRecord(sent_, stream));
  }

 private:
  void release() {
    if (!sent_) return;
    JIGE_CUDA_CHECK(cudaFreeHost(pinned_));
    JIGE_CUDA_CHECK(cudaFree(device_));
    JIGE_CUDA_CHECK(cudaEventDestroy(sent_));
  }

  void* pinned_ = nullptr;
  void* device_ = nullptr;
  int64_t capacity_ = 0;
  cudaEvent_t sent_ = nullptr;  // when pinned_ may change
};

// Contents that were uploaded, and where they are.
class Upload {
 public:
  bool holds(const void* data, size_t bytes) const {
    return contents_.size() == bytes && std::memcmp(contents_.data(), data, bytes) == 0;
  }
  const void* device() const { return room_.device(); }
  void send(cudaStream_t stream, const void* data, size_t bytes) {
    constexpr size_t kLeast = 4096;
    room_.reserve(stream, static_cast<int64_t>(std::bit_ceil(std::max(kLeast, bytes))));
    const auto* begin = static_cast<const std::byte*>(data);
    contents_.assign(begin, begin + bytes);
    room_.send(stream, data, bytes);
  }

 private:
  std::vector<std::byte> contents_;
  UploadRoom room_;
};

class GpuStream final : public CudaStream {
 public:
  // What the GPU can do.
  struct Abilities {
    int multiprocessors = 1;
    bool starts_early = false;
  };
  GpuStream(Device& device, int index, cudaStream_t stream, const Abilities& abilities)
      : device_(device), index_(index), stream_(stream), abilities_(abilities) {
    for (auto& upload : uploads_) upload = std::make_unique<Upload>();
  }
  ~GpuStream() override {
    synchronize();
    JIGE_CUDA_CHECK(cudaFree(scratch_));
    JIGE_CUDA_CHECK(cudaFree(zeros_));
    JIGE_CUDA_CHECK(cudaStreamDestroy(stream_));
  }
  Device& device() override { return device_; }
  void copy(void* dst, const void* src, int64_t bytes, CopyKind kind) override {
    select();
    if (!takes(dst, src, bytes)) return;
    JIGE_CUDA_CHECK(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), to_cuda(kind), stream_));
  }
  void fill_zero(void* dst, int64_t bytes) override {
    select();
    if (!takes(dst, bytes)) return;
    JIGE_CUDA_CHECK(cudaMemsetAsync(dst, 0, static_cast<size_t>(bytes), stream_));
  }
  Event record() override {
    select();
    cudaEvent_t event = nullptr;
    // Who waits for it sleeps: others have use for the processor.
    constexpr unsigned kFlags = cudaEventDisableTiming | cudaEventBlockingSync;
    JIGE_CUDA_CHECK(cudaEventCreateWithFlags(&event, kFlags));
    JIGE_CUDA_CHECK(cudaEventRecord(event, stream_));
    return Event(std::make_shared<CudaEventState>(event));
  }
  void wait(const Event& event) override {
    if (const auto* state = dynamic_cast<const CudaEventState*>(event.state())) {
      select();
      JIGE_CUDA_CHECK(cudaStreamWaitEvent(stream_, state->event(), 0));
      waits_ = true;
    } else {
      event.wait();  // an event of another kind of device: the submitting thread waits
    }
  }
  void synchronize() override {
    select();
    JIGE_CUDA_CHECK(cudaStreamSynchronize(stream_));
  }

  void* handle() override {
    if (!record_) select();  // else run_repeated() did
    return stream_;
  }
  int multiprocessor_count() override { return abilities_.multiprocessors; }
  // Not behind an event: kernels wait for the one before them themselves, and for no other stream.
  bool starts_early() override { return abilities_.starts_early && !std::exchange(waits_, false); }

  void* scratch(int64_t bytes) override {
    if (bytes <= scratch_bytes_) return scratch_;
    synchronize();  // work that was submitted may use the old one
    JIGE_CUDA_CHECK(cudaFree(scratch_));
    scratch_bytes_ = std::max(bytes, 2 * scratch_bytes_);
    moved_ = true;
    JIGE_CUDA_CHECK(cudaMalloc(&scratch_, static_cast<size_t>(scratch_bytes_)));
    return scratch_;
  }

  void* zeros(int64_t bytes) override {
    if (bytes <= zeros_bytes_) return zeros_;
    synchronize();
    JIGE_CUDA_CHECK(cudaFree(zeros_));
    zeros_bytes_ = std::max(bytes, 2 * zeros_bytes_);
    moved_ = true;
    const auto size = static_cast<size_t>(zeros_bytes_);
    JIGE_CUDA_CHECK(cudaMalloc(&zeros_, size));
    JIGE_CUDA_CHECK(cudaMemsetAsync(zeros_, 0, size, stream_));
    return zeros_;
  }

  const void* upload(const void* data, int64_t bytes) override {
    const auto size = static_cast<size_t>(bytes);
    if (record_) return slots_room_.device() + slots_.put(data, bytes);
    for (const auto& upload : uploads_) {
      if (upload->holds(data, size)) return upload->device();
    }
    select();
    std::rotate(uploads_.begin(), uploads_.end() - 1, uploads_.end());
    uploads_.front()->send(stream_, data, size);
    return uploads_.front()->device();
  }

  LaunchRecord* launch_record() override { return record_; }
  bool records_only() const override { return record_ && record_->records_only; }
  void run_repeated(const std::function<void()>& submit) override {
    gather(submit, [&](const LaunchRecord& record, const std::function<void()>& walk) {
      graphs_.run(stream_, LaunchRecord::Fingerprint(record.fingerprint()), walk);
    });
  }
  void run_in_pieces(const std::function<void()>& submit) override {
    gather(submit, [](const LaunchRecord&, const std::function<void()>& walk) { walk(); });
  }

 private:
  // Goes through the work, sends what it uploads, and has it run.
  template <typename Run>
  void gather(const std::function<void()>& submit, const Run& run) {
    select();
    LaunchRecord record;
    const auto walk = [&] {
      slots_.restart();
      submit();
    };
    record_ = &record;
    do {
      slots_room_.reserve(stream_, slots_.bytes());
      record = {};
      record.records_only = true;
      moved_ = false;
      walk();
    } while (slots_.widen() || moved_);
    record.records_only = false;
    const std::span<const std::byte> changes = slots_.take_changes();
    if (!changes.empty()) slots_room_.send(stream_, changes.data(), changes.size());
    run(record, walk);
    record_ = nullptr;
  }
  void select() const { JIGE_CUDA_CHECK(cudaSetDevice(index_)); }
  // Records what is put on the stream; whether it is to be put there.
  template <typename... Parts>
  bool takes(const Parts&... parts) {
    if (!record_) return true;
    (record_->add_value(parts), ...);
    return !record_->records_only;
  }

  Device& device_;
  int index_;
  cudaStream_t stream_;
  Abilities abilities_;
  void* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  void* zeros_ = nullptr;
  int64_t zeros_bytes_ = 0;
  bool moved_ = false;  // the memory of one of them
  bool waits_ = false;  // for an event, with what is launched next
  std::array<std::unique_ptr<Upload>, kUploads> uploads_;  // the newest first
  UploadSlots slots_;                                      // of repeated work
  UploadRoom slots_room_;
  LaunchRecord* record_ = nullptr;
  CudaGraphs graphs_;
};

}  // namespace

std::unique_ptr<Stream> make_cuda_stream(Device& device, int index) {
  JIGE_CUDA_CHECK(cudaSetDevice(index));
  cudaStream_t stream = nullptr;
  JIGE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  constexpr int kMajorOfEarlyStarts = 9;
  GpuStream::Abilities abilities;
  int major = 0;
  JIGE_CUDA_CHECK(
      cudaDeviceGetAttribute(&abilities.multiprocessors, cudaDevAttrMultiProcessorCount, index));
  JIGE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  abilities.starts_early = major >= kMajorOfEarlyStarts;
  return std::make_unique<GpuStream>(device, index, stream, abilities);
}

}  // namespace jige
