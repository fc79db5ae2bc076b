// The ring path: one flow per ring on its own lane.
#include <algorithm>

#include "comm/operation.h"

namespace jige::comm {
namespace {

// What the steps of one ring are made from; copied into the flow.
struct RingWork {
  const Operation* operation;
  Ring ring;
  Range part;         // of the whole, or of every rank's block
  int64_t piece = 0;  // elements
  int size = 0;
  int position = 0;

  int64_t bytes(int64_t elements) const { return elements * operation->element_bytes(); }
  const std::byte* src(int64_t element) const { return operation->src + bytes(element); }
  std::byte* dst(int64_t element) const { return operation->dst + bytes(element); }
  int64_t piece_count() const { return (part.count + piece - 1) / piece; }
  Range piece_range(int64_t index) const {
    const int64_t begin = index * piece;
    return {part.begin + begin, std::min(piece, part.count - begin)};
  }
  // Where a rank's block begins in the whole.
  int64_t block_begin(int rank) const { return rank * operation->count; }
};

// 2n - 1 steps a block: the own segment goes off, n - 1 additions pass (the last makes a segment
// final), n - 1 final segments arrive.
Step all_reduce_step(const RingWork& work, const Blocks& blocks, int64_t index) {
  const int n = work.size;
  const int64_t block = index / (2 * n - 1);
  const int k = static_cast<int>(index % (2 * n - 1));
  const int back = k < n ? k : k - n;
  const int segment = ((work.position - back) % n + n) % n;
  const Range range = blocks.segment(block, segment);
  Step step = {.bytes = work.bytes(range.count), .receive = k > 0, .send = k < 2 * n - 2};
  if (k < n) step.local = work.src(range.begin);
  if (k >= n - 1) {
    step.store = work.dst(range.begin);
    step.final_range = range;
  }
  step.last_addition = k == n - 1;
  return step;
}

// n steps a piece: the block of the rank before goes off first, the own one arrives last.
Step reduce_scatter_step(const RingWork& work, int64_t index) {
  const int n = work.size;
  const int k = static_cast<int>(index % n);
  const Range range = work.piece_range(index / n);
  const int owner = work.ring.at(work.position - 1 - k);
  Step step = {.bytes = work.bytes(range.count), .receive = k > 0, .send = k < n - 1};
  step.local = work.src(work.block_begin(owner) + range.begin);
  if (k == n - 1) {
    step.store = work.dst(range.begin);
    step.last_addition = true;
    step.final_range = range;
  }
  return step;
}

Step all_gather_step(const RingWork& work, int64_t index) {
  const int n = work.size;
  const int k = static_cast<int>(index % n);
  const Range range = work.piece_range(index / n);
  const int64_t at = work.block_begin(work.ring.at(work.position - k)) + range.begin;
  Step step = {.bytes = work.bytes(range.count), .receive = k > 0, .send = k < n - 1};
  if (k == 0) step.local = work.src(range.begin);
  step.store = work.dst(at);
  step.final_range = {at, range.count};
  return step;
}

// A chain that begins at the root.
Step broadcast_step(const RingWork& work, int64_t index) {
  const int from_root =
      (work.position - work.ring.position_of(work.operation->root) + work.size) % work.size;
  const Range range = work.piece_range(index);
  Step step = {.bytes = work.bytes(range.count),
               .receive = from_root > 0,
               .send = from_root < work.size - 1,
               .store = work.dst(range.begin),
               .final_range = range};
  if (from_root == 0) step.local = work.src(range.begin);
  return step;
}

// A chain that ends at the root.
Step reduce_step(const RingWork& work, int64_t index) {
  const int after_root =
      (work.position - work.ring.position_of(work.operation->root) - 1 + 2 * work.size) % work.size;
  const bool last = after_root == work.size - 1;
  const Range range = work.piece_range(index);
  Step step = {.bytes = work.bytes(range.count),
               .receive = after_root > 0,
               .send = !last,
               .local = work.src(range.begin)};
  if (last) {
    step.store = work.dst(range.begin);
    step.last_addition = true;
    step.final_range = range;
  }
  return step;
}

void set_steps(Flow& flow, const RingWork& work) {
  const int n = work.size;
  switch (work.operation->collective) {
    case Collective::kAllReduce: {
      const Blocks blocks(work.part, n, work.piece, kUnitBytes / work.operation->element_bytes());
      flow.step_count = blocks.block_count() * (2 * n - 1);
      flow.step = [work, blocks](int64_t i) { return all_reduce_step(work, blocks, i); };
      return;
    }
    case Collective::kReduceScatter:
      flow.step_count = work.piece_count() * n;
      flow.step = [work](int64_t i) { return reduce_scatter_step(work, i); };
      return;
    case Collective::kAllGather:
      flow.step_count = work.piece_count() * n;
      flow.step = [work](int64_t i) { return all_gather_step(work, i); };
      return;
    case Collective::kBroadcast:
      flow.step_count = work.piece_count();
      flow.step = [work](int64_t i) { return broadcast_step(work, i); };
      return;
    default:
      flow.step_count = work.piece_count();
      flow.step = [work](int64_t i) { return reduce_step(work, i); };
  }
}

// Chains have ends: the root of a broadcast receives nothing, that of a reduction sends nothing.
void set_ends(Flow& flow, const RingWork& work) {
  const Collective collective = work.operation->collective;
  const int root = work.ring.position_of(work.operation->root);
  const int from_root = (work.position - root + work.size) % work.size;
  if (collective == Collective::kBroadcast) {
    if (from_root == 0) flow.in.reset();
    if (from_root == work.size - 1) flow.out.reset();
  } else if (collective == Collective::kReduce) {
    if (from_root == 1) flow.in.reset();
    if (from_root == 0) flow.out.reset();
  }
}

}  // namespace

std::vector<Flow> ring_flows(const OperationContext& context, const Operation& operation) {
  const RingPlan& plan = *context.plan;
  const int64_t element_bytes = operation.element_bytes();
  const std::vector<Range> parts = split_by_weight(plan, operation.count, element_bytes);
  std::vector<Flow> flows;
  for (size_t r = 0; r < plan.rings.size(); ++r) {
    const Ring& ring = plan.rings[r];
    const RingWork work = {.operation = &operation,
                           .ring = ring,
                           .part = parts[r],
                           .piece = std::max<int64_t>(1, plan.piece_bytes / element_bytes),
                           .size = context.size(),
                           .position = ring.position_of(context.rank())};
    const int lane = static_cast<int>(r) + 1;
    const int previous = ring.at(work.position - 1);
    Flow flow = {.in = Link{previous, lane}, .out = Link{ring.at(work.position + 1), lane}};
    flow.out_header = context.header;
    flow.out_header.path = Path::kRing;
    flow.out_header.part = static_cast<uint32_t>(r);
    flow.out_header.sender = context.rank();
    flow.in_header = flow.out_header;
    flow.in_header.sender = previous;
    set_ends(flow, work);
    set_steps(flow, work);
    flows.push_back(std::move(flow));
  }
  return flows;
}

Status run_on_rings(OperationContext& context, const Operation& operation) {
  context.header.path = Path::kRing;
  std::vector<Flow> flows = ring_flows(context, operation);
  return run_operation_flows(context, operation, flows);
}

}  // namespace jige::comm
