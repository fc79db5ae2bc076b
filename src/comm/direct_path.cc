// The direct path: messages on lane 0, reductions where they are wanted.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "comm/direct_reduce.h"
#include "comm/operation.h"

namespace jige::comm {
namespace {

constexpr size_t kSmallBytes = 4096;  // that need not pass unit by unit

// Memory for contributions, small ones without asking for it.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : large_(bytes > small_.size() ? bytes : 0) {}
  std::byte* data() { return large_.empty() ? small_.data() : large_.data(); }

 private:
  std::array<std::byte, 512> small_;  // what is read of it was written before
  std::vector<std::byte> large_;
};

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
  // Sends a message and receives another, small ones without flows.
  Status exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in);
  Result<bool> send_at_once(Link to, std::span<const std::byte> bytes);
  Result<bool> receive_at_once(Link from, std::span<std::byte> bytes);
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
  Status gather_all(std::byte* all);
  Contributions contributions(const std::byte* data, int first) const {
    return {data, op_.bytes(), first, size_};
  }

  OperationContext& context_;
  const Operation& op_;
  int rank_;
  int size_;
  uint32_t round_ = 0;
};

// A small message goes off as one piece, header and payload, if there is room for it now.
Result<bool> DirectRun::send_at_once(Link to, std::span<const std::byte> bytes) {
  const size_t wire = kHeaderBytes + static_cast<size_t>(whole_units(std::ssize(bytes)));
  if (bytes.size() > kSmallBytes) return false;
  JIGE_TRY(const std::span<std::byte> out, context_.transport->room(to));
  if (out.size() < wire) return false;
  const auto head = encode_header(header(rank_, bytes.size()));
  std::memcpy(out.data(), head.data(), kHeaderBytes);
  if (!bytes.empty()) std::memcpy(out.data() + kHeaderBytes, bytes.data(), bytes.size());
  const size_t end = kHeaderBytes + bytes.size();
  if (end < wire) std::memset(out.data() + end, 0, wire - end);
  JIGE_DO(context_.transport->commit(to, static_cast<int64_t>(wire)));
  return true;
}

// Looks for a small message as long as the transport finds that worth while. One that is another
// than expected is left to a flow, which says why.
Result<bool> DirectRun::receive_at_once(Link from, std::span<std::byte> bytes) {
  const size_t wire = kHeaderBytes + static_cast<size_t>(whole_units(std::ssize(bytes)));
  if (bytes.size() > kSmallBytes) return false;
  const auto expected = encode_header(header(from.peer, bytes.size()));
  for (int looks = 0;; ++looks) {
    JIGE_TRY(const std::span<const std::byte> in, context_.transport->ready(from));
    if (in.size() >= wire) {
      if (std::memcmp(in.data(), expected.data(), kHeaderBytes) != 0) return false;
      if (!bytes.empty()) std::memcpy(bytes.data(), in.data() + kHeaderBytes, bytes.size());
      context_.transport->consume(from, static_cast<int64_t>(wire));
      return true;
    }
    if (!in.empty() || !context_.transport->linger(looks)) return false;
  }
}

Status DirectRun::exchange(int to, std::span<const std::byte> out, int from,
                           std::span<std::byte> in) {
  const auto at_once = [&]() -> Status {
    std::vector<Flow> flows;
    JIGE_TRY(const bool sent, send_at_once({to, 0}, out));
    // A large message may have to receive in order to send: then one flow beside the other.
    bool received = false;
    if (sent) {
      JIGE_TRY(received, receive_at_once({from, 0}, in));
    } else {
      flows.push_back(send(to, out));
    }
    if (!received) flows.push_back(receive(from, in));
    if (!flows.empty()) return run(std::move(flows));
    ++round_;
    return context_.transport->flush(Deadline::after(context_.timeout_s));
  };
  Status ran = at_once();
  if (!ran) context_.transport->abort(ran.error());
  return ran;
}

// Everybody's contribution, the own one first and then by rank, in ceil(log2 n) rounds: what a rank
// has so far goes to the one as many places before it.
Status DirectRun::gather_all(std::byte* all) {
  const auto bytes = static_cast<size_t>(op_.bytes());
  if (bytes > 0) std::memcpy(all, op_.src, bytes);
  for (int have = 1; have < size_;) {
    const int more = std::min(have, size_ - have);
    const std::span<std::byte> whole(all, bytes * static_cast<size_t>(size_));
    const size_t length = bytes * static_cast<size_t>(more);
    JIGE_DO(exchange(wrapped(rank_ - have), whole.first(length), wrapped(rank_ + have),
                     whole.subspan(bytes * static_cast<size_t>(have), length)));
    have += more;
  }
  return {};
}

Status DirectRun::all_reduce() {
  Buffer buffer(static_cast<size_t>(op_.bytes() * size_));
  JIGE_DO(gather_all(buffer.data()));
  reduce_contributions(*context_.plan, op_, contributions(buffer.data(), rank_));
  all_final(op_.count);
  return {};
}

Status DirectRun::reduce_scatter() {
  const auto bytes = static_cast<size_t>(op_.bytes());
  Buffer blocks(bytes * static_cast<size_t>(size_));
  std::byte* const data = blocks.data();
  const auto block_of = [&](int rank) { return data + rank * op_.bytes(); };
  if (bytes > 0) std::memcpy(block_of(rank_), op_.src + rank_ * op_.bytes(), bytes);
  std::vector<Flow> flows;
  for (int k = 1; k < size_; ++k) {
    const int to = wrapped(rank_ + k);
    const int from = wrapped(rank_ - k);
    flows.push_back(send(to, {op_.src + to * op_.bytes(), bytes}));
    flows.push_back(receive(from, {block_of(from), bytes}));
  }
  JIGE_DO(run(std::move(flows)));
  reduce_for_owner(*context_.plan, op_, contributions(data, 0), rank_);
  all_final(op_.count);
  return {};
}

Status DirectRun::all_gather() {
  const auto bytes = static_cast<size_t>(op_.bytes());
  Buffer buffer(bytes * static_cast<size_t>(size_));
  JIGE_DO(gather_all(buffer.data()));
  const Contributions all = contributions(buffer.data(), rank_);
  for (int r = 0; r < size_ && bytes > 0; ++r) {
    std::memcpy(op_.dst + r * op_.bytes(), all.of(r), bytes);
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
  Buffer buffer(bytes * static_cast<size_t>(size_));
  std::byte* const data = buffer.data();
  const auto of = [&](int rank) { return data + rank * op_.bytes(); };
  if (bytes > 0) std::memcpy(of(rank_), op_.src, bytes);
  std::vector<Flow> flows;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) flows.push_back(receive(r, {of(r), bytes}));
  }
  JIGE_DO(run(std::move(flows)));
  reduce_for_owner(*context_.plan, op_, contributions(data, 0), op_.root);
  all_final(op_.count);
  return {};
}

// By the plan's rounds. Who sends to a rank need not be whom that rank sends to, so in place a
// block may arrive where one still waits to go: then all are copied before.
Status DirectRun::all_to_all_in_rounds() {
  const auto bytes = static_cast<size_t>(op_.bytes());
  std::vector<std::byte> going;
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
    JIGE_DO(
        exchange(to, {src + to * op_.bytes(), bytes}, from, {op_.dst + from * op_.bytes(), bytes}));
  }
  all_final(op_.count * size_);
  return {};
}

// In round k the ranks whose numbers add up to k exchange blocks, so no rank is the aim of two.
Status DirectRun::all_to_all() {
  if (!context_.plan->rounds.empty()) return all_to_all_in_rounds();
  const auto bytes = static_cast<size_t>(op_.bytes());
  std::vector<std::byte> going;
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
      JIGE_DO(exchange(partner, {from, bytes}, partner, {to, bytes}));
    }
    round_ = static_cast<uint32_t>(k + 1);
  }
  all_final(op_.count * size_);
  return {};
}

Status DirectRun::barrier() {
  for (int have = 1; have < size_; have *= 2) {
    JIGE_DO(exchange(wrapped(rank_ - have), {}, wrapped(rank_ + have), {}));
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
