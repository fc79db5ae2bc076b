// An all-to-all as rounds: in each, every node sends one block to another node and receives one, so
// that after n - 1 rounds everybody has had a block of everybody. Which permutations make up the
// rounds decides which transfers meet on a link.
//
//   RoundSearch search(problem, capacity);
//   const RoundSchedule best = search.best({});     // least time, by the rows of `capacity`
//
// The time of a round is that of its slowest transfer while all run; rounds follow one another.
// Up to `exact_nodes_max` nodes all decompositions are searched, depth first with pruning; beyond
// that a schedule is improved by moves, without a claim. Ways of a round are chosen among all
// combinations where these are few, otherwise one edge at a time until none helps, without a claim.
// Threads: one caller.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plan/ring_capacity.h"
#include "plan/ring_problem.h"

namespace jige::plan {

// Candidates, one leaving each node and one reaching it, in the order of the nodes they leave.
using Round = std::vector<int32_t>;

struct RoundSchedule {
  std::vector<Round> rounds;
  double seconds = 0;  // for blocks of 1 GB
  bool exact = false;  // no other is faster, by the rows
};

// Round k sends from node i to node i + k, each by the usual transport: what is done without a
// plan.
std::vector<Round> shifted_rounds(const RingProblem& problem);

// Nodes that a round's nodes send to.
std::vector<int32_t> round_targets(const RingProblem& problem, const Round& round);

struct RoundLimits {
  int32_t exact_nodes_max = 7;
  int64_t steps_max = 3'000'000;  // of the exact search
  int32_t moves = 4000;           // of the other
  uint64_t seed = 1;
};

class RoundSearch {
 public:
  // Both outlive the search. REQUIRES: no chain.
  RoundSearch(const RingProblem& problem, const RingCapacity& capacity);

  RoundSchedule best(const RoundLimits& limits);
  // No schedule is faster, by the rows: every row has to carry what all transfers leave on it.
  double bound() const;

 private:
  using Targets = std::vector<int32_t>;  // of nodes, in order
  void find_ways();
  double crowding(const Round& round) const;
  const Round& round_of(const Targets& targets);
  double cost_of(const Targets& targets);
  RoundSchedule schedule_of(const std::vector<Targets>& all);
  bool search_all(const RoundLimits& limits, std::vector<Targets>& best, double& least);
  void improve(const RoundLimits& limits, std::vector<Targets>& best, double& least);

  const RingProblem& problem_;
  const RingCapacity& capacity_;
  std::vector<std::vector<int32_t>> ways_;  // of each edge, without those that another one beats
  std::map<Targets, std::pair<Round, double>> known_;
  bool all_ways_ = true;  // of every round known all combinations were tried
};

}  // namespace jige::plan
