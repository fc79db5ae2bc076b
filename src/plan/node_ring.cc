#include "plan/node_ring.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/rng.h"

namespace jige::plan {
namespace {

// An entry of a table, by the positions of its NICs in the class.
struct Passage {
  int32_t entry, exit;  // NICs as components
  double rate;
};

class NodeRingSearch {
 public:
  NodeRingSearch(const std::vector<ChainTable>& tables, const std::vector<int32_t>& nodes,
                 const NodeLinkRate& link_rate)
      : tables_(tables), nodes_(nodes), link_rate_(link_rate) {
    for (const ChainTable& table : tables) {
      std::vector<Passage> list;
      for (const auto& [nics, chain] : table.chains) {
        list.push_back({nics.first, nics.second, chain.best.rate});
      }
      passages_.push_back(std::move(list));
    }
  }

  // The best choice of NICs for an order: dynamic programming along it, once for every passage of
  // the first machine.
  NodeRing for_order(const std::vector<int32_t>& order) const {
    NodeRing best{.order = order};
    for (const Passage& first : passages(order[0])) {
      std::vector<std::vector<double>> value;
      std::vector<std::vector<int32_t>> from;
      for (size_t i = 1; i < order.size(); ++i) {
        const std::vector<Passage>& here = passages(order[i]);
        value.emplace_back(here.size(), 0);
        from.emplace_back(here.size(), 0);
        for (size_t p = 0; p < here.size(); ++p) {
          const size_t before_count = i == 1 ? 1 : value[i - 2].size();
          for (size_t q = 0; q < before_count; ++q) {
            const Passage& before = i == 1 ? first : passages(order[i - 1])[q];
            const double reached = std::min({i == 1 ? first.rate : value[i - 2][q], here[p].rate,
                                             link(order[i - 1], before, order[i], here[p])});
            if (reached <= value[i - 1][p]) continue;
            value[i - 1][p] = reached;
            from[i - 1][p] = static_cast<int32_t>(q);
          }
        }
      }
      for (size_t p = 0; p < value.back().size(); ++p) {
        const Passage& last = passages(order.back())[p];
        const double rate = std::min(value.back()[p], link(order.back(), last, order[0], first));
        if (rate <= best.rate) continue;
        best.rate = rate;
        best.nics.assign(order.size(), {first.entry, first.exit});
        size_t at = p;
        for (size_t i = order.size() - 1; i > 0; --i) {
          const Passage& passage = passages(order[i])[at];
          best.nics[i] = {passage.entry, passage.exit};
          at = static_cast<size_t>(from[i - 1][at]);
        }
      }
    }
    return best;
  }

  // Machine 0 stands first; value[set][machine][passage] over the sets of the others.
  std::vector<int32_t> exact_order() const {
    const size_t others = nodes_.size() - 1;
    double best_rate = 0;
    std::vector<int32_t> best(nodes_.size());
    std::iota(best.begin(), best.end(), 0);
    for (const Passage& first : passages(0)) {
      struct Cell {
        double rate = 0;
        int32_t node = -1, passage = -1;  // before it
      };
      std::vector<std::vector<std::vector<Cell>>> value(size_t{1} << others);
      for (size_t set = 1; set < value.size(); ++set) {
        value[set].resize(others);
        for (size_t n = 0; n < others; ++n) {
          if (!(set >> n & 1)) continue;
          const auto node = static_cast<int32_t>(n) + 1;
          const std::vector<Passage>& here = passages(node);
          value[set][n].resize(here.size());
          const size_t rest = set & ~(size_t{1} << n);
          for (size_t p = 0; p < here.size(); ++p) {
            Cell& cell = value[set][n][p];
            const auto reach = [&](double rate, int32_t from, int32_t q, const Passage& before) {
              rate = std::min({rate, here[p].rate, link(from, before, node, here[p])});
              if (rate > cell.rate) cell = {rate, from, q};
            };
            if (rest == 0) reach(first.rate, 0, 0, first);
            for (size_t m = 0; m < others; ++m) {
              if (!(rest >> m & 1)) continue;
              for (size_t q = 0; q < value[rest][m].size(); ++q) {
                const auto from = static_cast<int32_t>(m) + 1;
                reach(value[rest][m][q].rate, from, static_cast<int32_t>(q), passages(from)[q]);
              }
            }
          }
        }
      }
      const size_t all = value.size() - 1;
      for (size_t n = 0; n < others; ++n) {
        for (size_t p = 0; p < value[all][n].size(); ++p) {
          const auto node = static_cast<int32_t>(n) + 1;
          const double rate =
              std::min(value[all][n][p].rate, link(node, passages(node)[p], 0, first));
          if (rate <= best_rate) continue;
          best_rate = rate;
          size_t set = all, at = n, passage = p;
          for (size_t i = nodes_.size() - 1; i > 0; --i) {
            best[i] = static_cast<int32_t>(at) + 1;
            const Cell& cell = value[set][at][passage];
            set &= ~(size_t{1} << at);
            if (cell.node <= 0) break;
            at = static_cast<size_t>(cell.node) - 1;
            passage = static_cast<size_t>(cell.passage);
          }
        }
      }
    }
    return best;
  }

  NodeRing local_order(const NodeRingOptions& options) const {
    const double most = chain_bound();
    std::vector<int32_t> start(nodes_.size());
    std::iota(start.begin(), start.end(), 0);
    NodeRing best = for_order(start);
    Rng rng(derive_key(options.seed, "node order"));
    for (int32_t round = 0; round < options.rounds && best.rate < most; ++round) {
      NodeRing here = for_order(start);
      for (bool better = true; better && here.rate < most;) {
        better = false;
        for (size_t a = 1; a < start.size() && !better; ++a) {
          for (size_t b = a + 1; b < start.size() && !better; ++b) {
            for (const bool turn : {true, false}) {
              std::vector<int32_t> order = here.order;
              const auto at = [&](size_t i) { return order.begin() + static_cast<ptrdiff_t>(i); };
              turn ? std::reverse(at(a), at(b + 1)) : std::iter_swap(at(a), at(b));
              NodeRing next = for_order(order);
              if (next.rate <= here.rate) continue;
              here = std::move(next);
              better = true;
              break;
            }
          }
        }
      }
      if (here.rate > best.rate) best = here;
      rng.shuffle(std::span(start).subspan(1));
    }
    return best;
  }

 private:
  // What the machines let through in any order.
  double chain_bound() const {
    double bound = std::numeric_limits<double>::infinity();
    for (int32_t node = 0; node < static_cast<int32_t>(nodes_.size()); ++node) {
      double fastest = 0;
      for (const Passage& passage : passages(node)) fastest = std::max(fastest, passage.rate);
      bound = std::min(bound, fastest);
    }
    return bound;
  }
  const std::vector<Passage>& passages(int32_t node) const {
    return passages_[static_cast<size_t>(nodes_[static_cast<size_t>(node)])];
  }
  double link(int32_t from, const Passage& out, int32_t to, const Passage& in) const {
    return link_rate_({from, out.exit}, {to, in.entry});
  }

  const std::vector<ChainTable>& tables_;
  const std::vector<int32_t>& nodes_;
  const NodeLinkRate& link_rate_;
  std::vector<std::vector<Passage>> passages_;  // by class
};

}  // namespace

Result<ChainTable> measure_chains(const NodeClass& node_class, profile::Profiler& profiler,
                                  const RingPlanOptions& options) {
  if (node_class.nics.empty()) {
    return fail(Code::kInvalidArgument,
                "node class \"{}\" has no NIC; a ring over machines needs one", node_class.name);
  }
  ChainTable table{node_class, {}};
  for (const int32_t entry : node_class.nics) {
    for (const int32_t exit : node_class.nics) {
      JIGE_TRY(RingProblem problem,
               chain_problem(*node_class.topology, node_class.devices, entry, exit, {}));
      JIGE_TRY(const RingPlan plan, plan_ring(problem, profiler, options));
      table.chains.emplace(std::pair(entry, exit),
                           Chain{std::move(problem), plan.best.front(), plan.gap()});
    }
  }
  return table;
}

Result<NodeRing> plan_node_ring(const std::vector<ChainTable>& tables,
                                const std::vector<int32_t>& nodes, const NodeLinkRate& link_rate,
                                const NodeRingOptions& options) {
  if (nodes.size() < 2) {
    return fail(Code::kInvalidArgument, "{} machine{} to plan for, a ring over machines needs two",
                nodes.size(), nodes.size() == 1 ? "" : "s");
  }
  for (const int32_t node_class : nodes) {
    if (node_class >= 0 && node_class < static_cast<int32_t>(tables.size())) continue;
    return fail(Code::kInvalidArgument, "node class {} is unknown; there are {}", node_class,
                tables.size());
  }
  const NodeRingSearch search(tables, nodes, link_rate);
  std::vector<int32_t> given(nodes.size());
  std::iota(given.begin(), given.end(), 0);
  const bool exact = static_cast<int32_t>(nodes.size()) <= options.exact_nodes_max;
  NodeRing ring = exact ? search.for_order(search.exact_order()) : search.local_order(options);
  ring.exact = exact;
  ring.rank_order_rate = search.for_order(given).rate;
  return ring;
}

}  // namespace jige::plan
