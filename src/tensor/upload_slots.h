// UploadSlots: small contents that repeated work has on a device, gathered so that one copy sends
// them (CudaStream::run_repeated).
//
// Whoever goes through the work puts its contents in the same order each time: every turn has a
// slot of its own, so contents change from time to time and their place stays. A slot that proves
// too small makes all of them move; then the work is gone through again. Threads: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace jige {

class UploadSlots {
 public:
  // The work begins.
  void restart() { taken_ = 0; }
  // Where these contents are, in bytes from the beginning of all; those of an earlier turn that are
  // the same are those.
  int64_t put(const void* data, int64_t bytes);
  // Whether contents did not fit since it was asked last; there is room now, elsewhere.
  bool widen();
  // Of all slots, and some more in the beginning, so that there is memory to name.
  int64_t bytes() const { return std::max(kLeast, static_cast<int64_t>(contents_.size())); }
  // What the device is to hold since restart(), from the beginning of all; empty where it does,
  // which is taken for granted from now on.
  std::span<const std::byte> take_changes();

 private:
  static constexpr int64_t kLeast = 4096;  // of a slot
  struct Slot {
    int64_t begin = 0, capacity = 0;
    int64_t wanted = 0;  // more than there is room for, or 0
    int64_t bytes = -1;  // of what is there; -1: nothing
  };
  bool holds(const Slot& slot, const void* data, int64_t bytes) const;

  std::vector<Slot> slots_;
  size_t taken_ = 0;
  std::vector<std::byte> contents_;
  bool too_small_ = false;
  bool changed_ = false;
};

}  // namespace jige
