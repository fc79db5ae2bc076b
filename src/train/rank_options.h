// What a run on several ranks knows of them: processes that hold the whole model each, take a share
// of every step's micro-batches, and make the same updates, or each its part of them.
//
// Threads: values.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "comm/async_group.h"

namespace jige::train {

inline constexpr int kRanksMax = 4096;

// How the gradients of a step's micro-batches become one sum.
enum class GradientSum : uint8_t {
  // Micro-batch by micro-batch, as on one rank: who has the next one goes on from the sum so far.
  // The bits are those of one rank.
  kRelay,
  // Each rank adds its own, and an all-reduce along the rings adds the ranks. The bits depend on
  // the
  // number of ranks and the rings. Less moves where ranks have many micro-batches each.
  kRings,
};

// "relay", "rings".
std::string_view gradient_sum_name(GradientSum sum);

struct RankOptions {
  // Whether there are ranks among which the optimizer's state is divided.
  bool shards() const { return shard_optimizer && size > 1; }

  int rank = 0;
  int size = 1;
  int local = 1;       // ranks on this machine, which share its memory
  int local_rank = 0;  // of this one among them
  int host = 0;        // the first of them: as a name of the machine
  int on_device = 1;   // those of them that compute on the same GPU (shared_device.h)
  GradientSum sum = GradientSum::kRelay;
  bool overlap = true;  // false: what could move beside the passes waits for their end
  // Each rank has a part of every sequence, instead of some micro-batches (context_passes.h).
  bool split_context = false;
  // Ranks that have a sequence together.
  int context_ranks() const { return split_context ? size : 1; }
  // Each rank keeps the optimizer's state of its part of the parameters only (optimizer_shares.h).
  bool shard_optimizer = false;
  // Set while this rank writes a checkpoint, for who started it; null: nobody looks.
  std::atomic<bool>* writing = nullptr;
  std::shared_ptr<comm::AsyncGroup> group;  // none where nothing is trained, only planned
};

}  // namespace jige::train
