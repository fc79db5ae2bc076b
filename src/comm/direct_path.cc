// The direct path: messages on lane 0, reductions where they are wanted.
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "comm/operation.h"
#include "comm/reduce.h"

namespace jige::comm {
namespace {

using Buffer = std::vector<std::byte>;
// The contribution of a rank.
using Contribution = std::function<const std::byte*(int rank)>;

class DirectRun {
 public:
  DirectRun(OperationContext& context, const Operation& operation)
      : context_(context), op_(operation), rank_(context.rank()), size_(context.size()) {
    context_.header.path = Path::kDirect;
  }

  Status all_reduce();
  Status reduce_scatter();
  Status all_gather();
  Status broadcast();
  Status reduce();
  Status all_to_all();
  Status all_to_all_in_rounds();
  Status barrier();

 private:
  int wrapped(int rank) const { return (rank % size_ + size_) % size_; }
  Header header(int sender, size_t bytes) const {
    Header h = context_.header;
    h.sender = sender;
    h.part = round_;
    h.payload_bytes = bytes;
    return h;
  }
  Flow send(int to, std::span<const std::byte> bytes) const {
    return send_flow({to, 0}, header(rank_, bytes.size()), bytes);
  }
  Flow receive(int from, std::span<std::byte> bytes) const {
    return receive_flow({from, 0}, header(from, bytes.size()), bytes);
  }
  Status run(std::vector<Flow> flows) {
    ++round_;
    return run_operation_flows(context_, quiet(), flows);
  }
  // Without the callback: nothing is final before the whole is.
  Operation quiet() const {
    Operation copy = op_;
    copy.on_final = nullptr;
    return copy;
  }
  void all_final(int64_t count) const {
    if (op_.on_final && count > 0) op_.on_final(0, count);
  }
  Result<Buffer> gather_all();
  void reduce_range(const Ring& ring, int64_t first, Range range, const Contribution& of) const;
  void reduce_parts(const Contribution& of, const std::function<int64_t(const Ring&)>& first) const;
  void reduce_like_rings(const Contribution& of) const;

  OperationContext& context_;
  const Operation& op_;
  int rank_;
  int size_;
  uint32_t round_ = 0;
};

// Everybody's contribution, the own one first and then by rank, in ceil(log2 n) rounds: what a rank
// has so far goes to the one as many places before it.
Result<Buffer> DirectRun::gather_all() {
  const auto bytes = static_cast<size_t>(op_.bytes());
  Buffer all(bytes * static_cast<size_t>(size_));
  if (bytes > 0) std::memcpy(all.data(), op_.src, bytes);
  for (int have = 1; have < size_;) {
    const int more = std::min(have, size_ - have);
    const std::span<std::byte> whole(all);
    const size_t length = bytes * static_cast<size_t>(more);
    JIGE_DO(run({send(wrapped(rank_ - have), whole.first(length)),
                 receive(wrapped(rank_ + have),
                         whole.subspan(bytes * static_cast<size_t>(have), length))}));
    have += more;
  }
  return all;
}

// dst[range] from the contributions, beginning at position `first` of the ring.
void DirectRun::reduce_range(const Ring& ring, int64_t first, Range range,
                             const Contribution& of) const {
  if (range.count == 0) return;
  const int64_t at = range.begin * op_.element_bytes();
  std::byte* out = op_.dst + at;
  combine(op_.dtype, op_.redop, of(ring.at(first)) + at, of(ring.at(first + 1)) + at, out,
          range.count);
  for (int64_t i = 2; i < size_; ++i) {
    combine(op_.dtype, op_.redop, out, of(ring.at(first + i)) + at, out, range.count);
  }
  if (op_.redop == RedOp::kAvg) divide(op_.dtype, out, range.count, size_);
}

// Every ring's part as a whole, from the position that `first` names.
void DirectRun::reduce_parts(const Contribution& of,
                             const std::function<int64_t(const Ring&)>& first) const {
  const auto parts = split_by_weight(*context_.plan, op_.count, op_.element_bytes());
  for (size_t r = 0; r < parts.size(); ++r) {
    const Ring& ring = context_.plan->rings[r];
    reduce_range(ring, first(ring), parts[r], of);
  }
}

// Every segment from the position of its number, as the ring path of an all-reduce does.
void DirectRun::reduce_like_rings(const Contribution& of) const {
  const RingPlan& plan = *context_.plan;
  const auto parts = split_by_weight(plan, op_.count, op_.element_bytes());
  const int64_t piece = std::max<int64_t>(1, plan.piece_bytes / op_.element_bytes());
  for (size_t r = 0; r < parts.size(); ++r) {
    const Blocks blocks(parts[r], size_, piece, kUnitBytes / op_.element_bytes());
    for (int64_t b = 0; b < blocks.block_count(); ++b) {
      for (int s = 0; s < size_; ++s) reduce_range(plan.rings[r], s, blocks.segment(b, s), of);
    }
  }
}

Status DirectRun::all_reduce() {
  JIGE_TRY(const Buffer all, gather_all());
  reduce_like_rings([&](int rank) { return all.data() + wrapped(rank - rank_) * op_.bytes(); });
  all_final(op_.count);
  return {};
}

Status DirectRun::reduce_scatter() {
  const auto bytes = static_cast<size_t>(op_.bytes());
  Buffer blocks(bytes * static_cast<size_t>(size_));
  const auto block_of = [&](int rank) { return blocks.data() + rank * op_.bytes(); };
  if (bytes > 0) std::memcpy(block_of(rank_), op_.src + rank_ * op_.bytes(), bytes);
  std::vector<Flow> flows;
  for (int k = 1; k < size_; ++k) {
    const int to = wrapped(rank_ + k);
    const int from = wrapped(rank_ - k);
    flows.push_back(send(to, {op_.src + to * op_.bytes(), bytes}));
    flows.push_back(receive(from, {block_of(from), bytes}));
  }
  JIGE_DO(run(std::move(flows)));
  reduce_parts(block_of, [&](const Ring& ring) { return ring.position_of(rank_) + 1; });
  all_final(op_.count);
  return {};
}

Status DirectRun::all_gather() {
  JIGE_TRY(const Buffer all, gather_all());
  const auto bytes = static_cast<size_t>(op_.bytes());
  for (int r = 0; r < size_ && bytes > 0; ++r) {
    std::memcpy(op_.dst + r * op_.bytes(), all.data() + wrapped(r - rank_) * op_.bytes(), bytes);
  }
  all_final(op_.count * size_);
  return {};
}

// A binomial tree: who has the data after round i is less than 2^(i+1) places after the root.
Status DirectRun::broadcast() {
  const auto bytes = static_cast<size_t>(op_.bytes());
  const int place = wrapped(rank_ - op_.root);
  if (place == 0 && op_.src != op_.dst && bytes > 0) std::memcpy(op_.dst, op_.src, bytes);
  for (int have = 1; have < size_; have *= 2, ++round_) {
    if (place < have && place + have < size_) {
      std::vector<Flow> flows = {send(wrapped(rank_ + have), {op_.dst, bytes})};
      JIGE_DO(run_operation_flows(context_, quiet(), flows));
    } else if (place >= have && place < 2 * have) {
      std::vector<Flow> flows = {receive(wrapped(rank_ - have), {op_.dst, bytes})};
      JIGE_DO(run_operation_flows(context_, quiet(), flows));
    }
  }
  all_final(op_.count);
  return {};
}

Status DirectRun::reduce() {
  const auto bytes = static_cast<size_t>(op_.bytes());
  if (rank_ != op_.root) return run({send(op_.root, {op_.src, bytes})});
  Buffer all(bytes * static_cast<size_t>(size_));
  const auto of = [&](int rank) { return all.data() + rank * op_.bytes(); };
  if (bytes > 0) std::memcpy(of(rank_), op_.src, bytes);
  std::vector<Flow> flows;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) flows.push_back(receive(r, {of(r), bytes}));
  }
  JIGE_DO(run(std::move(flows)));
  reduce_parts(of, [&](const Ring& ring) { return ring.position_of(op_.root) + 1; });
  all_final(op_.count);
  return {};
}

// By the plan's rounds. Who sends to a rank need not be whom that rank sends to, so in place a
// block may arrive where one still waits to go: then all are copied before.
Status DirectRun::all_to_all_in_rounds() {
  const auto bytes = static_cast<size_t>(op_.bytes());
  Buffer going;
  const std::byte* src = op_.src;
  if (src == op_.dst) {
    going.assign(src, src + bytes * static_cast<size_t>(size_));
    src = going.data();
  } else if (bytes > 0) {
    std::memcpy(op_.dst + rank_ * op_.bytes(), src + rank_ * op_.bytes(), bytes);
  }
  for (const std::vector<int>& targets : context_.plan->rounds) {
    const int to = targets[static_cast<size_t>(rank_)];
    const int from = static_cast<int>(std::ranges::find(targets, rank_) - targets.begin());
    JIGE_DO(run({send(to, {src + to * op_.bytes(), bytes}),
                 receive(from, {op_.dst + from * op_.bytes(), bytes})}));
  }
  all_final(op_.count * size_);
  return {};
}

// In round k the ranks whose numbers add up to k exchange blocks, so no rank is the aim of two.
Status DirectRun::all_to_all() {
  if (!context_.plan->rounds.empty()) return all_to_all_in_rounds();
  const auto bytes = static_cast<size_t>(op_.bytes());
  Buffer going;
  for (int k = 0; k < size_; ++k) {
    const int partner = wrapped(k - rank_);
    const std::byte* from = op_.src + partner * op_.bytes();
    std::byte* to = op_.dst + partner * op_.bytes();
    if (partner == rank_) {
      if (from != to && bytes > 0) std::memcpy(to, from, bytes);
    } else {
      if (from == to) {
        going.assign(from, from + bytes);
        from = going.data();
      }
      JIGE_DO(run({send(partner, {from, bytes}), receive(partner, {to, bytes})}));
    }
    round_ = static_cast<uint32_t>(k + 1);
  }
  all_final(op_.count * size_);
  return {};
}

Status DirectRun::barrier() {
  for (int have = 1; have < size_; have *= 2) {
    JIGE_DO(run({send(wrapped(rank_ - have), {}), receive(wrapped(rank_ + have), {})}));
  }
  return {};
}

}  // namespace

Status run_directly(OperationContext& context, const Operation& operation) {
  DirectRun run(context, operation);
  switch (operation.collective) {
    case Collective::kAllReduce:
      return run.all_reduce();
    case Collective::kReduceScatter:
      return run.reduce_scatter();
    case Collective::kAllGather:
      return run.all_gather();
    case Collective::kBroadcast:
      return run.broadcast();
    case Collective::kReduce:
      return run.reduce();
    case Collective::kAllToAll:
      return run.all_to_all();
    case Collective::kBarrier:
      return run.barrier();
  }
  return {};
}

}  // namespace jige::comm
