// ServedAdapters: the adapters that requests may ask for by name, some of which come and go.
//
// A copy of an entry keeps its adapter loaded: requests hold one from when their name is read to
// when they end, and whoever took the name away hears when the last of them has ended.
// Invariants: (1) names are unique among those that may be asked for.
//             (2) an adapter that was removed is found by no name, and by its number until it is
//                 gone.
// Threads: any; callbacks run where the last copy of an entry ends, without the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/adapter_rooms.h"

namespace jige::api {

// An adapter of the model, for which clients ask by its name.
struct ServedAdapter {
  std::string name;
  std::string root;           // what its folder is called
  std::string fingerprint;    // as ServedModel's
  int32_t number = 0;         // of the engine's model
  int64_t created_s = 0;      // since 1970
  model::AdapterLease lease;  // null: it was loaded with the model, and stays
};

// 1 to 256 bytes of printable text.
bool is_adapter_name(std::string_view name);
inline constexpr size_t kAdapterNameBytesMax = 256;

class ServedAdapters : public std::enable_shared_from_this<ServedAdapters> {
 public:
  enum class Removal { kUnknown, kStays, kLeaves };

  // False, and nothing is added, where the name is taken.
  bool add(ServedAdapter adapter);
  // From now on the name is unknown; `when_gone` gets the number once the last copy has ended.
  Removal remove(std::string_view name, std::function<void(int32_t number)> when_gone);

  std::optional<ServedAdapter> find(std::string_view name) const;
  // Those that may be asked for, in the order in which they came.
  std::vector<ServedAdapter> list() const;
  // Of those that leave, too; empty where there is none.
  std::string name_of(int32_t number) const;
  std::string fingerprint_of(int32_t number) const;

 private:
  struct Leaving {
    ServedAdapter adapter;  // without its lease
    std::function<void(int32_t)> when_gone;
  };

  void gone(int32_t number);
  const ServedAdapter* find_locked(int32_t number) const;

  mutable std::mutex mutex_;  // no lease ends under it
  std::vector<ServedAdapter> entries_;
  std::map<int32_t, Leaving> leaving_;
};

}  // namespace jige::api
