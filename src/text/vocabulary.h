// The two-way table between token texts and ids of a model. Ids may have holes.
//
// Layout: texts stand in the list that was given; slots of open addressing, at least twice as many
// as texts, hold a text's place in it, its id and a part of its hash, so that most slots of other
// texts are passed without a look at their text.
// Invariant: every text has one id; an id given to two texts shows the later text.
// Threads: immutable after building; const members from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/hash.h"

namespace jige::text {

// Larger ids are refused, so that a lying file cannot ask for the memory they imply.
inline constexpr int64_t kTokenIdMax = (int64_t{1} << 24) - 1;

class Vocabulary {
 public:
  // Takes (text, id) pairs; of a text given twice the last id counts. Fails with kCorrupt on an id
  // below 0 or above kTokenIdMax, naming it, and on texts made to fall on the same slots.
  static Result<Vocabulary> create(std::vector<std::pair<std::string, int64_t>> entries,
                                   std::string_view where);

  // The id of a token text, or -1.
  int32_t find(std::string_view token) const { return slots_[position(token)].id; }
  // The same of many texts at once, which is faster: memory is waited for side by side. REQUIRES:
  // as many ids as tokens.
  void find_all(std::span<const std::string_view> tokens, std::span<int32_t> ids) const;
  // Whether the id has a text.
  bool contains(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < tokens_.size() && tokens_[static_cast<size_t>(id)];
  }
  // REQUIRES: contains(id).
  const std::string& token(int32_t id) const { return *tokens_[static_cast<size_t>(id)]; }
  // One more than the largest id.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  struct Slot {
    uint32_t tag = 0;
    uint32_t entry = 0;
    int32_t id = -1;  // -1: the slot is free
  };
  // Where a text is, or the free slot where it would be.
  size_t position(std::string_view token) const {
    const uint64_t hash = hash_bytes(token);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id < 0 || (slot.tag == tag && (*entries_)[slot.entry].first == token)) return i;
    }
  }

  // A block that never moves, so that pointers to its texts stay good.
  std::shared_ptr<const std::vector<std::pair<std::string, int64_t>>> entries_;
  std::vector<Slot> slots_;  // a power of two
  size_t mask_ = 0;
  std::vector<const std::string*> tokens_;
};

}  // namespace jige::text
