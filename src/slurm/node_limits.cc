#include "slurm/node_limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/split.h"

namespace jige::slurm {
namespace {

bool has_feature(const SeenNode& node, std::string_view name) {
  return std::ranges::find(node.features, name) != node.features.end();
}

bool has_features(const SeenNode& node, const std::string& wanted) {
  if (wanted.empty()) return true;
  const auto has = [&](std::string_view name) { return has_feature(node, name); };
  if (wanted.find('|') != std::string::npos) {
    return std::ranges::any_of(split_at(wanted, '|'), has);
  }
  return std::ranges::all_of(split_at(wanted, '&'), has);
}

}  // namespace

std::string why_not_judged(std::string_view features) {
  const bool joined_twice =
      features.find('&') != std::string_view::npos && features.find('|') != std::string_view::npos;
  if (!joined_twice && features.find_first_of("[](){}*") == std::string_view::npos) return "";
  return fmt::format("it asks for the features {}; join names by & or by |", features);
}

bool suits_for_good(const SeenNode& node, const NodeNeeds& needs) {
  if (std::ranges::find(needs.excluded, node.name) != needs.excluded.end()) return false;
  if (node.cpus > 0 && needs.cpus > node.cpus) return false;
  if (node.memory_mb > 0 && needs.memory_mb > node.memory_mb) return false;
  return has_features(node, needs.features);
}

bool has_room_now(const SeenNode& node, const NodeNeeds& needs, const NodeUse& promised) {
  if (node.reserved == needs.reservation.empty()) return false;
  const int64_t cpus = node.cpus_used + promised.cpus;
  if (needs.whole && cpus > 0) return false;
  if (node.cpus > 0 && cpus + needs.cpus > node.cpus) return false;
  const int64_t memory_mb = node.memory_used_mb + promised.memory_mb;
  return node.memory_mb == 0 || memory_mb + needs.memory_mb <= node.memory_mb;
}

NodeUse use_of(const SeenNode& node, const NodeNeeds& needs) {
  return {.cpus = needs.whole ? std::max(node.cpus, needs.cpus) : needs.cpus,
          .memory_mb = needs.memory_mb};
}

std::string describe(const NodeNeeds& needs) {
  std::vector<std::string> parts;
  if (needs.whole) parts.emplace_back("whole nodes");
  if (needs.cpus > 1) parts.push_back(fmt::format("{} CPUs", needs.cpus));
  if (needs.memory_mb > 1) parts.push_back(fmt::format("{} MB", needs.memory_mb));
  if (!needs.features.empty()) parts.push_back("features " + needs.features);
  if (!needs.reservation.empty()) parts.push_back("reservation " + needs.reservation);
  if (!needs.excluded.empty()) {
    parts.push_back(fmt::format("not {}", fmt::join(needs.excluded, ",")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace jige::slurm
