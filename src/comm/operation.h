// An operation as its caller gave it, checked, and the flows that carry it out.
//
// Three paths. The order of additions is a function of plan and size (ring_plan.h), so each gives
// the bits of the path that the plan names for that size:
//   ring     every byte passes along the rings: least bytes on every link, 2 (n - 1) steps.
//   tree     up two trees and down again, half of the data on each: about 2 log2 n steps, whole
//            messages on every link. Where the plan has trees, up to their size.
//   direct   few messages on lane 0: who reduces gathers all contributions (in log2 n rounds where
//            all ranks reduce) and adds them in the order of the rings or trees. For the smallest.
// Threads: one thread.
#pragma once

#include <vector>

#include "comm/flow.h"
#include "comm/ring_plan.h"

namespace jige::comm {

struct Operation {
  Collective collective = Collective::kAllReduce;
  DType dtype = DType::kF32;
  RedOp redop = RedOp::kSum;
  // Of the whole for all_reduce, broadcast and reduce; of a rank's block for the others.
  int64_t count = 0;
  int root = 0;
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;
  OnFinal on_final = nullptr;

  int64_t element_bytes() const { return dtype_info(dtype).block_bytes; }
  int64_t bytes() const { return count * element_bytes(); }
};

// What the paths need to know beside the operation.
struct OperationContext {
  Transport* transport = nullptr;
  const RingPlan* plan = nullptr;
  Header header;  // of the operation; the paths fill in path, part, sender and payload
  double timeout_s = 30;
  const std::atomic<bool>* cancelled = nullptr;
  std::vector<Link> links_in_use;  // links received from so far, filled in by the paths

  int rank() const { return transport->rank(); }
  int size() const { return transport->size(); }
};

// A flow for each ring. The operation must outlive them. REQUIRES: not a barrier nor an all_to_all;
// more than one rank.
std::vector<Flow> ring_flows(const OperationContext& context, const Operation& operation);
Status run_on_rings(OperationContext& context, const Operation& operation);

// The same along the trees. REQUIRES: plan->takes_trees() of the operation; more than one rank.
std::vector<Flow> tree_flows(const OperationContext& context, const Operation& operation);
Status run_on_trees(OperationContext& context, const Operation& operation);

// Every collective. REQUIRES: more than one rank.
Status run_directly(OperationContext& context, const Operation& operation);

// A rank that calls another operation may talk on links to which this rank does not listen:
// compares the headers of the same number that have come there. Who has done its part may have
// left.
Status look_for_others(Transport& transport, const RingPlan& plan, const Header& ours,
                       std::span<const Link> listened);

// Runs flows for an operation, looking for ranks that call something else while nothing moves.
Status run_operation_flows(OperationContext& context, const Operation& operation,
                           std::span<Flow> flows);

}  // namespace jige::comm
