#include "slurm/layout.h"

#include <algorithm>
#include <set>

#include "slurm/host_list.h"

namespace jige::slurm {
namespace {

// The value of KEY=VALUE in a line of `scontrol show`; empty where there is none.
std::string_view field_of(std::string_view line, std::string_view key) {
  const std::string pattern = std::string(key) + "=";
  size_t at = line.find(pattern);
  while (at != std::string_view::npos && at > 0 && line[at - 1] != ' ') {
    at = line.find(pattern, at + 1);
  }
  if (at == std::string_view::npos) return "";
  at += pattern.size();
  return line.substr(at, line.find_first_of(" \n", at) - at);
}

// n2 before n10.
bool natural_less(const std::string& a, const std::string& b) {
  const auto digits_at = [](const std::string& name) {
    size_t at = name.size();
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9') --at;
    return at;
  };
  const size_t a_at = digits_at(a), b_at = digits_at(b);
  const int order = a.compare(0, a_at, b, 0, b_at);
  if (order != 0) return order < 0;
  if (a.size() != b.size()) return a.size() < b.size();
  return a < b;
}

// The most where a node is listed twice.
std::map<std::string, int32_t> gpus_by_name(const std::vector<SeenNode>& nodes,
                                            std::string_view partition) {
  std::map<std::string, int32_t> gpus;
  for (const SeenNode& node : nodes) {
    if (!in_partition(node, partition) || node.gpus <= 0) continue;
    int32_t& most = gpus[node.name];
    most = std::max(most, node.gpus);
  }
  return gpus;
}

}  // namespace

Result<std::vector<std::vector<std::string>>> parse_leaves(std::string_view topology_text) {
  std::vector<std::vector<std::string>> leaves;
  while (!topology_text.empty()) {
    const size_t end = std::min(topology_text.find('\n'), topology_text.size());
    const std::string_view line = topology_text.substr(0, end);
    topology_text.remove_prefix(std::min(topology_text.size(), end + 1));
    if (field_of(line, "SwitchName").empty() || field_of(line, "Level") != "0") continue;
    JIGE_TRY(std::vector<std::string> nodes, expand_hosts(field_of(line, "Nodes")));
    leaves.push_back(std::move(nodes));
  }
  return leaves;
}

Result<Layout> Layout::create(const std::vector<SeenNode>& nodes, std::string_view partition,
                              std::string_view topology_text, const NetworkAssumption& network) {
  std::map<std::string, int32_t> gpus = gpus_by_name(nodes, partition);
  if (gpus.empty()) {
    return fail(Code::kNotFound, "partition {}: no node with GPUs; see `sinfo -o '%P %N %G'`",
                partition);
  }
  JIGE_TRY(std::vector<std::vector<std::string>> leaves, parse_leaves(topology_text));
  std::set<std::string> left;
  for (const auto& [name, count] : gpus) left.insert(name);
  for (std::vector<std::string>& leaf : leaves) {
    std::erase_if(leaf, [&](const std::string& name) { return left.erase(name) == 0; });
  }
  if (!left.empty()) leaves.emplace_back(left.begin(), left.end());
  std::erase_if(leaves, [](const auto& leaf) { return leaf.empty(); });
  Layout layout;
  layout.spec_ = {.leaf_count = static_cast<int32_t>(leaves.size()),
                  .nodes_per_leaf = 0,
                  .gpus_per_node = 0,
                  .nic_bytes_per_s = network.nic_bytes_per_s,
                  .oversubscription = network.oversubscription};
  for (const auto& leaf : leaves) {
    const auto size = static_cast<int32_t>(leaf.size());
    layout.spec_.nodes_per_leaf = std::max(layout.spec_.nodes_per_leaf, size);
  }
  for (const auto& [name, count] : gpus) {
    layout.spec_.gpus_per_node = std::max(layout.spec_.gpus_per_node, count);
  }
  layout.names_.resize(static_cast<size_t>(layout.spec_.node_count()));
  layout.gpus_.resize(layout.names_.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    std::ranges::sort(leaves[i], natural_less);
    for (size_t k = 0; k < leaves[i].size(); ++k) {
      const size_t index = i * static_cast<size_t>(layout.spec_.nodes_per_leaf) + k;
      layout.names_[index] = leaves[i][k];
      layout.gpus_[index] = gpus[leaves[i][k]];
      layout.indices_[leaves[i][k]] = static_cast<int32_t>(index);
    }
  }
  return layout;
}

bool Layout::is_of(const std::vector<SeenNode>& nodes, std::string_view partition) const {
  const std::map<std::string, int32_t> gpus = gpus_by_name(nodes, partition);
  return gpus.size() == indices_.size() && std::ranges::all_of(gpus, [&](const auto& node) {
           const int32_t index = index_of(node.first);
           return index >= 0 && gpus_of(index) == node.second;
         });
}

std::string Layout::why_never(int32_t node_count, int32_t gpus_per_node) const {
  const auto enough = [&](int32_t gpus) { return gpus >= gpus_per_node; };
  const auto fitting = std::ranges::count_if(gpus_, enough);
  if (fitting >= node_count) return "";
  return fmt::format("asks for {} GPUs on each of {} nodes; {} nodes have so many", gpus_per_node,
                     node_count, fitting);
}

int32_t Layout::index_of(const std::string& name) const {
  const auto found = indices_.find(name);
  return found == indices_.end() ? -1 : found->second;
}

std::vector<std::string> Layout::names_of(const cluster::Placement& placement) const {
  std::vector<std::string> names;
  for (const cluster::NodeShare& share : placement) names.push_back(name_of(share.node));
  return names;
}

cluster::Placement Layout::placement_of(const std::vector<std::string>& nodes,
                                        const std::vector<int32_t>& gpus) const {
  cluster::Placement placement;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int32_t index = index_of(nodes[i]);
    if (index >= 0 && gpus[i] > 0) placement.push_back({index, std::min(gpus[i], gpus_of(index))});
  }
  std::ranges::sort(placement, {}, &cluster::NodeShare::node);
  return placement;
}

}  // namespace jige::slurm
