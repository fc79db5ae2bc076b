#include "comm/communicator.h"

#include <algorithm>
#include <cstring>

namespace jige::comm {
namespace {

constexpr int64_t kCountMax = int64_t{1} << 42;

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

int64_t whole_bytes(const Operation& operation, int size) {
  switch (operation.collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return operation.bytes() * size;
    default:
      return operation.bytes();
  }
}

Result<Communicator> Communicator::over(std::unique_ptr<Transport> transport, RingPlan plan,
                                        CommOptions options) {
  JIGE_DO(plan.check(transport->size()));
  return Communicator(std::move(transport), std::move(plan), options);
}

Status Communicator::check(const Operation& operation) const {
  if (operation.count < 0 || operation.count > kCountMax) {
    return fail(Code::kInvalidArgument, "{} of {} elements", collective_name(operation.collective),
                operation.count);
  }
  if (operation.root < 0 || operation.root >= size()) {
    return fail(Code::kInvalidArgument, "root {} is not one of {} ranks", operation.root, size());
  }
  if (reduces(operation.collective)) JIGE_DO(check_reducible(operation.dtype));
  return {};
}

void Communicator::run_alone(const Operation& operation) const {
  const auto bytes = static_cast<size_t>(operation.bytes());
  if (bytes > 0 && operation.src != operation.dst) {
    std::memcpy(operation.dst, operation.src, bytes);
  }
  if (operation.on_final && operation.count > 0) operation.on_final(0, operation.count);
}

OperationContext Communicator::next_context(const Operation& operation) {
  return {.transport = transport_.get(),
          .plan = &plan_,
          .header = {.collective = operation.collective,
                     .dtype = operation.dtype,
                     .redop = operation.redop,
                     .sequence = sequence_++,
                     .count = operation.count,
                     .root = operation.root,
                     .plan = plan_hash_},
          .timeout_s = options_.timeout_s,
          .cancelled = options_.cancelled};
}

Result<std::vector<Flow>> Communicator::next_flows(const Operation& operation) {
  JIGE_DO(check(operation));
  const OperationContext context = next_context(operation);
  return plan_.takes_trees(operation.collective, operation.bytes())
             ? tree_flows(context, operation)
             : ring_flows(context, operation);
}

void Communicator::set_tree_bytes_max(int64_t bytes) {
  if (!plan_.trees) return;
  plan_.trees->bytes_max = bytes;
  plan_hash_ = plan_.hash();
}

Status Communicator::run(const Operation& operation) {
  JIGE_DO(check(operation));
  if (size() == 1) {
    run_alone(operation);
    return {};
  }
  // Small operations never wait long enough to look.
  if (options_.cancelled != nullptr && *options_.cancelled) {
    transport_->abort(interruption());
    return tl::unexpected<Error>(interruption());
  }
  OperationContext context = next_context(operation);
  const bool direct = operation.collective == Collective::kBarrier ||
                      operation.collective == Collective::kAllToAll ||
                      whole_bytes(operation, size()) <= options_.direct_bytes_max;
  if (direct) return run_directly(context, operation);
  return plan_.takes_trees(operation.collective, operation.bytes())
             ? run_on_trees(context, operation)
             : run_on_rings(context, operation);
}

Status Communicator::all_reduce(const void* src, void* dst, int64_t count, DType dtype, RedOp op,
                                OnFinal on_final) {
  return run({.collective = Collective::kAllReduce,
              .dtype = dtype,
              .redop = op,
              .count = count,
              .src = bytes_of(src),
              .dst = bytes_of(dst),
              .on_final = std::move(on_final)});
}

Status Communicator::reduce_scatter(const void* src, void* dst, int64_t count, DType dtype,
                                    RedOp op, OnFinal on_final) {
  return run({.collective = Collective::kReduceScatter,
              .dtype = dtype,
              .redop = op,
              .count = count,
              .src = bytes_of(src),
              .dst = bytes_of(dst),
              .on_final = std::move(on_final)});
}

Status Communicator::all_gather(const void* src, void* dst, int64_t count, DType dtype,
                                OnFinal on_final) {
  return run({.collective = Collective::kAllGather,
              .dtype = dtype,
              .count = count,
              .src = bytes_of(src),
              .dst = bytes_of(dst),
              .on_final = std::move(on_final)});
}

Status Communicator::broadcast(const void* src, void* dst, int64_t count, DType dtype, int root) {
  return run({.collective = Collective::kBroadcast,
              .dtype = dtype,
              .count = count,
              .root = root,
              .src = bytes_of(src),
              .dst = bytes_of(dst)});
}

Status Communicator::reduce(const void* src, void* dst, int64_t count, DType dtype, RedOp op,
                            int root) {
  return run({.collective = Collective::kReduce,
              .dtype = dtype,
              .redop = op,
              .count = count,
              .root = root,
              .src = bytes_of(src),
              .dst = bytes_of(dst)});
}

Status Communicator::all_to_all(const void* src, void* dst, int64_t count, DType dtype) {
  return run({.collective = Collective::kAllToAll,
              .dtype = dtype,
              .count = count,
              .src = bytes_of(src),
              .dst = bytes_of(dst)});
}

Status Communicator::barrier() { return run({.collective = Collective::kBarrier}); }

}  // namespace jige::comm
