#include "api/served_adapters.h"

#include <algorithm>
#include <utility>

#include "base/printable.h"

namespace jige::api {

bool is_adapter_name(std::string_view name) {
  return !name.empty() && name.size() <= kAdapterNameBytesMax && printable(name) == name;
}

bool ServedAdapters::add(ServedAdapter adapter) {
  if (const model::NumberedAdapter* const loaded = adapter.lease.get()) {
    adapter.lease = model::AdapterLease(
        loaded, [inner = std::move(adapter.lease), number = loaded->number,
                 weak = weak_from_this()](const model::NumberedAdapter*) mutable {
          inner.reset();
          if (const auto adapters = weak.lock()) adapters->gone(number);
        });
  }
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(entries_, adapter.name, &ServedAdapter::name) != entries_.end()) {
    return false;
  }
  entries_.push_back(std::move(adapter));
  return true;
}

ServedAdapters::Removal ServedAdapters::remove(std::string_view name,
                                               std::function<void(int32_t)> when_gone) {
  model::AdapterLease lease;  // ends behind the lock
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, name, &ServedAdapter::name);
  if (found == entries_.end()) return Removal::kUnknown;
  if (!found->lease) return Removal::kStays;
  lease = std::move(found->lease);
  const int32_t number = found->number;
  leaving_.emplace(number, Leaving{std::move(*found), std::move(when_gone)});
  entries_.erase(found);
  return Removal::kLeaves;
}

void ServedAdapters::gone(int32_t number) {
  std::function<void(int32_t)> when_gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = leaving_.find(number);
    if (found == leaving_.end()) return;
    when_gone = std::move(found->second.when_gone);
    leaving_.erase(found);
  }
  when_gone(number);
}

std::optional<ServedAdapter> ServedAdapters::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, name, &ServedAdapter::name);
  if (found == entries_.end()) return std::nullopt;
  return *found;
}

std::vector<ServedAdapter> ServedAdapters::list() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

const ServedAdapter* ServedAdapters::find_locked(int32_t number) const {
  const auto found = std::ranges::find(entries_, number, &ServedAdapter::number);
  if (found != entries_.end()) return &*found;
  const auto leaving = leaving_.find(number);
  return leaving == leaving_.end() ? nullptr : &leaving->second.adapter;
}

std::string ServedAdapters::name_of(int32_t number) const {
  const std::lock_guard lock(mutex_);
  const ServedAdapter* const found = find_locked(number);
  return found ? found->name : "";
}

std::string ServedAdapters::fingerprint_of(int32_t number) const {
  const std::lock_guard lock(mutex_);
  const ServedAdapter* const found = find_locked(number);
  return found ? found->fingerprint : "";
}

}  // namespace jige::api
