#include "topology/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace jige::topology {

std::string_view component_kind_name(ComponentKind kind) {
  static constexpr std::string_view kNames[kComponentKindCount] = {
      "device", "memory", "host", "host_bridge", "root_port", "switch", "nic", "router"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_endpoint(ComponentKind kind) {
  return kind == ComponentKind::kDevice || kind == ComponentKind::kMemory ||
         kind == ComponentKind::kHost || kind == ComponentKind::kNic;
}

bool forwards(ComponentKind kind) { return kind == ComponentKind::kNic || !is_endpoint(kind); }

std::string_view link_kind_name(LinkKind kind) {
  static constexpr std::string_view kNames[kLinkKindCount] = {"pcie",    "memory", "socket",
                                                              "network", "trunk",  "nvlink"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view peer_access_name(PeerAccess access) {
  static constexpr std::string_view kNames[kPeerAccessCount] = {"all", "switch", "none"};
  return kNames[static_cast<size_t>(access)];
}

int32_t Description::add(Component component) {
  components.push_back(std::move(component));
  return static_cast<int32_t>(components.size()) - 1;
}

int32_t Description::join(Link link) {
  if (link.name.empty()) {
    link.name = fmt::format("{}-{}", components[static_cast<size_t>(link.from)].name,
                            components[static_cast<size_t>(link.to)].name);
  }
  links.push_back(std::move(link));
  return static_cast<int32_t>(links.size()) - 1;
}

bool Description::refuses_peer(int32_t from, int32_t to) const {
  return std::ranges::any_of(no_peer, [&](const PeerRefusal& refusal) {
    return refusal.from == from && refusal.to == to;
  });
}

int32_t Description::find(std::string_view component_name) const {
  for (size_t i = 0; i < components.size(); ++i) {
    if (components[i].name == component_name) return static_cast<int32_t>(i);
  }
  return -1;
}

double pcie_gb_per_s(int32_t width, double gt_per_s) {
  // 8b/10b up to 5 GT/s, 128b/130b above.
  const double coded = gt_per_s <= 5.0 ? 0.8 : 128.0 / 130.0;
  return width * gt_per_s * coded / 8;
}

}  // namespace jige::topology
