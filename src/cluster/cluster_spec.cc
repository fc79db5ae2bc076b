#include "cluster/cluster_spec.h"

#include <charconv>
#include <cmath>

namespace jige::cluster {
namespace {

constexpr int32_t kSpecGpusMax = 1 << 20;
constexpr double kGbit = 1e9 / 8;

template <typename T>
bool take_number(std::string_view& text, T& number) {
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(at - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool parse_fat_tree(std::string_view text, ClusterSpec& spec) {
  int32_t k = 0;
  if (!take(text, "fat-tree:") || !take_number(text, k) || k < 2 || k > 64 || k % 2 != 0) {
    return false;
  }
  spec.leaf_count = k * k / 2;
  spec.nodes_per_leaf = spec.spine_count = k / 2;
  spec.nic_bytes_per_s = 100 * kGbit;
  return text.empty();
}

bool parse_counts(std::string_view text, ClusterSpec& spec) {
  double gbit = 100;
  if (!take_number(text, spec.leaf_count) || !take(text, "x") ||
      !take_number(text, spec.nodes_per_leaf) || !take(text, "x") ||
      !take_number(text, spec.gpus_per_node)) {
    return false;
  }
  if (take(text, "@") && !take_number(text, gbit)) return false;
  if (take(text, "/") && !take_number(text, spec.oversubscription)) return false;
  spec.nic_bytes_per_s = gbit * kGbit;
  const double gpus = 1.0 * spec.leaf_count * spec.nodes_per_leaf * spec.gpus_per_node;
  return text.empty() && spec.leaf_count > 0 && spec.nodes_per_leaf > 0 && spec.gpus_per_node > 0 &&
         gpus <= kSpecGpusMax && gbit >= 1e-3 && gbit <= 1e6 && spec.oversubscription >= 0.01 &&
         spec.oversubscription <= 1e4;
}

}  // namespace

std::vector<double> ClusterSpec::capacities() const {
  std::vector<double> bytes_per_s(static_cast<size_t>(link_count()), nic_bytes_per_s);
  const double uplink_share =
      ecmp == Ecmp::kSplit ? uplink_bytes_per_s() : uplink_bytes_per_s() / spine_count;
  for (auto i = static_cast<size_t>(node_count()); i < bytes_per_s.size(); ++i) {
    bytes_per_s[i] = uplink_share;
  }
  return bytes_per_s;
}

Result<ClusterSpec> parse_cluster(std::string_view text, std::string_view flag) {
  ClusterSpec spec;
  if (text == "deepshare") return spec;
  if (parse_fat_tree(text, spec)) return spec;
  spec = {};
  if (parse_counts(text, spec)) return spec;
  return fail(Code::kInvalidArgument,
              "{}: \"{}\" is no cluster; give LEAVESxNODESxGPUS[@GBIT][/OVERSUBSCRIPTION] such as "
              "16x8x8@100/2 (at most {} GPUs), deepshare, or fat-tree:K with K even",
              flag, text, kSpecGpusMax);
}

std::string describe(const ClusterSpec& spec) {
  return fmt::format("{} {} x {} nodes x {} GPUs, {:g} Gbit/s, uplinks {:g}:1", spec.leaf_count,
                     spec.leaf_count == 1 ? "leaf" : "leaves", spec.nodes_per_leaf,
                     spec.gpus_per_node, spec.nic_bytes_per_s / kGbit, spec.oversubscription);
}

}  // namespace jige::cluster
