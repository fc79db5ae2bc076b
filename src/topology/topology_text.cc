#include "topology/topology_text.h"

#include <algorithm>

#include "base/printable.h"

namespace jige::topology {
namespace {

int32_t other_end(const Link& link, int32_t at) { return link.from == at ? link.to : link.from; }

std::vector<int32_t> roots_of(const Topology& t) {
  std::vector<int32_t> roots = t.of_kind(ComponentKind::kHostBridge);
  if (roots.empty()) roots = t.of_kind(ComponentKind::kRouter);
  if (roots.empty()) roots.push_back(0);
  return roots;
}

}  // namespace

Forest spanning_forest(const Topology& t) {
  const size_t count = t.components().size();
  Forest forest{std::vector<int32_t>(count, -1), std::vector<int32_t>(count, -1), {}};
  std::vector<int32_t> queue = roots_of(t);
  for (const int32_t root : queue) forest.depth[static_cast<size_t>(root)] = 0;
  std::vector<std::vector<int32_t>> children(count);
  // What no root reaches (a component without links) becomes a root of its own.
  for (size_t start = 0; start <= count; ++start) {
    if (start > 0 && forest.depth[start - 1] < 0) {
      forest.depth[start - 1] = 0;
      queue.push_back(static_cast<int32_t>(start) - 1);
    }
    if (start > 0 && queue.empty()) continue;
    for (size_t head = 0; head < queue.size(); ++head) {
      const int32_t at = queue[head];
      // A device between devices (NVLink) would hide where it hangs itself.
      const bool root = forest.depth[static_cast<size_t>(at)] == 0;
      if (!root && !forwards(t.component(at).kind)) continue;
      for (size_t l = 0; l < t.links().size(); ++l) {
        const Link& link = t.links()[l];
        if (link.from != at && link.to != at) continue;
        const auto next = static_cast<size_t>(other_end(link, at));
        if (forest.depth[next] >= 0) continue;
        forest.depth[next] = forest.depth[static_cast<size_t>(at)] + 1;
        forest.parent_link[next] = static_cast<int32_t>(l);
        children[static_cast<size_t>(at)].push_back(static_cast<int32_t>(next));
        queue.push_back(static_cast<int32_t>(next));
      }
    }
    queue.clear();
  }
  std::vector<int32_t> stack;
  for (size_t i = count; i-- > 0;) {
    if (forest.depth[i] == 0) stack.push_back(static_cast<int32_t>(i));
  }
  while (!stack.empty()) {
    const int32_t at = stack.back();
    stack.pop_back();
    forest.order.push_back(at);
    const auto& below = children[static_cast<size_t>(at)];
    stack.insert(stack.end(), below.rbegin(), below.rend());
  }
  return forest;
}

std::string describe(const Component& c) {
  std::string kind{component_kind_name(c.kind)};
  std::ranges::replace(kind, '_', ' ');
  if (c.numa >= 0) kind += fmt::format(", numa {}", c.numa);
  if (!c.address.empty()) kind += ", " + printable(c.address);
  if (c.gb_per_s != kUnlimited) kind += fmt::format(", {:.4g} GB/s", c.gb_per_s);
  if (c.pull_cost != 1) kind += fmt::format(", pull x{:.3g}", c.pull_cost);
  if (c.penalty.flows > 0) {
    kind += fmt::format(", x{:.3g} above {} transfers (assumed: {})", c.penalty.factor,
                        c.penalty.flows, printable(c.penalty.assumption));
  }
  return kind;
}

std::string describe_rate(const Link& link) {
  if (link.gb_per_s == link.back_gb_per_s) {
    return link.gb_per_s == kUnlimited ? "unlimited" : fmt::format("{:.4g} GB/s", link.gb_per_s);
  }
  const auto one = [](double rate) {
    return rate == kUnlimited ? "unlimited" : fmt::format("{:.4g}", rate);
  };
  return fmt::format("{} / {} GB/s", one(link.gb_per_s), one(link.back_gb_per_s));
}

std::string topology_text(const Topology& t) {
  const Forest forest = spanning_forest(t);
  std::string text;
  for (size_t i = 0; i < forest.order.size(); ++i) {
    const auto at = static_cast<size_t>(forest.order[i]);
    const int32_t depth = forest.depth[at];
    // At each level: does a sibling of the ancestor on it follow further down?
    std::string indent;
    for (int32_t level = 1; level <= depth; ++level) {
      bool more = false;
      for (size_t j = i + 1; j < forest.order.size(); ++j) {
        const int32_t other = forest.depth[static_cast<size_t>(forest.order[j])];
        if (other < level) break;
        if (other == level) more = true;
        if (more) break;
      }
      indent += level < depth ? (more ? "│  " : "   ") : (more ? "├─ " : "└─ ");
    }
    text += fmt::format("{}{}  {}", indent, t.component(forest.order[i]).name,
                        describe(t.component(forest.order[i])));
    const int32_t parent = forest.parent_link[at];
    if (parent >= 0 && t.links()[static_cast<size_t>(parent)].gb_per_s != kUnlimited) {
      text += ", link " + describe_rate(t.links()[static_cast<size_t>(parent)]);
    }
    text += "\n";
  }
  std::string rest;
  for (size_t l = 0; l < t.links().size(); ++l) {
    if (std::ranges::find(forest.parent_link, static_cast<int32_t>(l)) !=
        forest.parent_link.end()) {
      continue;
    }
    const Link& link = t.links()[l];
    rest += fmt::format("  {}  {}, {}\n", printable(link.name), link_kind_name(link.kind),
                        describe_rate(link));
  }
  return rest.empty() ? text : text + "other links\n" + rest;
}

}  // namespace jige::topology
