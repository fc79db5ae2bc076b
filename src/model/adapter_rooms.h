// AdapterRooms: memory for adapters that come and go while a model runs, taken when it is loaded.
//
//   const AdapterRoom room = adapter_room(architecture, /*rank=*/16, DType::kBF16);  // exact sizes
//   AdapterRooms rooms({.rank_max = 16, .compute = DType::kBF16, .number_first = 2}, memory);
//   JIGE_TRY(AdapterLease lease, rooms.load(source, architecture, stream));
//   rooms.find(lease->number);   // what a step adds to rows of that number
//   lease.reset();               // the last one is gone: the room is free
//
// Invariants: (1) a number stands for one load and is never given again, so that keys and values
//                 computed with it are nobody else's.
//             (2) an adapter is found from when all of it is packed until its last lease is gone.
//             (3) a room is written only while no lease of it is held.
// Threads: any. Files are read and packed on the caller's thread, outside the lock; leases may
// outlive the rooms, not the memory.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/adapter.h"

namespace jige::model {

struct NumberedAdapter {
  int32_t number = kNoAdapter;
  Adapter adapter;
};
// Who has it may run with its number.
using AdapterLease = std::shared_ptr<const NumberedAdapter>;

class AdapterRooms {
 public:
  struct Options {
    int64_t rank_max = 0;
    DType compute = DType::kF32;
    int32_t number_first = 0;
    std::string base_folder = {};  // whose numbers DoRA and biases need
  };

  // `memory`: one a room, each of adapter_room(rank_max).packed_bytes.
  AdapterRooms(Options options, std::vector<TensorView> memory);

  // Reads, checks and packs an adapter into a free room. Fails as Adapter::open does, with
  // kInvalidArgument where its rank is above rank_max, kExhausted where no room is free.
  Result<AdapterLease> load(const AdapterSource& source, const Architecture& architecture,
                            Stream& stream);
  // nullptr where no such number is loaded. Valid while a lease of it is held.
  const Adapter* find(int32_t number) const;

  int64_t room_count() const { return std::ssize(memory_); }
  int64_t free_count() const;
  int64_t rank_max() const { return options_.rank_max; }

 private:
  struct State;

  const Options options_;
  const std::vector<TensorView> memory_;
  const std::shared_ptr<State> state_;
};

}  // namespace jige::model
