#include "tensor/cpu_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/cpu.h"

namespace jige {
namespace {

constexpr size_t kAlignment = 64;

// Memory from this size on asks for huge pages: fewer page faults while it is filled, and fewer
// misses of the address cache while weights are streamed through.
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kHugeFromBytes = kHugePageBytes;

// Memory from this size on has pages of its own and goes back to the system at once: buffers that
// come and go with the tasks of a schedule leave nothing behind.
constexpr size_t kPageBytes = 4096;
constexpr size_t kMapFromBytes = size_t{64} << 10;

constexpr size_t kScratchHugeFromBytes = size_t{1} << 18;
static_assert(CpuDevice::kScratchUnitBytes == kHugePageBytes);

size_t whole(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Null when the system has no room.
void* map_pages(size_t bytes) {
  const size_t length = whole(bytes, kPageBytes);
  const size_t alignment = bytes >= kHugeFromBytes ? kHugePageBytes : kPageBytes;
  const size_t mapped = length + alignment - kPageBytes;
  if (mapped < bytes) return nullptr;
  void* const start =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(start);
  const size_t skipped =
      whole(reinterpret_cast<uintptr_t>(first), alignment) - reinterpret_cast<uintptr_t>(first);
  if (skipped > 0) munmap(first, skipped);
  if (const size_t rest = mapped - skipped - length; rest > 0) {
    munmap(first + skipped + length, rest);
  }
  // Whole huge pages only, so that no memory beyond `bytes` becomes resident. A system without
  // them refuses, which changes nothing.
  if (alignment == kHugePageBytes) {
    madvise(first + skipped, bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  }
  return first + skipped;
}

constexpr int64_t kBytesPerRange = int64_t{1} << 20;  // that are worth sharing with the team

void copy_bytes(CpuDevice& device, void* dst, const void* src, int64_t bytes) {
  device.team().parallel_for(bytes, kBytesPerRange, [&](int64_t begin, int64_t end, int) {
    std::memcpy(static_cast<std::byte*>(dst) + begin, static_cast<const std::byte*>(src) + begin,
                static_cast<size_t>(end - begin));
  });
}

void clear_bytes(CpuDevice& device, void* dst, int64_t bytes) {
  device.team().parallel_for(bytes, kBytesPerRange, [&](int64_t begin, int64_t end, int) {
    std::memset(static_cast<std::byte*>(dst) + begin, 0, static_cast<size_t>(end - begin));
  });
}

class CpuEventState final : public Event::State {
 public:
  bool complete() const override { return done_.load(std::memory_order_acquire); }
  void wait() override { done_.wait(false, std::memory_order_acquire); }
  void finish() {
    done_.store(true, std::memory_order_release);
    done_.notify_all();
  }

 private:
  std::atomic<bool> done_{false};
};

class InlineStream final : public CpuStream {
 public:
  explicit InlineStream(CpuDevice& device) : device_(device) {}
  Device& device() override { return device_; }
  CpuDevice& cpu() override { return device_; }
  void submit(Work work) override { work(); }
  void copy(void* dst, const void* src, int64_t bytes, CopyKind) override {
    copy_bytes(device_, dst, src, bytes);
  }
  void fill_zero(void* dst, int64_t bytes) override { clear_bytes(device_, dst, bytes); }
  Event record() override { return Event(); }
  void wait(const Event& event) override { event.wait(); }
  void synchronize() override {}

 private:
  CpuDevice& device_;
};

class QueuedStream final : public CpuStream {
 public:
  explicit QueuedStream(CpuDevice& device) : device_(device), thread_([this] { main(); }) {}
  ~QueuedStream() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Device& device() override { return device_; }
  CpuDevice& cpu() override { return device_; }
  void submit(Work work) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void copy(void* dst, const void* src, int64_t bytes, CopyKind) override {
    submit([=, this] { copy_bytes(device_, dst, src, bytes); });
  }
  void fill_zero(void* dst, int64_t bytes) override {
    submit([=, this] { clear_bytes(device_, dst, bytes); });
  }
  Event record() override {
    auto state = std::make_shared<CpuEventState>();
    submit([state] { state->finish(); });
    return Event(state);
  }
  void wait(const Event& event) override {
    submit([event] { event.wait(); });
  }
  void synchronize() override { record().wait(); }

 private:
  // Runs work until told to stop and the queue is empty.
  void main() {
    for (;;) {
      Work work;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  CpuDevice& device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool stopping_ = false;
  std::thread thread_;  // last: it starts when the rest is there
};

}  // namespace

// From a huge page on it has pages of its own, which go back to the system whole: in the heap, what
// one device gave back would stay beside what the next one takes.
struct CpuDevice::Scratch {
  void* data = nullptr;
  std::atomic<int64_t> bytes{0};
  ~Scratch() { release(); }
  void release() {
    const auto size = static_cast<size_t>(bytes.load(std::memory_order_relaxed));
    if (size < kHugePageBytes) {
      std::free(data);
    } else {
      munmap(data, size);
    }
  }
};

CpuDevice::CpuDevice(CpuDeviceOptions options)
    : name_(std::move(options.name)),
      queued_streams_(options.queued_streams),
      team_(options.thread_count > 0 ? options.thread_count
                                     : std::max(cpu_features().logical_count, 1)) {
  for (int worker = 0; worker < team_.size(); ++worker) {
    scratches_.push_back(std::make_unique<Scratch>());
  }
}

CpuDevice::~CpuDevice() = default;

Result<void*> CpuDevice::allocate(int64_t bytes) {
  JIGE_CHECK(bytes >= 0, "{} bytes", bytes);
  const size_t size = static_cast<size_t>(bytes);
  void* data = size < kMapFromBytes ? std::aligned_alloc(kAlignment, whole(size + 1, kAlignment))
                                    : map_pages(size);
  if (!data) return fail(Code::kExhausted, "{}: the system has no {} bytes left", name_, bytes);
  return data;
}

void CpuDevice::release(void* data, int64_t bytes) {
  const size_t size = static_cast<size_t>(bytes);
  if (size < kMapFromBytes) return std::free(data);
  munmap(data, whole(size, kPageBytes));
}

Result<std::unique_ptr<Stream>> CpuDevice::make_stream() {
  if (queued_streams_) return std::make_unique<QueuedStream>(*this);
  return std::make_unique<InlineStream>(*this);
}

void* CpuDevice::scratch(int worker, int64_t bytes) {
  Scratch& slot = *scratches_[static_cast<size_t>(worker)];
  if (slot.bytes.load(std::memory_order_relaxed) < bytes) {
    slot.release();
    const auto rounded = static_cast<size_t>(scratch_bytes_held(bytes));
    slot.data =
        rounded >= kHugePageBytes ? map_pages(rounded) : std::aligned_alloc(kPageBytes, rounded);
    JIGE_CHECK(slot.data, "{}: no {} bytes of scratch", name_, bytes);
    slot.bytes.store(static_cast<int64_t>(rounded), std::memory_order_relaxed);
  }
  return slot.data;
}

// A large one is read in many short pieces that lie apart: few pages hold them all.
int64_t CpuDevice::scratch_bytes_held(int64_t bytes) {
  const auto wanted = static_cast<size_t>(bytes);
  return static_cast<int64_t>(
      whole(wanted, wanted >= kScratchHugeFromBytes ? kHugePageBytes : kPageBytes));
}

int64_t CpuDevice::scratch_bytes() const {
  int64_t total = 0;
  for (const auto& slot : scratches_) total += slot->bytes.load(std::memory_order_relaxed);
  return total;
}

CpuStream& as_cpu(Stream& stream) {
  JIGE_CHECK(stream.device().kind() == DeviceKind::kCpu, "stream of {} is no CPU stream",
             stream.device().name());
  return static_cast<CpuStream&>(stream);
}

}  // namespace jige
