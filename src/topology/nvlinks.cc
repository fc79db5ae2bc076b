#include "topology/nvlinks.h"

#include <iterator>
#include <string>
#include <vector>

namespace jige::topology {
namespace {

constexpr const char* kSwitchName = "nvswitch";

}  // namespace

double nvlink_gb_per_s(int32_t version) {
  constexpr double kRates[] = {20, 25, 25, 25, 50};
  if (version < 1 || version > static_cast<int32_t>(std::size(kRates))) return kUnlimited;
  return kRates[version - 1];
}

double nvlink_gb_per_s_of_sm(int32_t sm) {
  if (sm == 86) return 14.0625;
  const int32_t major = sm / 10;
  if (major == 6) return nvlink_gb_per_s(1);
  if (major == 7) return nvlink_gb_per_s(2);
  if (major == 8) return nvlink_gb_per_s(3);
  if (major == 9) return nvlink_gb_per_s(4);
  return major == 10 ? nvlink_gb_per_s(5) : kUnlimited;
}

int32_t nvswitch(Description& d) {
  const int32_t known = d.find(kSwitchName);
  return known >= 0 ? known : d.add({.name = kSwitchName, .kind = ComponentKind::kSwitch});
}

void join_nvlinks(Description& d, const NvlinkRates& rates) {
  std::vector<Link> links;
  for (const auto& [ends, rate] : rates) {
    const auto [from, to] = ends;
    const auto back = rates.find({to, from});
    const bool both = back != rates.end();
    if (both && to < from) continue;  // made from the other end
    links.push_back({.name = d.components[static_cast<size_t>(from)].name + "-" +
                             d.components[static_cast<size_t>(to)].name + "-nvlink",
                     .from = from,
                     .to = to,
                     .kind = LinkKind::kNvlink,
                     .gb_per_s = rate,
                     .back_gb_per_s = both ? back->second : rate});
  }
  for (RouteOverride& route : d.routes) {
    for (int32_t& link : route.links) link += static_cast<int32_t>(links.size());
  }
  d.links.insert(d.links.begin(), std::make_move_iterator(links.begin()),
                 std::make_move_iterator(links.end()));
}

}  // namespace jige::topology
