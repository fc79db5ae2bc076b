// ConstraintMemory: how many bytes the constraints of one compiler take together, at most, and the
// ones among them that are kept for requests to come.
//
// A MemoryShare is what one owner has taken. Where a share would pass what is left, kept
// constraints that no answer uses go, the one used least lately first; what answers use stays.
// Invariant: the bytes of all shares are at most bytes_max().
// Threads: memory: any number at once; a share: one at a time.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"

namespace jige::grammar {

class Constraint;
class MemoryShare;

inline constexpr size_t kConstraintsMax = 16;  // kept

class ConstraintMemory {
 public:
  explicit ConstraintMemory(size_t bytes_max) : bytes_max_(bytes_max) {}

  size_t bytes_max() const { return bytes_max_; }
  size_t bytes_taken() const;
  size_t kept_count() const;

  // The constraint kept under a key, which then is the one used last; null where there is none.
  std::shared_ptr<Constraint> find(std::string_view key);
  // Keeps a constraint, in the place of one with its key. Where there is no room for the key, it is
  // not kept.
  void keep(std::string key, std::shared_ptr<Constraint> constraint);
  // Kept constraints hold the memory that keeps them: whoever made it calls this at the end.
  void forget_all();

 private:
  friend class MemoryShare;
  struct Kept {
    std::string key;
    std::shared_ptr<Constraint> constraint;
  };
  using List = std::list<Kept>;

  bool take(size_t bytes);
  void give_back(size_t bytes);
  // Moves an entry out of the list; its key's bytes are free then. REQUIRES: mutex_ is held.
  void take_out(List::iterator entry, List& gone);

  const size_t bytes_max_;
  mutable std::mutex mutex_;  // guards what follows; no constraint is destroyed under it
  size_t bytes_taken_ = 0;
  List kept_;  // the one used last in front
};

class MemoryShare {
 public:
  // Without a memory there is no limit.
  explicit MemoryShare(std::shared_ptr<ConstraintMemory> memory) : memory_(std::move(memory)) {}
  MemoryShare(MemoryShare&& other) noexcept
      : memory_(std::move(other.memory_)), bytes_(other.bytes_) {}
  MemoryShare& operator=(MemoryShare&&) = delete;
  ~MemoryShare() {
    if (memory_) memory_->give_back(bytes_);
  }

  // Takes so many bytes more. Fails with kExhausted where the share alone would pass the whole
  // memory, and with kUnavailable where what others use leaves too little.
  Status take(size_t bytes);

 private:
  std::shared_ptr<ConstraintMemory> memory_;
  size_t bytes_ = 0;
};

}  // namespace jige::grammar
