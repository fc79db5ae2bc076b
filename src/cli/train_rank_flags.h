// The flags of `jige train` that make it one job of several processes: started here, or one on each
// host, by hand or by mpirun or srun.
//
// Threads: one thread; run() forks before there is another.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/collective_flags.h"
#include "cli/device_flags.h"
#include "train/rank_options.h"

namespace jige::cli {

class Flags;

struct TrainRankFlags {
  using Body = std::function<Status(const std::optional<train::RankOptions>&)>;

  CollectiveFlags group;
  std::string sum = "relay";
  bool no_overlap = false;
  bool shard_optimizer = false;
  bool split_context = false;

  void declare(Flags& flags);
  // Without processes: what a plan needs to know. Nothing where no flag asks for ranks. Fails with
  // kInvalidArgument on contradictions.
  Result<std::optional<train::RankOptions>> planned() const;
  // Calls body for this process's part of the job: with nothing where no flag asks for ranks, else
  // as one of them. Where it starts them itself it passes Ctrl-C and its like on, ends all soon
  // after one has failed, and gives rank 0's error, or the first cause.
  Status run(const Body& body) const;

 private:
  bool placed() const { return group.rank >= 0 || group.world > 0 || !group.rendezvous.empty(); }
  // A flag that means nothing to a process alone; null where there is none.
  const char* given_between_ranks() const;
  train::RankOptions options(const comm::Place& place, int local) const;
  Status run_joined(const comm::Place& place, const comm::Address& rendezvous,
                    comm::Listener* listener, const Body& body) const;
  Status run_here(const Body& body) const;
};

// Which of a machine's GPUs a rank computes on, and how many of its ranks do: they take them in
// turns, unless one is named. REQUIRES: device names a GPU, and gpu_index() does not fail.
void share_out_gpus(int gpu_count, DeviceFlags& device, train::RankOptions& ranks);

}  // namespace jige::cli
