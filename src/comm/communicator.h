// Communicator: the collectives of a group of ranks.
//
//   JIGE_TRY(Joined joined, join_group(…));                       // or make_thread_transports()
//   JIGE_TRY(Communicator group, Communicator::over(std::move(joined.transport), plan, {}));
//   JIGE_DO(group.all_reduce(grad, grad, count, DType::kF32, RedOp::kSum));
//
// Every rank calls the same operations in the same order. src and dst are the same, or do not
// overlap; in place, the block of rank r in the larger buffer is where the smaller one lies (for
// all_gather src = dst + r·count, for reduce_scatter dst = src + r·count).
//
// Invariants: (1) a result has the same bits on every rank, in every run, over every transport and
// tuning: the order of additions is a function of the plan and the count (ring_plan.h). (2) Ranks
// that call different operations get an error that says so, instead of a result. (3) A rank that
// dies, leaves or falls silent is named by all others, at the latest timeout_s after the last byte
// moved, not counting time in which they were stopped themselves (stillness.h). (4) After an error
// the group has failed; every later call gives that error. Threads: one thread.
#pragma once

#include <atomic>
#include <memory>

#include "comm/operation.h"
#include "comm/transport.h"

namespace jige::comm {

struct CommOptions {
  double timeout_s = 30;  // without any movement
  // Operations whose data take up to so many bytes go the direct path: of the whole for all_reduce,
  // broadcast and reduce, of all blocks together for the others. The same on all ranks.
  int64_t direct_bytes_max = 16 << 10;
  // Once it is set, calls that wait for others, and all later ones, fail with kCancelled; the other
  // ranks hear of it. May be null. Flows that somebody else runs do not look at it.
  const std::atomic<bool>* cancelled = nullptr;
};

class Communicator {
 public:
  // REQUIRES: the transport was made for this plan. Fails with kInvalidArgument when the plan is
  // not one for the transport's ranks.
  static Result<Communicator> over(std::unique_ptr<Transport> transport, RingPlan plan,
                                   CommOptions options);

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  Transport& transport() const { return *transport_; }
  const RingPlan& plan() const { return plan_; }
  const CommOptions& options() const { return options_; }
  void set_direct_bytes_max(int64_t bytes) { options_.direct_bytes_max = bytes; }
  // Where the plan's trees end, if it has any: a change of the plan, so of the order of additions.
  // The same on all ranks, between the same operations.
  void set_tree_bytes_max(int64_t bytes);

  // dst = the sum (or other reduction) of all src. on_final hears of parts of dst as they become
  // final, in any order, on the calling thread; the caller may read and change them.
  Status all_reduce(const void* src, void* dst, int64_t count, DType dtype, RedOp op,
                    OnFinal on_final = nullptr);
  // src holds a block of `count` for each rank; dst gets the own one, reduced.
  Status reduce_scatter(const void* src, void* dst, int64_t count, DType dtype, RedOp op,
                        OnFinal on_final = nullptr);
  // dst gets the block of every rank, by rank.
  Status all_gather(const void* src, void* dst, int64_t count, DType dtype,
                    OnFinal on_final = nullptr);
  // src is read on the root alone.
  Status broadcast(const void* src, void* dst, int64_t count, DType dtype, int root);
  // dst is written on the root alone.
  Status reduce(const void* src, void* dst, int64_t count, DType dtype, RedOp op, int root);
  // Block q of src goes to rank q, whose dst gets it as block of this rank.
  Status all_to_all(const void* src, void* dst, int64_t count, DType dtype);
  Status barrier();
  // Any of them. Fails with kInvalidArgument or kUnsupported on what no rank can run.
  Status run(const Operation& operation);

  // The flows of an operation along rings or trees, never directly, for who runs them himself
  // (async_group.h): the bits are those of run(). The operation must outlive them. REQUIRES: not a
  // barrier nor an all_to_all; more than one rank. Fails as run().
  Result<std::vector<Flow>> next_flows(const Operation& operation);

 private:
  OperationContext next_context(const Operation& operation);
  Communicator(std::unique_ptr<Transport> transport, RingPlan plan, CommOptions options)
      : transport_(std::move(transport)),
        plan_(std::move(plan)),
        options_(options),
        plan_hash_(plan_.hash()) {}
  Status check(const Operation& operation) const;
  void run_alone(const Operation& operation) const;

  std::unique_ptr<Transport> transport_;
  RingPlan plan_;
  CommOptions options_;
  uint32_t plan_hash_;
  uint64_t sequence_ = 0;
};

// Bytes of the whole: what direct_bytes_max is compared with, and what bandwidths are reckoned
// from.
int64_t whole_bytes(const Operation& operation, int size);

}  // namespace jige::comm
