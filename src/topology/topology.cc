#include "topology/topology.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "topology/topology_checks.h"

namespace jige::topology {

// Fills a Topology in steps that depend on one another.
class TopologyBuilder {
 public:
  explicit TopologyBuilder(Description description) { t_.description_ = std::move(description); }

  void number_endpoints() {
    for (const Component& component : t_.components()) {
      t_.endpoint_rank_.push_back(is_endpoint(component.kind) ? t_.endpoint_count_++ : -1);
    }
    const auto count = static_cast<size_t>(t_.endpoint_count_);
    t_.routes_.resize(count * count);
  }

  void list_resources() {
    const auto add = [&](Resource resource) {
      if (resource.gb_per_s == kUnlimited) return -1;
      t_.resources_.push_back(std::move(resource));
      return static_cast<int32_t>(t_.resources_.size()) - 1;
    };
    for (size_t i = 0; i < t_.links().size(); ++i) {
      const Link& link = t_.links()[i];
      const auto at = static_cast<int32_t>(i);
      t_.forward_resource_.push_back(
          add({link.name + " >", ResourceKind::kLink, at, false, link.gb_per_s, {}}));
      t_.backward_resource_.push_back(
          add({link.name + " <", ResourceKind::kLink, at, true, link.back_gb_per_s, {}}));
    }
    for (size_t i = 0; i < t_.components().size(); ++i) {
      const Component& c = t_.components()[i];
      const auto at = static_cast<int32_t>(i);
      t_.component_resource_.push_back(
          add({c.name, ResourceKind::kComponent, at, false, c.gb_per_s, c.penalty}));
      t_.copy_resource_.push_back(c.copy_engine_gb_per_s > 0 ? add({c.name + " copy engine",
                                                                    ResourceKind::kCopyEngine,
                                                                    at,
                                                                    false,
                                                                    c.copy_engine_gb_per_s,
                                                                    {}})
                                                             : -1);
    }
  }

  void find_routes() {
    const size_t count = t_.components().size();
    std::vector<std::vector<Hop>> leaving(count);
    for (size_t i = 0; i < t_.links().size(); ++i) {
      const Link& link = t_.links()[i];
      leaving[static_cast<size_t>(link.from)].push_back({static_cast<int32_t>(i), false});
      leaving[static_cast<size_t>(link.to)].push_back({static_cast<int32_t>(i), true});
    }
    for (size_t src = 0; src < count; ++src) {
      if (t_.endpoint_rank_[src] >= 0) search_from(static_cast<int32_t>(src), leaving);
    }
    for (const RouteOverride& route : t_.description_.routes) {
      std::vector<Hop>& hops = t_.routes_[t_.pair_index(route.src, route.dst)];
      hops.clear();
      int32_t at = route.src;
      for (const int32_t link : route.links) {
        const Link& step = t_.links()[static_cast<size_t>(link)];
        hops.push_back({link, step.from != at});
        at = step.from == at ? step.to : step.from;
      }
    }
  }

  Topology take() { return std::move(t_); }

 private:
  int32_t end_of(Hop hop) const {
    const Link& link = t_.links()[static_cast<size_t>(hop.link)];
    return hop.backward ? link.from : link.to;
  }

  // Breadth first, links in the order of the description.
  void search_from(int32_t src, const std::vector<std::vector<Hop>>& leaving) {
    std::vector<std::vector<Hop>> path(leaving.size());
    std::vector<bool> seen(leaving.size(), false);
    std::vector<int32_t> queue{src};
    seen[static_cast<size_t>(src)] = true;
    for (size_t head = 0; head < queue.size(); ++head) {
      const auto at = static_cast<size_t>(queue[head]);
      if (queue[head] != src && !forwards(t_.component(queue[head]).kind)) continue;
      for (const Hop hop : leaving[at]) {
        const int32_t next = end_of(hop);
        if (seen[static_cast<size_t>(next)]) continue;
        seen[static_cast<size_t>(next)] = true;
        path[static_cast<size_t>(next)] = path[at];
        path[static_cast<size_t>(next)].push_back(hop);
        queue.push_back(next);
        if (t_.endpoint_rank_[static_cast<size_t>(next)] >= 0) {
          t_.routes_[t_.pair_index(src, next)] = path[static_cast<size_t>(next)];
        }
      }
    }
  }

  Topology t_;
};

Result<Topology> Topology::create(Description description, std::string_view where) {
  JIGE_DO(check_components(description, where));
  JIGE_DO(check_links(description, where));
  JIGE_DO(check_peers(description, where));
  JIGE_DO(check_routes(description, where));
  TopologyBuilder builder(std::move(description));
  builder.number_endpoints();
  builder.list_resources();
  builder.find_routes();
  Topology topology = builder.take();
  JIGE_DO(check_reach(topology, where));
  return topology;
}

std::vector<int32_t> Topology::of_kind(ComponentKind kind) const {
  std::vector<int32_t> found;
  for (size_t i = 0; i < components().size(); ++i) {
    if (components()[i].kind == kind) found.push_back(static_cast<int32_t>(i));
  }
  return found;
}

size_t Topology::pair_index(int32_t src, int32_t dst) const {
  const int32_t from = endpoint_rank_[static_cast<size_t>(src)];
  const int32_t to = endpoint_rank_[static_cast<size_t>(dst)];
  JIGE_CHECK(from >= 0 && to >= 0, "a route needs endpoints, got {} and {}", component(src).name,
             component(dst).name);
  return static_cast<size_t>(from) * static_cast<size_t>(endpoint_count_) + static_cast<size_t>(to);
}

std::span<const Hop> Topology::route(int32_t src, int32_t dst) const {
  return routes_[pair_index(src, dst)];
}

bool Topology::passes(int32_t src, int32_t dst, ComponentKind kind) const {
  for (const Hop hop : route(src, dst)) {
    const Link& link = links()[static_cast<size_t>(hop.link)];
    const int32_t end = hop.backward ? link.from : link.to;
    if (end != dst && component(end).kind == kind) return true;
  }
  return false;
}

int32_t Topology::count_links(int32_t src, int32_t dst, LinkKind kind) const {
  return static_cast<int32_t>(std::ranges::count_if(route(src, dst), [&](Hop hop) {
    return links()[static_cast<size_t>(hop.link)].kind == kind;
  }));
}

Result<std::vector<Usage>> Topology::usage(const Transfer& transfer) const {
  JIGE_DO(check_transfer(*this, transfer));
  std::map<int32_t, double> costs;
  const auto use = [&](int32_t resource, double cost) {
    if (resource >= 0) costs[resource] += cost;
  };
  // One leg from an endpoint to another, both ends included.
  const auto leg = [&](int32_t src, int32_t dst, bool pull) {
    const auto through = [&](int32_t at) {
      use(component_resource_[static_cast<size_t>(at)], pull ? component(at).pull_cost : 1);
    };
    through(src);
    for (const Hop hop : route(src, dst)) {
      const auto link = static_cast<size_t>(hop.link);
      use(hop.backward ? backward_resource_[link] : forward_resource_[link], 1);
      through(hop.backward ? links()[link].from : links()[link].to);
    }
  };
  const bool staged = transfer.kind == TransferKind::kStaged;
  leg(transfer.src, staged ? transfer.via : transfer.dst, transfer.kind == TransferKind::kPull);
  if (staged) leg(transfer.via, transfer.dst, false);
  if (transfer.engine == Engine::kCopy) {
    // The engine belongs to whoever issues the copy: the writer of a push, the reader of a pull.
    if (transfer.kind != TransferKind::kPull)
      use(copy_resource_[static_cast<size_t>(transfer.src)], 1);
    if (transfer.kind != TransferKind::kPush)
      use(copy_resource_[static_cast<size_t>(transfer.dst)], 1);
  }
  std::vector<Usage> list;
  for (const auto& [resource, cost] : costs) list.push_back({resource, cost});
  return list;
}

}  // namespace jige::topology
