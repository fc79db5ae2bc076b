// The two-way table between token texts and ids of a model. Ids may have holes.
//
// Invariant: every text has one id; an id given to two texts shows the later text.
// Threads: immutable after building; const members from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"

namespace jige::text {

// Larger ids are refused, so that a lying file cannot ask for the memory they imply.
inline constexpr int64_t kTokenIdMax = (int64_t{1} << 24) - 1;

class Vocabulary {
 public:
  // Takes (text, id) pairs. Fails with kCorrupt on an id below 0 or above kTokenIdMax, naming it.
  static Result<Vocabulary> create(std::vector<std::pair<std::string, int64_t>> entries,
                                   std::string_view where);

  // The id of a token text, or -1.
  int32_t find(std::string_view token) const {
    const auto it = ids_.find(token);
    return it == ids_.end() ? -1 : it->second;
  }
  // Whether the id has a text.
  bool contains(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < tokens_.size() && tokens_[static_cast<size_t>(id)];
  }
  // REQUIRES: contains(id).
  const std::string& token(int32_t id) const { return *tokens_[static_cast<size_t>(id)]; }
  // One more than the largest id.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  // The texts live in a block that never moves, so that views of them stay good.
  std::shared_ptr<const std::vector<std::pair<std::string, int64_t>>> entries_;
  std::unordered_map<std::string_view, int32_t> ids_;
  std::vector<const std::string*> tokens_;
};

}  // namespace jige::text
