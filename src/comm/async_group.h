// AsyncGroup: collectives and messages that run beside computation, on a thread of their own.
//
//   std::unique_ptr<AsyncGroup> group = AsyncGroup::over(std::move(communicator));
//   Pending sum = group->start({.collective = Collective::kAllReduce, .count = n, …});
//   … compute …
//   JIGE_DO(sum.wait_for(0, n / 4));   // the first quarter is final: go on with it
//   JIGE_DO(sum.wait());
//
// A collective runs along the rings or trees, never directly, several at once; on a link, messages
// come in the order in which they were started. An all-reduce becomes final block by block, a
// broadcast piece by piece (ring_plan.h), and wait_for() returns as soon as what it asks for is.
//
// Invariants: (1) a result has the bits of the blocking form, Communicator::run(). (2) All ranks
// start the same collectives in the same order; the messages from one rank to another are received
// in the order in which they are sent, by the same tags. Else the group fails and says what
// differed. (3) While the group lives its thread says that the rank is there: nobody gives up on a
// rank that computes for long. A rank whose process ends, or that leaves while others wait for it,
// is named by all others, also where nothing was started; one that is silent for timeout_s, as soon
// as one of them waits for it. (4) After an error the group has failed; every later start gives
// that error. Threads: one at a time starts; handles may be waited for from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/communicator.h"

namespace jige::comm {

// What was started; a copy is the same one. The memory of the operation must stay until it is over.
class Pending {
 public:
  // Over since ever.
  Pending() = default;

  // Returns when elements [begin, begin + count) of dst are final, or with the group's error.
  Status wait_for(int64_t begin, int64_t count) const;
  // Returns when all is over: dst is final, and src may change.
  Status wait() const;
  // Whether wait() would return at once.
  bool is_over() const;

 private:
  friend class AsyncGroup;
  friend class AsyncEngine;
  struct State;
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class AsyncEngine;

class AsyncGroup {
 public:
  static std::unique_ptr<AsyncGroup> over(Communicator group);
  // Leaves the group. Where something is under way the others fail, and learn why.
  ~AsyncGroup();
  AsyncGroup(const AsyncGroup&) = delete;
  AsyncGroup& operator=(const AsyncGroup&) = delete;

  int rank() const;
  int size() const;
  const RingPlan& plan() const;
  // "rank 2 (node-b)".
  std::string name(int rank) const;
  // "threads", "shm" or "tcp".
  const char* kind() const;

  // The group's error, once it has failed, also where this rank has started nothing. From any
  // thread.
  Status health() const;
  // Since a rank was last heard of, as this group's thread saw it. From any thread.
  double silent_seconds(int rank) const;

  // Starts a collective, but for kAllToAll and kBarrier. `on_final` hears on the group's thread.
  Pending start(Operation operation);
  // Starts to send bytes to another rank, or to receive as many. The tag is whatever both know.
  Pending send(int to, std::span<const std::byte> bytes, uint64_t tag);
  Pending receive(int from, std::span<std::byte> bytes, uint64_t tag);

  // Ends the group with an error of this rank's; the others get it with this rank's name.
  void fail_with(const Error& error);

 private:
  explicit AsyncGroup(std::unique_ptr<AsyncEngine> engine);
  std::unique_ptr<AsyncEngine> engine_;
};

}  // namespace jige::comm
