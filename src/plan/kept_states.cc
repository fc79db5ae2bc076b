#include "plan/kept_states.h"

#include <algorithm>

#include "base/check.h"

namespace jige::plan {

KeptStates::KeptStates(int32_t first_slot, int32_t count)
    : first_slot_(first_slot), capacity_(count) {
  JIGE_CHECK(first_slot >= 0 && count >= 0, "{} kept states from {} on", count, first_slot);
  for (int32_t i = count; i > 0; --i) free_.push_back(first_slot + i - 1);
}

std::optional<int32_t> KeptStates::find(const PrefixHash& prefix) const {
  const auto found = by_prefix_.find(prefix);
  if (found == by_prefix_.end()) return std::nullopt;
  return found->second.slot;
}

int32_t KeptStates::use(const PrefixHash& prefix) {
  const auto found = by_prefix_.find(prefix);
  JIGE_CHECK(found != by_prefix_.end(), "a state is used that is not kept");
  found->second.used = ++now_;
  return found->second.slot;
}

int32_t KeptStates::keep(const PrefixHash& prefix) {
  JIGE_CHECK(capacity_ > 0 && !find(prefix), "a state is kept twice, or there is no room");
  if (free_.empty()) {
    const auto oldest = std::ranges::min_element(
        by_prefix_, {}, [](const auto& entry) { return entry.second.used; });
    free_.push_back(oldest->second.slot);
    by_prefix_.erase(oldest);
  }
  const int32_t slot = free_.back();
  free_.pop_back();
  by_prefix_[prefix] = {.slot = slot, .used = ++now_};
  return slot;
}

void KeptStates::forget(const PrefixHash& prefix) {
  const auto found = by_prefix_.find(prefix);
  if (found == by_prefix_.end()) return;
  free_.push_back(found->second.slot);
  by_prefix_.erase(found);
}

void KeptStates::forget_all() {
  while (!by_prefix_.empty()) forget(PrefixHash(by_prefix_.begin()->first));
}

void KeptStates::check_invariants() const {
  std::vector<int32_t> users(static_cast<size_t>(capacity_), 0);
  for (const int32_t slot : free_) ++users.at(static_cast<size_t>(slot - first_slot_));
  for (const auto& [prefix, kept] : by_prefix_) {
    ++users.at(static_cast<size_t>(kept.slot - first_slot_));
  }
  for (size_t i = 0; i < users.size(); ++i) {
    JIGE_CHECK(users[i] == 1, "kept state {} is free or named {} times",
               first_slot_ + static_cast<int32_t>(i), users[i]);
  }
}

}  // namespace jige::plan
