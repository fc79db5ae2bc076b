#include "kernels/cuda/emulation/emulated_device.h"

#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/emulation/device_memory.h"
#include "tensor/cuda_device.h"

namespace jige::cuda {
namespace {

using emulation::DeviceMemory;

class EmulatedStream final : public CudaStream {
 public:
  explicit EmulatedStream(Device& device) : device_(device) {}
  ~EmulatedStream() override {
    for (const Piece& piece : uploads_) release(piece);
    release(scratch_);
  }
  Device& device() override { return device_; }
  void copy(void* dst, const void* src, int64_t bytes, CopyKind) override {
    const DeviceMemory::Access access;
    if (bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));
  }
  void fill_zero(void* dst, int64_t bytes) override {
    const DeviceMemory::Access access;
    if (bytes > 0) std::memset(dst, 0, static_cast<size_t>(bytes));
  }
  Event record() override { return Event(); }
  void wait(const Event& event) override { event.wait(); }
  void synchronize() override {}
  void* handle() override { return nullptr; }
  // New memory each time: what an earlier call left there is not to be relied on.
  void* scratch(int64_t bytes) override {
    release(scratch_);
    scratch_ = take(bytes);
    return scratch_.data;
  }
  const void* upload(const void* data, int64_t bytes) override {
    if (uploads_.size() == kUploads) {
      release(uploads_.front());
      uploads_.erase(uploads_.begin());
    }
    uploads_.push_back(take(bytes));
    copy(uploads_.back().data, data, bytes, CopyKind::kHostToDevice);
    return uploads_.back().data;
  }
  int multiprocessor_count() override { return 4; }

 private:
  struct Piece {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  static Piece take(int64_t bytes) {
    const auto memory = DeviceMemory::allocate(bytes);
    JIGE_CHECK(memory, "{}", memory.error().message);
    return {*memory, bytes};
  }
  static void release(const Piece& piece) {
    if (piece.data) DeviceMemory::release(piece.data, piece.bytes);
  }

  Device& device_;
  std::vector<Piece> uploads_;
  Piece scratch_;
};

class EmulatedDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  const std::string& name() const override { return name_; }
  Result<void*> allocate(int64_t bytes) override { return DeviceMemory::allocate(bytes); }
  void release(void* data, int64_t bytes) override { DeviceMemory::release(data, bytes); }
  Result<void*> allocate_host(int64_t bytes) override {
    return ::operator new(static_cast<size_t>(bytes));
  }
  void release_host(void* data, int64_t) override { ::operator delete(data); }
  Result<std::unique_ptr<Stream>> make_stream() override {
    return std::make_unique<EmulatedStream>(*this);
  }

 private:
  std::string name_ = "emulated0";
};

}  // namespace

std::unique_ptr<Device> make_emulated_device() { return std::make_unique<EmulatedDevice>(); }

}  // namespace jige::cuda
