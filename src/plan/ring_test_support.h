// What tests of ring plans share: random networks of two kinds, and every ring of a problem by
// plain enumeration.
//
// Threads: pure functions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "plan/ring_problem.h"
#include "topology/topology.h"

namespace jige::plan {

inline topology::Topology made(topology::Description d) {
  auto topology = topology::Topology::create(std::move(d), "random");
  EXPECT_TRUE(topology) << topology.error().message;
  return *topology;
}

// Hosts behind two to four routers that trunks of random rates join, each with each; links of
// hosts are random as well, and both differ by direction. One way from each host to each other.
inline topology::Description random_network(Rng& rng, int32_t hosts) {
  topology::Description d{.name = "random"};
  const auto routers = static_cast<int32_t>(2 + rng.below(3));
  for (int32_t i = 0; i < hosts; ++i) {
    d.add({.name = fmt::format("h{}", i), .kind = topology::ComponentKind::kHost});
  }
  for (int32_t r = 0; r < routers; ++r) {
    d.add({.name = fmt::format("r{}", r), .kind = topology::ComponentKind::kRouter});
  }
  const auto join = [&](int32_t from, int32_t to, double rate) {
    d.join({.from = from,
            .to = to,
            .kind = topology::LinkKind::kNetwork,
            .gb_per_s = rate * (0.5 + rng.uniform()),
            .back_gb_per_s = rate * (0.5 + rng.uniform())});
  };
  for (int32_t i = 0; i < hosts; ++i) {
    join(i, hosts + static_cast<int32_t>(rng.below(static_cast<uint64_t>(routers))), 1.5);
  }
  for (int32_t a = 0; a < routers; ++a) {
    for (int32_t b = a + 1; b < routers; ++b) join(hosts + a, hosts + b, 0.8);
  }
  return d;
}

// Two leaves that one trunk joins, hosts behind them in turn, rates of all links unequal; a few
// pairs of hosts are sent over an old switch beside them instead, which is slower.
inline topology::Description uneven_network(Rng& rng, int32_t hosts) {
  topology::Description d{.name = "uneven"};
  for (int32_t i = 0; i < hosts; ++i) {
    d.add({.name = fmt::format("h{}", i), .kind = topology::ComponentKind::kHost});
  }
  for (const char* name : {"leaf0", "leaf1", "old"}) {
    d.add({.name = name, .kind = topology::ComponentKind::kRouter});
  }
  const auto join = [&](int32_t from, int32_t to, double low, double high) {
    return d.join({.from = from,
                   .to = to,
                   .kind = topology::LinkKind::kNetwork,
                   .gb_per_s = low + (high - low) * rng.uniform(),
                   .back_gb_per_s = low + (high - low) * rng.uniform()});
  };
  std::vector<int32_t> up, aside;
  for (int32_t i = 0; i < hosts; ++i) {
    up.push_back(join(i, hosts + i % 2, 1, 1.6));
    aside.push_back(join(i, hosts + 2, 0.3, 0.6));
  }
  const int32_t trunk = join(hosts, hosts + 1, 0.9, 1.4);
  std::set<std::pair<int32_t, int32_t>> slow;
  for (uint64_t k = 1 + rng.below(static_cast<uint64_t>(hosts) - 2); k > 0; --k) {
    const auto a = static_cast<int32_t>(rng.below(static_cast<uint64_t>(hosts)));
    const auto b = static_cast<int32_t>(rng.below(static_cast<uint64_t>(hosts)));
    slow.insert({std::min(a, b), std::max(a, b)});
  }
  for (int32_t a = 0; a < hosts; ++a) {
    for (int32_t b = 0; b < hosts; ++b) {
      if (a == b) continue;
      const auto from = static_cast<size_t>(a), to = static_cast<size_t>(b);
      if (slow.contains({std::min(a, b), std::max(a, b)})) {
        d.routes.push_back({a, b, {aside[from], aside[to]}});
      } else if (a % 2 == b % 2) {
        d.routes.push_back({a, b, {up[from], up[to]}});
      } else {
        d.routes.push_back({a, b, {up[from], trunk, up[to]}});
      }
    }
  }
  return d;
}

// Every ring of a problem, every way of every edge.
inline std::vector<Ring> all_rings(const RingProblem& problem) {
  std::vector<Ring> rings;
  Ring ring;
  std::vector<char> visited(static_cast<size_t>(problem.node_count), 0);
  const std::function<void(int32_t)> extend = [&](int32_t at) {
    for (int32_t to = 0; to < problem.node_count; ++to) {
      const bool closes = ring.size() + 1 == visited.size();
      if (closes != (to == 0) || visited[static_cast<size_t>(to)]) continue;
      visited[static_cast<size_t>(to)] = 1;
      for (const int32_t way : problem.edge(at, to)) {
        ring.push_back(way);
        closes ? rings.push_back(ring) : extend(to);
        ring.pop_back();
      }
      visited[static_cast<size_t>(to)] = 0;
    }
  };
  extend(0);
  return rings;
}

}  // namespace jige::plan
