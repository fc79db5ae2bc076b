#include "serve/draft_finder.h"

#include <algorithm>

#include "base/check.h"

namespace jige::serve {
namespace {

constexpr int64_t kFirstLength = 3;
constexpr int64_t kFirstPause = 4;

// FNV-1a over whole tokens.
uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

DraftFinder::DraftFinder(int64_t draft_max)
    : draft_max_(draft_max), length_(std::min(kFirstLength, draft_max)), next_pause_(kFirstPause) {}

void DraftFinder::append(std::span<const int32_t> tokens) {
  if (draft_max_ == 0) return;
  for (const int32_t token : tokens) {
    tokens_.push_back(token);
    index_end();
  }
  pause_ = std::max<int64_t>(pause_ - std::ssize(tokens), 0);
}

void DraftFinder::index_end() {
  const std::span<const int32_t> all = tokens_;
  for (size_t count = kMatchMin; count <= std::min(kMatchMax, all.size()); ++count) {
    Places& places = places_[count - kMatchMin][hash_of(all.last(count))];
    places.earlier = places.latest;
    places.latest = static_cast<int32_t>(all.size());
  }
}

std::span<const int32_t> DraftFinder::draft(int64_t limit) const {
  const int64_t most = std::min(limit, length_);
  if (pause_ > 0 || most <= 0) return {};
  const std::span<const int32_t> all = tokens_;
  for (size_t count = std::min(kMatchMax, all.size()); count >= kMatchMin; --count) {
    const auto found = places_[count - kMatchMin].find(hash_of(all.last(count)));
    if (found == places_[count - kMatchMin].end() || found->second.earlier < 0) continue;
    const auto begin = static_cast<size_t>(found->second.earlier);
    return all.subspan(begin, std::min(static_cast<size_t>(most), all.size() - begin));
  }
  return {};
}

void DraftFinder::judge(size_t drafted, size_t accepted) {
  JIGE_CHECK(accepted <= drafted, "{} of {} draft tokens accepted", accepted, drafted);
  if (drafted == 0) return;
  rate_ += (static_cast<double>(accepted) / static_cast<double>(drafted) - rate_) / 4;
  const auto right = static_cast<int64_t>(accepted);
  length_ = accepted == drafted ? 2 * length_ : accepted == 0 ? length_ / 2 : right + 1;
  length_ = std::clamp<int64_t>(length_, 1, draft_max_);
  if (accepted < drafted && (accepted == 0 || rate_ < kRateMin)) {
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kPauseMax);
  } else if (rate_ >= kRateMin) {
    next_pause_ = kFirstPause;
  }
}

}  // namespace jige::serve
