// A ring in the making: nodes visited, transfers chosen, and two values of what is there so far,
// kept up to date step by step.
//
// `bound` rests on measurement alone (ring_facts.h). `predicted` is what the description's rates
// allow, and never above the bound. Both only fall as transfers are added.
// Invariants: pop() undoes push() exactly, bit for bit.
// Threads: one caller.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ring_facts.h"
#include "plan/ring_problem.h"
#include "profile/symmetry.h"

namespace jige::plan {

struct RingValues {
  double bound;
  double predicted;
};

class RingState {
 public:
  RingState(const RingProblem& problem, const RingFacts& facts);

  // The values once `candidate` were pushed.
  RingValues peek(int32_t candidate) const;
  void push(int32_t candidate, RingValues values);
  void pop();

  const Ring& ring() const { return ring_; }
  int32_t node() const { return nodes_.back(); }
  const std::vector<int32_t>& nodes() const { return nodes_; }
  bool visited(int32_t node) const { return visited_[static_cast<size_t>(node)] != 0; }
  bool complete() const { return static_cast<int32_t>(ring_.size()) == problem_.node_count; }
  RingValues values() const { return values_.back(); }
  // The resource that a description thinks full first, -1 where none has a rate.
  int32_t tightest() const;

 private:
  double effective_rate(int32_t resource, int32_t flows) const;

  const RingProblem& problem_;
  const RingFacts& facts_;
  Ring ring_;
  std::vector<int32_t> nodes_;
  std::vector<char> visited_, chosen_;
  std::vector<RingValues> values_;
  std::vector<double> load_;  // by resource: GB/s taken at 1 GB/s of the ring
  std::vector<int32_t> flows_;
  std::vector<double> undo_;  // loads before each push, in the order of usage
};

// Which nodes need not be tried next, since another one leads to the mirror image of the same
// rings.
class RingBranching {
 public:
  // A symmetry that is not complete spares nothing.
  RingBranching(const RingProblem& problem, const profile::Symmetry& symmetry);

  // To be called in step with RingState: after the node is visited, and before it is left.
  void enter(int32_t node);
  void leave() { stabilisers_.pop_back(); }
  // Whether `node` is the first of those that look alike from here.
  bool first_of_its_kind(int32_t node) const;

 private:
  std::vector<std::vector<int32_t>> permutations_;  // of nodes
  std::vector<std::vector<int32_t>> stabilisers_;   // of all nodes visited: indices into the above
};

// The ways on from here, best bound first, then best prediction, then fewest links.
struct RingStep {
  int32_t candidate;
  RingValues values;
};
// Leaves out what is not above `floor` by bound, or by prediction where `by_prediction`.
std::vector<RingStep> ring_steps(const RingProblem& problem, const RingState& state,
                                 const RingBranching& branching, double floor, bool by_prediction);

}  // namespace jige::plan
