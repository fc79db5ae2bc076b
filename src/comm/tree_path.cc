// The tree path: on each tree sums go towards a root, results away from one. An all-reduce does
// both with the tree's own root, a reduction and a broadcast one of them with the operation's.
//
// A rank has a flow for each neighbour and way. Where several bring parts of one sum, each flow
// follows the one before: piece by piece, so that pieces move while later ones are still due below.
// Trees have no circles, so flows that wait for one another cannot block themselves.
#include <algorithm>
#include <memory>

#include "comm/operation.h"

namespace jige::comm {
namespace {

constexpr int64_t kTreePieceBytes = 16 << 10;  // that moves on as a whole where flows follow

// One tree's part of an operation, piece by piece; copied into the flows.
struct TreePart {
  const Operation* operation;
  Range part;

  int64_t piece() const { return kTreePieceBytes / operation->element_bytes(); }
  int64_t count() const { return (part.count + piece() - 1) / piece(); }
  Range range(int64_t index) const {
    const int64_t begin = index * piece();
    return {part.begin + begin, std::min(piece(), part.count - begin)};
  }
  int64_t bytes(int64_t elements) const { return elements * operation->element_bytes(); }
  const std::byte* src(const Range& r) const { return operation->src + bytes(r.begin); }
  std::byte* dst(const Range& r) const { return operation->dst + bytes(r.begin); }
};

// The flows of one tree, as this rank has them.
class TreeWork {
 public:
  TreeWork(const OperationContext& context, const Operation& operation, size_t tree, Range part)
      : context_(context), part_{&operation, part}, collective_(operation.collective), tree_(tree) {
    const TreePair& trees = *context.plan->trees;
    const int root = collective_ == Collective::kAllReduce ? trees.root(tree) : operation.root;
    if (context.rank() != root) up_ = trees.towards(tree, context.rank(), root);
    for (const int next : trees.neighbours(tree, context.rank())) {
      if (next != up_) below_.push_back(next);
    }
  }

  void add_flows(std::vector<Flow>& flows) const {
    std::shared_ptr<int64_t> sums;
    if (collective_ != Collective::kBroadcast) sums = add_sums(flows);
    if (collective_ != Collective::kReduce) add_results(flows, std::move(sums));
  }

 private:
  using Progress = std::shared_ptr<int64_t>;
  enum Way : uint32_t { kUp, kDown };

  bool at_root() const { return up_ < 0; }

  Header header(Way way, int sender) const {
    Header h = context_.header;
    h.path = Path::kTree;
    h.part = static_cast<uint32_t>(2 * tree_) + way;
    h.sender = sender;
    return h;
  }
  Flow& add_flow(std::vector<Flow>& flows, Way way, int from, int to, Progress after) const {
    Flow flow = {.step_count = part_.count()};
    const int lane = tree_lane(*context_.plan, tree_);
    if (from >= 0) {
      flow.in = Link{from, lane};
      flow.in_header = header(way, from);
    }
    if (to >= 0) {
      flow.out = Link{to, lane};
      flow.out_header = header(way, context_.rank());
    }
    flow.progress = std::make_shared<int64_t>(0);
    flow.follows = std::move(after);
    flows.push_back(std::move(flow));
    return flows.back();
  }

  Progress add_sums(std::vector<Flow>& flows) const;
  void add_results(std::vector<Flow>& flows, Progress sums) const;

  const OperationContext& context_;
  TreePart part_;
  Collective collective_;
  size_t tree_;
  int up_ = -1;             // towards the root; none at it
  std::vector<int> below_;  // the other neighbours
};

// The own part and one neighbour's after another; the last flow sends the sum on, or at the root
// stores it. Sums that are not whole lie in dst where that will be written anyway.
TreeWork::Progress TreeWork::add_sums(std::vector<Flow>& flows) const {
  if (below_.empty()) {
    Flow& flow = add_flow(flows, kUp, -1, up_, nullptr);
    flow.step = [part = part_](int64_t i) {
      const Range range = part.range(i);
      return Step{.bytes = part.bytes(range.count), .send = true, .local = part.src(range)};
    };
    return flow.progress;
  }
  std::shared_ptr<std::vector<std::byte>> own;
  if (collective_ == Collective::kReduce && !at_root() && below_.size() > 1) {
    const int64_t bytes = part_.bytes(part_.part.count);
    own = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes));
  }
  Progress before;
  for (size_t b = 0; b < below_.size(); ++b) {
    const bool first = b == 0;
    const bool last = b + 1 == below_.size();
    const bool whole = last && at_root();
    const bool ends = whole && collective_ == Collective::kReduce;
    Flow& flow = add_flow(flows, kUp, below_[b], last ? up_ : -1, before);
    flow.step = [part = part_, own, first, last, whole, ends](int64_t i) {
      const Range range = part.range(i);
      std::byte* sum =
          own ? own->data() + part.bytes(range.begin - part.part.begin) : part.dst(range);
      return Step{.bytes = part.bytes(range.count),
                  .receive = true,
                  .send = last && !whole,
                  .local = first ? part.src(range) : sum,
                  .store = last && !whole ? nullptr : sum,
                  .last_addition = whole,
                  .final_range = ends ? range : Range{}};
    };
    before = flow.progress;
  }
  return before;
}

// To one neighbour after another, so that what the last flow has sent is final.
void TreeWork::add_results(std::vector<Flow>& flows, Progress sums) const {
  const bool from_src = at_root() && collective_ == Collective::kBroadcast;
  Progress before = at_root() ? std::move(sums) : nullptr;
  const size_t count = std::max<size_t>(1, below_.size());
  for (size_t b = 0; b < count; ++b) {
    const bool first = b == 0;
    const bool last = b + 1 == count;
    const bool comes = first && !at_root();
    const int to = b < below_.size() ? below_[b] : -1;
    Flow& flow = add_flow(flows, kDown, comes ? up_ : -1, to, before);
    flow.step = [part = part_, from_src, first, last, comes, to](int64_t i) {
      const Range range = part.range(i);
      Step step = {.bytes = part.bytes(range.count),
                   .receive = comes,
                   .send = to >= 0,
                   .final_range = last ? range : Range{}};
      if (!comes) step.local = from_src ? part.src(range) : part.dst(range);
      if (comes || (first && from_src)) step.store = part.dst(range);
      return step;
    };
    before = flow.progress;
  }
}

}  // namespace

std::vector<Flow> tree_flows(const OperationContext& context, const Operation& operation) {
  const auto halves = split_in_halves(operation.count, operation.element_bytes());
  std::vector<Flow> flows;
  for (size_t t = 0; t < halves.size(); ++t) {
    // Without elements the first tree still says which operation this is.
    if (halves[t].count == 0 && t > 0) continue;
    TreeWork(context, operation, t, halves[t]).add_flows(flows);
  }
  return flows;
}

Status run_on_trees(OperationContext& context, const Operation& operation) {
  context.header.path = Path::kTree;
  std::vector<Flow> flows = tree_flows(context, operation);
  return run_operation_flows(context, operation, flows);
}

}  // namespace jige::comm
