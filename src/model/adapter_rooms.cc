#include "model/adapter_rooms.h"

#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace jige::model {

struct AdapterRooms::State {
  std::mutex mutex;
  std::vector<size_t> free;
  std::map<int32_t, const Adapter*> loaded;
  int32_t number_next = 0;

  void leave(int32_t number, size_t room) {
    const std::lock_guard lock(mutex);
    loaded.erase(number);
    free.push_back(room);
  }
};

AdapterRooms::AdapterRooms(Options options, std::vector<TensorView> memory)
    : options_(std::move(options)), memory_(std::move(memory)), state_(std::make_shared<State>()) {
  state_->number_next = options_.number_first;
  for (size_t i = memory_.size(); i > 0; --i) state_->free.push_back(i - 1);
}

Result<AdapterLease> AdapterRooms::load(const AdapterSource& source,
                                        const Architecture& architecture, Stream& stream) {
  JIGE_TRY(Adapter adapter, Adapter::open(source, architecture));
  if (adapter.rank_max() > options_.rank_max) {
    return fail(Code::kInvalidArgument, "{}: its rank is {}, and there is room for {} at most",
                source.flag(), adapter.rank_max(), options_.rank_max);
  }
  size_t room = 0;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->free.empty() || state_->number_next == std::numeric_limits<int32_t>::max()) {
      return fail(Code::kExhausted, "{}: all {} rooms for adapters are taken", source.flag(),
                  room_count());
    }
    room = state_->free.back();
    state_->free.pop_back();
  }
  const int64_t bytes = adapter.packed_bytes(options_.compute);
  JIGE_CHECK(bytes <= memory_[room].count(), "an adapter of {} bytes in a room of {}", bytes,
             memory_[room].count());
  Status loaded = adapter.load(memory_[room], stream, options_.compute, options_.base_folder);
  const std::lock_guard lock(state_->mutex);
  if (!loaded) {
    state_->free.push_back(room);
    return tl::unexpected(std::move(loaded.error()));
  }
  AdapterLease lease(new NumberedAdapter{state_->number_next++, std::move(adapter)},
                     [state = state_, room](const NumberedAdapter* gone) {
                       state->leave(gone->number, room);
                       delete gone;
                     });
  state_->loaded.emplace(lease->number, &lease->adapter);
  return lease;
}

const Adapter* AdapterRooms::find(int32_t number) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->loaded.find(number);
  return found == state_->loaded.end() ? nullptr : found->second;
}

int64_t AdapterRooms::free_count() const {
  const std::lock_guard lock(state_->mutex);
  return std::ssize(state_->free);
}

}  // namespace jige::model
