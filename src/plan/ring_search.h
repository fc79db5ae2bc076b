// Exact searches over the rings of a small problem, depth first with pruning.
//
// propose_ring: of the rings not yet tried, the one that the description, corrected by what was
// measured, promises most. prove_rings: measures what could be faster than a given rate until
// nothing can.
//
// Both rely on rates that never rise when a transfer is added; values of a path are clamped to
// those of its beginning. Threads: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>

#include "plan/ring_facts.h"
#include "plan/ring_problem.h"
#include "profile/profiler.h"

namespace jige::plan {

struct RingProposal {
  Ring ring;
  double predicted = 0;
  bool exhausted = false;  // the search ended at its limit: a better one may exist
};

struct ProposalLimits {
  double floor = 0;               // only what promises more
  int64_t steps_max = 4'000'000;  // nodes of the search tree
};

// Nothing where no untried ring is promised more than the floor.
std::optional<RingProposal> propose_ring(const RingProblem& problem, const RingFacts& facts,
                                         const profile::Symmetry& symmetry,
                                         const std::set<Ring>& tried, const ProposalLimits& limits);

// What a proof needs from its surroundings.
struct ProofContext {
  // Measures a ring, remembers it, and gives its rate.
  std::function<Result<double>(const Ring&)> rate_of_ring;
  std::function<Result<double>(const std::vector<int32_t>&)> rate_of_set;
  std::function<double()> floor;  // rings up to this rate are not looked for
  std::function<bool()> out_of_budget;
  std::function<bool()> go_on;  // asked now and then; may be empty
  int64_t steps_max = 50'000'000;
};

struct Proof {
  bool complete = false;
  double open_bound = 0;  // no ring that was not ruled out is faster; 0 when complete
  int64_t steps = 0;
};

// Learns conflicts into `facts`. Fails with kCancelled once go_on says no.
Result<Proof> prove_rings(const RingProblem& problem, RingFacts& facts,
                          const profile::Symmetry& symmetry, const ProofContext& context);

// Explains a set's rate by a part of it that is as slow: no faster than `slow`, and no member can
// be left out. Adds the conflict to `facts`. REQUIRES: rate_of_set(set) <= slow.
Status learn_conflict(const RingProblem& problem, RingFacts& facts, const Ring& set, double slow,
                      const ProofContext& context);

}  // namespace jige::plan
