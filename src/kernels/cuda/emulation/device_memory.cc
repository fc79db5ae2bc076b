#include "kernels/cuda/emulation/device_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>

#include "base/check.h"

namespace jige::cuda::emulation {
namespace {

constexpr int64_t kAlignment = 256;

int64_t rounded(int64_t bytes) { return (bytes + kAlignment) / kAlignment * kAlignment; }

// Address space, whose free parts are known by where they begin.
struct Region {
  std::mutex mutex;
  std::byte* begin = nullptr;
  std::map<int64_t, int64_t> free;  // bytes by offset
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
};

Region& region() {
  static Region one;
  return one;
}

}  // namespace

DeviceMemory::Access::Access() {
  Region& one = region();
  const std::lock_guard<std::mutex> lock(one.mutex);
  if (++one.accesses == 1) one.protect(PROT_READ | PROT_WRITE);
}

DeviceMemory::Access::~Access() {
  Region& one = region();
  const std::lock_guard<std::mutex> lock(one.mutex);
  if (--one.accesses == 0) one.protect(PROT_NONE);
}

bool DeviceMemory::looks_like_host(uint64_t word) {
  // Where Linux maps programs, heaps, libraries, files and stacks on x86-64.
  constexpr uint64_t kFirst = 0x550000000000;
  constexpr uint64_t kLast = 0x7fffffffffff;
  if (word < kFirst || word > kLast) return false;
  const uint64_t offset = word - reinterpret_cast<uint64_t>(region().begin);
  return offset > static_cast<uint64_t>(kBytes);
}

Result<void*> DeviceMemory::allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;  // as the driver does
  Region& one = region();
  const Access access;
  const std::lock_guard<std::mutex> lock(one.mutex);
  const int64_t wanted = rounded(bytes);
  for (auto it = one.free.begin(); it != one.free.end(); ++it) {
    const auto [offset, length] = *it;
    if (length < wanted) continue;
    one.free.erase(it);
    if (length > wanted) one.free[offset + wanted] = length - wanted;
    std::memset(one.begin + offset, 0xff, static_cast<size_t>(wanted));
    return one.begin + offset;
  }
  return fail(Code::kExhausted, "the emulated GPU has no {} bytes left", bytes);
}

void DeviceMemory::release(void* data, int64_t bytes) {
  if (!data) return;
  Region& one = region();
  const std::lock_guard<std::mutex> lock(one.mutex);
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

}  // namespace jige::cuda::emulation
