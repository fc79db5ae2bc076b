// Heaviest closed sets: of nodes with weights, where choosing one means choosing all it requires,
// the set with the largest sum. By a minimum cut (Picard, 1976), found with Dinic's algorithm.
//
//   ClosureProblem problem(3);
//   problem.add_weight(0, -5); problem.add_weight(1, 7);
//   problem.require(1, 0);      // 1 only together with 0
//   problem.solve();            // weight 2, {0, 1}
//
// Threads: one caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace jige::plan {

class ClosureProblem {
 public:
  explicit ClosureProblem(size_t node_count);

  void add_weight(size_t node, int64_t weight) { weights_[node] += weight; }
  // Choosing `node` requires choosing `other`.
  void require(size_t node, size_t other);

  struct Solution {
    int64_t weight = 0;        // of the heaviest closed set; the empty one weighs 0
    std::vector<bool> chosen;  // a smallest such set
  };
  // REQUIRES: the sum of all positive weights fits 62 bits. Called once.
  Solution solve();

 private:
  struct Edge {
    size_t to;
    int64_t capacity;
  };
  void add_edge(size_t from, size_t to, int64_t capacity);
  void list_outgoing();
  bool find_levels();
  int64_t push();

  size_t source_, sink_;
  std::vector<int64_t> weights_;
  std::vector<Edge> edges_;  // an edge and its reverse stand side by side
  // Those of node n are outgoing_[begins_[n]] up to outgoing_[begins_[n + 1]], in order.
  std::vector<size_t> outgoing_, begins_;
  std::vector<int32_t> level_;
  std::vector<size_t> queue_, path_, next_;
};

}  // namespace jige::plan
