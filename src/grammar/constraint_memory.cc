#include "grammar/constraint_memory.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "grammar/constraint.h"

namespace jige::grammar {
namespace {

constexpr size_t kEntryBytes = 128;  // of the list, beside the key and the constraint

}  // namespace

size_t ConstraintMemory::bytes_taken() const {
  const std::lock_guard lock(mutex_);
  return bytes_taken_;
}

size_t ConstraintMemory::kept_count() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

std::shared_ptr<Constraint> ConstraintMemory::find(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(kept_, key, &Kept::key);
  if (known == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, known);
  return known->constraint;
}

void ConstraintMemory::keep(std::string key, std::shared_ptr<Constraint> constraint) {
  const size_t bytes = key.size() + kEntryBytes;
  const bool room = take(bytes);
  List gone;  // is destroyed behind the lock
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(kept_, key, &Kept::key);
  if (known != kept_.end()) take_out(known, gone);
  if (!room) return;
  kept_.push_front({std::move(key), std::move(constraint)});
  if (kept_.size() > kConstraintsMax) take_out(std::prev(kept_.end()), gone);
}

void ConstraintMemory::forget_all() {
  List gone;
  const std::lock_guard lock(mutex_);
  while (!kept_.empty()) take_out(kept_.begin(), gone);
}

bool ConstraintMemory::take(size_t bytes) {
  while (true) {
    List gone;  // one at most, which gives its bytes back before the next turn
    const std::lock_guard lock(mutex_);
    if (bytes <= bytes_max_ - bytes_taken_) {
      bytes_taken_ += bytes;
      return true;
    }
    // Whoever uses one got it from find(), and so under the lock.
    const auto idle = std::find_if(kept_.rbegin(), kept_.rend(), [](const Kept& kept) {
      return kept.constraint.use_count() == 1;
    });
    if (idle == kept_.rend()) return false;
    take_out(std::prev(idle.base()), gone);
  }
}

void ConstraintMemory::give_back(size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_taken_ -= bytes;
}

void ConstraintMemory::take_out(List::iterator entry, List& gone) {
  bytes_taken_ -= entry->key.size() + kEntryBytes;
  gone.splice(gone.end(), kept_, entry);
}

Status MemoryShare::take(size_t bytes) {
  if (!memory_) return {};
  if (bytes_ + bytes > memory_->bytes_max()) {
    return fail(
        Code::kExhausted,
        "the constraint takes more than {}, which is all that constraints may take; make it "
        "simpler",
        format_bytes(static_cast<int64_t>(memory_->bytes_max())));
  }
  if (!memory_->take(bytes)) {
    return fail(
        Code::kUnavailable,
        "the constraints of other answers leave too little of the {} that all may take; try "
        "again later",
        format_bytes(static_cast<int64_t>(memory_->bytes_max())));
  }
  bytes_ += bytes;
  return {};
}

}  // namespace jige::grammar
