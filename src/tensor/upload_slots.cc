#include "tensor/upload_slots.h"

#include <algorithm>
#include <cstring>

namespace jige {

bool UploadSlots::holds(const Slot& slot, const void* data, int64_t bytes) const {
  return slot.bytes == bytes &&
         std::memcmp(contents_.data() + slot.begin, data, static_cast<size_t>(bytes)) == 0;
}

int64_t UploadSlots::put(const void* data, int64_t bytes) {
  for (size_t i = 0; i < taken_; ++i) {
    if (holds(slots_[i], data, bytes)) return slots_[i].begin;
  }
  if (taken_ == slots_.size()) slots_.push_back({.begin = std::ssize(contents_)});
  Slot& slot = slots_[taken_++];
  if (bytes > slot.capacity) {
    slot.wanted = std::max(slot.wanted, bytes);
    too_small_ = true;
  } else if (!holds(slot, data, bytes)) {
    std::memcpy(contents_.data() + slot.begin, data, static_cast<size_t>(bytes));
    slot.bytes = bytes;
    changed_ = true;
  }
  return slot.begin;
}

bool UploadSlots::widen() {
  constexpr int64_t kAlignment = 256;
  if (!too_small_) return false;
  int64_t end = 0;
  for (Slot& slot : slots_) {
    if (slot.wanted > 0) slot.capacity = std::max({kLeast, slot.wanted, 2 * slot.capacity});
    slot = {.begin = end, .capacity = (slot.capacity + kAlignment - 1) / kAlignment * kAlignment};
    end += slot.capacity;
  }
  contents_.assign(static_cast<size_t>(end), std::byte{0});
  too_small_ = false;
  return true;
}

std::span<const std::byte> UploadSlots::take_changes() {
  if (!changed_) return {};
  changed_ = false;
  int64_t end = 0;
  for (size_t i = 0; i < taken_; ++i) {
    end = std::max(end, slots_[i].begin + std::max<int64_t>(0, slots_[i].bytes));
  }
  return std::span(contents_).first(static_cast<size_t>(end));
}

}  // namespace jige
