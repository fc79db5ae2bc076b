#include "kernels/cuda/emulation/emulated_device.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/emulation/current_gpu.h"
#include "kernels/cuda/emulation/device_memory.h"
#include "kernels/cuda/emulation/emulated.h"
#include "kernels/cuda/emulation/late_queue.h"
#include "tensor/cuda_device.h"
#include "tensor/upload_slots.h"

namespace jige::cuda {
namespace {

using emulation::DeviceMemory;
using emulation::LateQueue;

std::atomic<bool> streams_are_late{std::getenv("JIGE_EMULATED_LATE") != nullptr};
std::atomic<uint64_t> late_streams{0};  // made so far

class EmulatedStream final : public CudaStream {
 public:
  EmulatedStream(Device& device, int gpu) : device_(device), gpu_(gpu), place_{.gpu = gpu} {
    if (streams_are_late) queue_ = std::make_unique<LateQueue>(++late_streams);
    place_.queue = queue_.get();
  }
  ~EmulatedStream() override {
    synchronize();
    for (const Upload& upload : uploads_) release(upload.piece);
    release(scratch_);
    release(slots_piece_);
    check_zeros();
    release(zeros_);
  }
  Device& device() override { return device_; }
  void copy(void* dst, const void* src, int64_t bytes, CopyKind) override {
    if (records_only() || bytes == 0) return;
    for (const void* end : {static_cast<const void*>(dst), src}) {
      JIGE_CHECK(!DeviceMemory::belongs_to_other(gpu_, reinterpret_cast<uint64_t>(end)),
                 "a stream of GPU {} copies memory of another", gpu_);
    }
    const auto work = [=, gpu = gpu_] {
      const DeviceMemory::Access access(gpu);
      std::memcpy(dst, src, static_cast<size_t>(bytes));
    };
    queue_ ? queue_->put_late(work) : work();
  }
  void fill_zero(void* dst, int64_t bytes) override {
    if (records_only() || bytes == 0) return;
    fill(dst, bytes, std::byte{0});
  }
  Event record() override { return queue_ ? queue_->record() : Event(); }
  void wait(const Event& event) override {
    run([event] { event.wait(); });
  }
  void synchronize() override {
    if (queue_) queue_->record().wait();
  }
  void* handle() override {
    if (!record_) emulation::current_gpu() = gpu_;  // else run_repeated() did, as on a GPU
    return &place_;
  }
  LaunchRecord* launch_record() override { return record_; }
  // Once recorded only and once for real, as graphs are made: both are to be the same, but that
  // scratch may have to grow before.
  void run_repeated(const std::function<void()>& submit) override {
    emulation::current_gpu() = gpu_;
    LaunchRecord first;
    record_ = &first;
    do {
      if (slots_.bytes() > slots_piece_.bytes) {
        synchronize();
        release(slots_piece_);
        slots_piece_ = take(slots_.bytes());
      }
      first = {};
      first.records_only = true;
      moved_ = false;
      slots_.restart();
      submit();
    } while (slots_.widen() || moved_);
    send_slots();
    LaunchRecord second;
    record_ = &second;
    slots_.restart();
    submit();
    record_ = nullptr;
    JIGE_CHECK(slots_.take_changes().empty(), "contents that differ from time to time");
    JIGE_CHECK(first.fingerprint() == second.fingerprint(), "work that differs from time to time");
  }
  void run_in_pieces(const std::function<void()>& submit) override { run_repeated(submit); }
  bool records_only() const override { return record_ && record_->records_only; }
  // Cleared each time: what an earlier call left there is not to be relied on.
  void* scratch(int64_t bytes) override {
    if (bytes > scratch_.bytes) {
      synchronize();
      release(scratch_);
      scratch_ = take(bytes);
      moved_ = true;
    }
    if (records_only() || bytes == 0) return scratch_.data;
    fill(scratch_.data, bytes, std::byte{0xff});
    return scratch_.data;
  }
  void* zeros(int64_t bytes) override {
    run([this] { check_zeros(); });
    if (bytes <= zeros_.bytes) return zeros_.data;
    synchronize();
    release(zeros_);
    zeros_ = take(bytes);
    moved_ = true;
    fill(zeros_.data, bytes, std::byte{0});
    return zeros_.data;
  }
  const void* upload(const void* data, int64_t bytes) override {
    if (record_) return static_cast<std::byte*>(slots_piece_.data) + slots_.put(data, bytes);
    const auto* begin = static_cast<const std::byte*>(data);
    const std::vector<std::byte> contents(begin, begin + bytes);
    for (const Upload& upload : uploads_) {
      if (upload.contents == contents) return upload.piece.data;
    }
    if (uploads_.size() == kUploads) {
      synchronize();
      release(uploads_.front().piece);
      uploads_.erase(uploads_.begin());
    }
    uploads_.push_back({take(bytes), contents});
    send(contents, uploads_.back().piece);
    return uploads_.back().piece.data;
  }
  int multiprocessor_count() override { return 4; }
  bool starts_early() override { return false; }

 private:
  struct Piece {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  struct Upload {
    Piece piece;
    std::vector<std::byte> contents;
  };
  // At once, or in its turn.
  void run(const std::function<void()>& work) { queue_ ? queue_->put(work) : work(); }
  void fill(void* dst, int64_t bytes, std::byte value) {
    JIGE_CHECK(!DeviceMemory::belongs_to_other(gpu_, reinterpret_cast<uint64_t>(dst)),
               "a stream of GPU {} fills memory of another", gpu_);
    run([=, gpu = gpu_] {
      const DeviceMemory::Access access(gpu);
      std::fill_n(static_cast<std::byte*>(dst), bytes, value);
    });
  }
  void send(const std::vector<std::byte>& contents, const Piece& piece) {
    run([contents, piece, gpu = gpu_] {
      const DeviceMemory::Access access(gpu);
      std::copy(contents.begin(), contents.end(), static_cast<std::byte*>(piece.data));
    });
  }
  void check_zeros() const {
    const DeviceMemory::Access access(gpu_);
    const auto* at = static_cast<const std::byte*>(zeros_.data);
    JIGE_CHECK(std::all_of(at, at + zeros_.bytes, [](std::byte b) { return b == std::byte{0}; }),
               "zeros() that work left otherwise");
  }
  void send_slots() {
    const std::span<const std::byte> changes = slots_.take_changes();
    if (!changes.empty()) send({changes.begin(), changes.end()}, slots_piece_);
  }
  Piece take(int64_t bytes) const {
    const auto memory = DeviceMemory::allocate(gpu_, bytes);
    JIGE_CHECK(memory, "{}", memory.error().message);
    return {*memory, bytes};
  }
  void release(const Piece& piece) const {
    if (piece.data) DeviceMemory::release(gpu_, piece.data, piece.bytes);
  }

  Device& device_;
  int gpu_;
  emulation::StreamPlace place_;
  std::vector<Upload> uploads_;
  Piece scratch_, zeros_;
  bool moved_ = false;  // one of them
  UploadSlots slots_;   // of repeated work
  Piece slots_piece_;
  LaunchRecord* record_ = nullptr;
  std::unique_ptr<LateQueue>
      queue_;  // none: work runs at once; last, as what it runs uses the rest
};

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(int index) : index_(index) {}
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  const std::string& name() const override { return name_; }
  Result<void*> allocate(int64_t bytes) override { return DeviceMemory::allocate(index_, bytes); }
  void release(void* data, int64_t bytes) override { DeviceMemory::release(index_, data, bytes); }
  Result<void*> allocate_host(int64_t bytes) override {
    return ::operator new(static_cast<size_t>(bytes));
  }
  void release_host(void* data, int64_t) override { ::operator delete(data); }
  Result<std::unique_ptr<Stream>> make_stream() override {
    return std::make_unique<EmulatedStream>(*this, index_);
  }

 private:
  int index_;
  std::string name_ = "emulated" + std::to_string(index_);
};

}  // namespace

std::unique_ptr<Device> make_emulated_device(int index) {
  return std::make_unique<EmulatedDevice>(index);
}

bool set_emulated_streams_late(bool late) { return streams_are_late.exchange(late); }

}  // namespace jige::cuda
