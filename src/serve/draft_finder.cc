#include "serve/draft_finder.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace jige::serve {
namespace {

constexpr uint64_t kSlotsMin = 64;
constexpr uint64_t kSlotsMax = uint64_t{1} << 15;

uint64_t slots_for(int64_t tokens_max) {
  return std::bit_ceil(std::clamp(static_cast<uint64_t>(tokens_max), kSlotsMin, kSlotsMax));
}

// How many tokens before `a` and before `b`, which comes later, are the same.
size_t same_before(const TokenSequence& tokens, size_t a, size_t b) {
  size_t count = 0;
  while (count < std::min(a, kEqualTokensMax) && tokens[a - count - 1] == tokens[b - count - 1]) {
    ++count;
  }
  return count;
}

}  // namespace

DraftFinder::DraftFinder(int64_t tokens_max)
    : slot_mask_(slots_for(tokens_max) - 1), places_((slot_mask_ + 1) * kDraftLevelCount) {}

int64_t DraftFinder::bytes_for(int64_t tokens_max) {
  return static_cast<int64_t>(slots_for(tokens_max) * kDraftLevelCount * sizeof(int32_t));
}

void DraftFinder::clear() {
  std::ranges::fill(places_, 0);
  followed_ = 0;
  equal_tokens_ = 0;
}

// Of the n-gram that ends before `end`.
size_t DraftFinder::slot(const TokenSequence& tokens, size_t end, int32_t level) const {
  uint64_t hash = 0;
  for (size_t i = end - kDraftOrders[level]; i < end; ++i) {
    hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return (hash >> 20 & slot_mask_) + static_cast<size_t>(level) * (slot_mask_ + 1);
}

void DraftFinder::follow(const TokenSequence& tokens) {
  JIGE_CHECK(tokens.size() >= followed_, "{} tokens behind {}", tokens.size(), followed_);
  if (tokens.size() == followed_) return;
  while (followed_ < tokens.size()) {
    const size_t end = ++followed_;
    if (end == tokens.size()) look_up(tokens);  // before its own n-grams are the latest
    for (int32_t level = 0; level < kDraftLevelCount; ++level) {
      if (end < kDraftOrders[level]) continue;
      places_[slot(tokens, end, level)] = static_cast<int32_t>(end);
    }
  }
}

void DraftFinder::look_up(const TokenSequence& tokens) {
  equal_tokens_ = 0;
  const size_t end = tokens.size();
  for (int32_t level = 0; level < kDraftLevelCount; ++level) {
    const size_t order = kDraftOrders[level];
    if (end <= order) continue;
    const auto place = static_cast<size_t>(places_[slot(tokens, end, level)]);
    const size_t equal = place == 0 ? 0 : same_before(tokens, place, end);
    if (equal < order) continue;
    equal_tokens_ = equal;
    source_ = place;
    return;
  }
}

void DraftFinder::draft(const TokenSequence& tokens, int32_t count,
                        std::vector<int32_t>& draft) const {
  JIGE_CHECK(equal_tokens_ > 0 && draft.empty() && tokens.size() == followed_,
             "no draft of these tokens");
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    const size_t from = source_ + i;
    draft.push_back(from < tokens.size() ? tokens[from] : draft[from - tokens.size()]);
  }
}

}  // namespace jige::serve
