#include "plan/prefix_index.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace jige::plan {

PrefixIndex::PrefixIndex(size_t capacity) : capacity_(capacity) {
  JIGE_CHECK(capacity > 0, "an index of beginnings needs room for one");
}

void PrefixIndex::touch(std::span<const uint64_t> chain) {
  const auto kept = chain.first(std::min(chain.size(), capacity_));
  for (auto hash = kept.rbegin(); hash != kept.rend(); ++hash) {
    const auto [place, is_new] = places_.try_emplace(*hash);
    if (is_new) {
      place->second = order_.insert(order_.end(), *hash);
    } else {
      order_.splice(order_.end(), order_, place->second);
    }
  }
  // Only now: what was in the way of this chain is never a part of it.
  while (places_.size() > capacity_) {
    places_.erase(order_.front());
    order_.pop_front();
  }
}

size_t PrefixIndex::match(std::span<const uint64_t> chain) const {
  const auto first_unknown =
      std::ranges::partition_point(chain, [this](uint64_t hash) { return places_.contains(hash); });
  return static_cast<size_t>(std::distance(chain.begin(), first_unknown));
}

void PrefixIndex::clear() {
  order_.clear();
  places_.clear();
}

}  // namespace jige::plan
