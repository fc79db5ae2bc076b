#include "kernels/cuda/emulation/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "base/check.h"
#include "base/split.h"
#include "kernels/cuda/emulation/emulated.h"

namespace jige::cuda::emulation {
namespace {

constexpr int64_t kAlignment = 256;

int64_t rounded(int64_t bytes) { return (bytes + kAlignment) / kAlignment * kAlignment; }

// Address space, whose free parts are known by where they begin.
struct Region {
  std::mutex mutex;
  std::byte* begin = nullptr;
  std::map<int64_t, int64_t> free;  // bytes by offset
  int64_t used = 0;
  int accesses = 0;

  Region() {
    void* const memory = mmap(nullptr, DeviceMemory::kBytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    JIGE_CHECK(memory != MAP_FAILED, "no address space for an emulated GPU");
    begin = static_cast<std::byte*>(memory);
    madvise(begin, DeviceMemory::kBytes, MADV_HUGEPAGE);  // fewer pages to protect
    free[0] = DeviceMemory::kBytes;
  }

  void protect(int protection) const {
    JIGE_CHECK(mprotect(begin, DeviceMemory::kBytes, protection) == 0, "mprotect failed");
  }
  bool holds(uint64_t address) const {
    return address - reinterpret_cast<uint64_t>(begin) < uint64_t{DeviceMemory::kBytes};
  }
};

// One for each GPU that was asked for, which stay.
std::array<std::atomic<Region*>, DeviceMemory::kGpusMax> regions;

Region& region(int gpu) {
  JIGE_CHECK(0 <= gpu && gpu < DeviceMemory::kGpusMax, "an emulated GPU {}", gpu);
  static std::mutex mutex;
  std::atomic<Region*>& one = regions[static_cast<size_t>(gpu)];
  if (Region* const made = one.load()) return *made;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!one.load()) one = new Region();
  return *one.load();
}

// The GPU that has this address, or -1.
int owner_of(uint64_t address) {
  for (int gpu = 0; gpu < DeviceMemory::kGpusMax; ++gpu) {
    const Region* const one = regions[static_cast<size_t>(gpu)].load();
    if (one && one->holds(address)) return gpu;
  }
  return -1;
}

}  // namespace

DeviceMemory::Access::Access(int gpu) : gpu_(gpu) {
  Region& one = region(gpu_);
  const std::lock_guard<std::mutex> lock(one.mutex);
  if (++one.accesses == 1) one.protect(PROT_READ | PROT_WRITE);
}

DeviceMemory::Access::~Access() {
  Region& one = region(gpu_);
  const std::lock_guard<std::mutex> lock(one.mutex);
  if (--one.accesses == 0) one.protect(PROT_NONE);
}

int64_t DeviceMemory::size_bytes(int gpu) {
  const char* const sizes = std::getenv("JIGE_EMULATED_MIB");
  if (!sizes) return kBytes;
  const auto items = split_at(sizes, ',');
  const size_t item = std::min(static_cast<size_t>(gpu), items.size() - 1);
  return std::min(int64_t{std::atoi(std::string(items[item]).c_str())} << 20, kBytes);
}

int64_t DeviceMemory::free_bytes(int gpu) {
  Region& one = region(gpu);
  const std::lock_guard<std::mutex> lock(one.mutex);
  return size_bytes(gpu) - one.used;
}

bool DeviceMemory::looks_like_host(uint64_t word) {
  // Where Linux maps programs, heaps, libraries, files and stacks on x86-64.
  constexpr uint64_t kFirst = 0x550000000000;
  constexpr uint64_t kLast = 0x7fffffffffff;
  if (word < kFirst || word > kLast) return false;
  return owner_of(word) < 0 && owner_of(word - 1) < 0;  // one behind the last byte is a GPU's
}

bool DeviceMemory::belongs_to_other(int gpu, uint64_t address) {
  const int owner = owner_of(address);
  return owner >= 0 && owner != gpu;
}

Result<void*> DeviceMemory::allocate(int gpu, int64_t bytes) {
  if (bytes == 0) return nullptr;  // as the driver does
  Region& one = region(gpu);
  const Access access(gpu);
  const std::lock_guard<std::mutex> lock(one.mutex);
  const int64_t wanted = rounded(bytes);
  for (auto it = one.free.begin(); it != one.free.end(); ++it) {
    const auto [offset, length] = *it;
    if (length < wanted || one.used + wanted > size_bytes(gpu)) continue;
    one.free.erase(it);
    if (length > wanted) one.free[offset + wanted] = length - wanted;
    one.used += wanted;
    std::memset(one.begin + offset, 0xff, static_cast<size_t>(wanted));
    return one.begin + offset;
  }
  return fail(Code::kExhausted, "the emulated GPU {} has no {} bytes left", gpu, bytes);
}

void DeviceMemory::release(int gpu, void* data, int64_t bytes) {
  if (!data) return;
  Region& one = region(gpu);
  JIGE_CHECK(one.holds(reinterpret_cast<uint64_t>(data)), "memory that GPU {} did not give", gpu);
  const std::lock_guard<std::mutex> lock(one.mutex);
  one.used -= rounded(bytes);
  const auto at = one.free.emplace(static_cast<std::byte*>(data) - one.begin, rounded(bytes)).first;
  if (const auto next = std::next(at);
      next != one.free.end() && at->first + at->second == next->first) {
    at->second += next->second;
    one.free.erase(next);
  }
  if (at == one.free.begin()) return;
  const auto before = std::prev(at);
  if (before->first + before->second != at->first) return;
  before->second += at->second;
  one.free.erase(at);
}

void check_argument(int gpu, const void* value, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(value);
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, at + i, sizeof word);
    JIGE_CHECK(!DeviceMemory::looks_like_host(word),
               "byte {} of an argument of a kernel is an address of host memory", i);
    JIGE_CHECK(!DeviceMemory::belongs_to_other(gpu, word),
               "byte {} of an argument of a kernel of GPU {} is an address of another's memory", i,
               gpu);
  }
}

}  // namespace jige::cuda::emulation
