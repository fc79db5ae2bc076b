#include "plan/ring_cost_bound.h"

#include <algorithm>
#include <limits>

namespace jige::plan {
namespace {

constexpr double kWork = 2e9;      // comparisons of all rounds together, about
constexpr int32_t kPatience = 15;  // rounds without a gain before steps get shorter
constexpr double kShortestStep = 1e-4;
constexpr double kMemory = 0.3;   // of a step's way in the next: trees swing from side to side
constexpr double kFavour = 1e-4;  // of its cost, for the known ring: where many trees cost the same

using Costs = std::vector<double>;

size_t at(int32_t n, int32_t from, int32_t to) { return static_cast<size_t>(from * n + to); }

// The cheapest edge into every node but the root.
std::vector<int32_t> cheapest_entries(int32_t n, int32_t root, const Costs& cost) {
  std::vector<int32_t> before(static_cast<size_t>(n), -1);
  for (int32_t to = 0; to < n; ++to) {
    if (to == root) continue;
    int32_t& best = before[static_cast<size_t>(to)];
    for (int32_t from = 0; from < n; ++from) {
      if (from == to) continue;
      if (best < 0 || cost[at(n, from, to)] < cost[at(n, best, to)]) best = from;
    }
  }
  return before;
}

// Members of one circle among these edges, empty if there is none.
std::vector<int32_t> find_circle(const std::vector<int32_t>& before) {
  std::vector<int32_t> seen(before.size(), -1);
  for (int32_t start = 0; start < static_cast<int32_t>(before.size()); ++start) {
    int32_t node = start;
    while (node >= 0 && seen[static_cast<size_t>(node)] < 0) {
      seen[static_cast<size_t>(node)] = start;
      node = before[static_cast<size_t>(node)];
    }
    if (node < 0 || seen[static_cast<size_t>(node)] != start) continue;
    std::vector<int32_t> circle{node};
    for (int32_t next = before[static_cast<size_t>(node)]; next != node;
         next = before[static_cast<size_t>(next)]) {
      circle.push_back(next);
    }
    return circle;
  }
  return {};
}

// The problem with a circle made one node, the last.
struct Contracted {
  int32_t count = 0;
  std::vector<int32_t> image;  // of every node
  Costs cost;
  std::vector<int32_t> entry;  // by node before it: the circle's node that an edge enters
  std::vector<int32_t> exit;   // by node behind it: the one that an edge leaves
  std::vector<int32_t> origin;
};

Contracted contract(int32_t n, const Costs& cost, const std::vector<int32_t>& before,
                    const std::vector<int32_t>& circle) {
  Contracted c;
  std::vector<char> inside(static_cast<size_t>(n), 0);
  for (const int32_t node : circle) inside[static_cast<size_t>(node)] = 1;
  for (int32_t node = 0; node < n; ++node) {
    if (!inside[static_cast<size_t>(node)]) c.origin.push_back(node);
  }
  const auto one = static_cast<int32_t>(c.origin.size());
  c.count = one + 1;
  c.image.assign(static_cast<size_t>(n), one);
  for (int32_t i = 0; i < one; ++i)
    c.image[static_cast<size_t>(c.origin[static_cast<size_t>(i)])] = i;
  c.cost.assign(static_cast<size_t>(c.count) * static_cast<size_t>(c.count),
                std::numeric_limits<double>::infinity());
  c.entry.assign(static_cast<size_t>(one), -1);
  c.exit.assign(static_cast<size_t>(one), -1);
  for (int32_t i = 0; i < one; ++i) {
    const int32_t node = c.origin[static_cast<size_t>(i)];
    for (int32_t k = 0; k < one; ++k) {
      if (k == i) continue;
      c.cost[at(c.count, i, k)] = cost[at(n, node, c.origin[static_cast<size_t>(k)])];
    }
    for (const int32_t member : circle) {
      // Who enters at a member takes the place of the circle's own edge into it.
      const double into =
          cost[at(n, node, member)] - cost[at(n, before[static_cast<size_t>(member)], member)];
      if (into < c.cost[at(c.count, i, one)]) {
        c.cost[at(c.count, i, one)] = into;
        c.entry[static_cast<size_t>(i)] = member;
      }
      if (cost[at(n, member, node)] < c.cost[at(c.count, one, i)]) {
        c.cost[at(c.count, one, i)] = cost[at(n, member, node)];
        c.exit[static_cast<size_t>(i)] = member;
      }
    }
  }
  return c;
}

}  // namespace

std::vector<int32_t> cheapest_arborescence(int32_t n, int32_t root, const Costs& cost) {
  std::vector<int32_t> before = cheapest_entries(n, root, cost);
  const std::vector<int32_t> circle = find_circle(before);
  if (circle.empty()) return before;
  const Contracted c = contract(n, cost, before, circle);
  const std::vector<int32_t> tree =
      cheapest_arborescence(c.count, c.image[static_cast<size_t>(root)], c.cost);
  const int32_t one = c.count - 1;
  for (int32_t i = 0; i < one; ++i) {
    const int32_t above = tree[static_cast<size_t>(i)];
    if (above < 0) continue;
    before[static_cast<size_t>(c.origin[static_cast<size_t>(i)])] =
        above == one ? c.exit[static_cast<size_t>(i)] : c.origin[static_cast<size_t>(above)];
  }
  const auto above = static_cast<size_t>(tree[static_cast<size_t>(one)]);
  before[static_cast<size_t>(c.entry[above])] = c.origin[above];
  return before;
}

double ring_cost_bound(int32_t n, const Costs& cost, const CheapestRing& known,
                       const RingCostBoundOptions& options) {
  const auto count = static_cast<size_t>(n);
  Costs favoured = cost;
  for (size_t i = 0; i < count; ++i) {
    favoured[at(n, known.order[i], known.order[(i + 1) % count])] -= kFavour * known.cost / n;
  }
  const double per_round = 4.0 * n * n * n;
  const auto affordable = static_cast<int32_t>(std::min(1e6, kWork / per_round));
  const int32_t rounds = std::clamp(affordable, 1, options.rounds);
  std::vector<double> leaving(count, 0);
  std::vector<double> way(count, 0);  // of the last step
  double best = -std::numeric_limits<double>::infinity();
  double step = 1;
  int32_t since_gain = 0;
  for (int32_t round = 0; round < rounds && step > kShortestStep; ++round) {
    Costs priced = favoured;
    double bound = 0;
    for (int32_t from = 0; from < n; ++from) {
      for (int32_t to = 0; to < n; ++to)
        priced[at(n, from, to)] += leaving[static_cast<size_t>(from)];
      bound -= leaving[static_cast<size_t>(from)];
    }
    std::vector<int32_t> before = cheapest_arborescence(n, 0, priced);
    for (int32_t from = 1; from < n; ++from) {
      if (before[0] < 0 || priced[at(n, from, 0)] < priced[at(n, before[0], 0)]) before[0] = from;
    }
    std::vector<double> excess(count, -1);  // leavings but one
    for (int32_t to = 0; to < n; ++to) {
      const int32_t from = before[static_cast<size_t>(to)];
      bound += priced[at(n, from, to)];
      excess[static_cast<size_t>(from)] += 1;
    }
    since_gain = bound > best ? 0 : since_gain + 1;
    best = std::max(best, bound);
    double square = 0;
    for (size_t i = 0; i < count; ++i) {
      way[i] = kMemory * way[i] + (1 - kMemory) * excess[i];
      square += way[i] * way[i];
    }
    const double room = known.cost - bound;
    if (square == 0 || room <= 0) break;  // a ring, or as dear as one
    if (since_gain >= kPatience) {
      step /= 2;
      since_gain = 0;
    }
    for (size_t i = 0; i < count; ++i) leaving[i] += step * room / square * way[i];
  }
  return best;
}

}  // namespace jige::plan
