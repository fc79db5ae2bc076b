#include "topology/topology_checks.h"

#include <set>
#include <string>
#include <utility>

#include "base/ascii.h"

namespace jige::topology {
namespace {

constexpr size_t kComponentsMax = 4096;
// GB/s. More is a slip of the pen; of less, the powers that planners weigh loads with are infinite.
constexpr double kRateMin = 1e-9, kRateMax = 1e6;
constexpr double kFactorMin = 1e-6;

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > 64) return false;
  for (const char c : name) {
    if (!is_ascii_alphanumeric(c) && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

bool is_rate(double rate) { return rate == kUnlimited || (rate >= kRateMin && rate <= kRateMax); }

Status check_penalty(const Component& c, std::string_view where) {
  if (c.penalty == Penalty{}) return {};
  if (c.gb_per_s == kUnlimited) {
    return fail(Code::kCorrupt, "{}: component \"{}\" has a penalty but no \"gb_per_s\" to lose",
                where, c.name);
  }
  if (c.penalty.flows < 1 || !(c.penalty.factor >= kFactorMin && c.penalty.factor < 1) ||
      c.penalty.assumption.empty()) {
    return fail(Code::kInvalidArgument,
                "{}: component \"{}\": field \"penalty\" has flows {}, factor {}, assumption "
                "\"{}\"; it needs at least one flow, a factor from 1e-6 to below 1, and the "
                "assumption in words",
                where, c.name, c.penalty.flows, c.penalty.factor, c.penalty.assumption);
  }
  return {};
}

Status check_component(const Component& c, std::string_view where) {
  const auto bad = [&](std::string_view field, double value, std::string_view rule) {
    return fail(Code::kInvalidArgument, "{}: component \"{}\": field \"{}\" is {}, must be {}",
                where, c.name, field, value, rule);
  };
  if (!is_name(c.name)) {
    return fail(Code::kInvalidArgument,
                "{}: component name \"{}\" must be 1 to 64 letters, digits, '.', '_' or '-'", where,
                c.name);
  }
  if (!is_rate(c.gb_per_s)) return bad("gb_per_s", c.gb_per_s, "1e-9 to 1e6");
  if (!(c.pull_cost >= 1 && c.pull_cost <= 100)) return bad("pull_cost", c.pull_cost, "1 to 100");
  const double engine = c.copy_engine_gb_per_s;
  if (engine != 0 && !(engine >= kRateMin && engine <= kRateMax)) {
    return bad("copy_engine_gb_per_s", engine, "0 or 1e-9 to 1e6");
  }
  if (engine > 0 && c.kind != ComponentKind::kDevice) {
    return bad("copy_engine_gb_per_s", engine, "absent: only devices have copy engines");
  }
  if (c.numa < -1 || c.numa > 4095) return bad("numa", c.numa, "0 to 4095");
  if (c.kind == ComponentKind::kMemory && c.numa < 0) return bad("numa", c.numa, "given");
  if (c.index < -1 || c.index > 65535) return bad("index", c.index, "0 to 65535");
  return check_penalty(c, where);
}

Status check_link(const Description& d, const Link& link, std::string_view where) {
  const auto bad = [&](std::string_view field, double value, std::string_view rule) {
    return fail(Code::kInvalidArgument, "{}: link \"{}\": field \"{}\" is {}, must be {}", where,
                link.name, field, value, rule);
  };
  const auto count = static_cast<int32_t>(d.components.size());
  if (link.from < 0 || link.from >= count) return bad("from", link.from, "a component");
  if (link.to < 0 || link.to >= count) return bad("to", link.to, "a component");
  if (link.from == link.to) {
    return fail(Code::kCorrupt, "{}: link \"{}\" joins \"{}\" with itself", where, link.name,
                d.components[static_cast<size_t>(link.from)].name);
  }
  if (!is_rate(link.gb_per_s)) return bad("gb_per_s", link.gb_per_s, "1e-9 to 1e6");
  if (!is_rate(link.back_gb_per_s)) {
    return bad("back_gb_per_s", link.back_gb_per_s, "1e-9 to 1e6");
  }
  if (link.width < 0 || link.width > 32) return bad("width", link.width, "1 to 32");
  if (!(link.gt_per_s >= 0 && link.gt_per_s <= 256))
    return bad("gt_per_s", link.gt_per_s, "0 to 256");
  if (link.width > 0 && link.gt_per_s > 0) {
    const double most = pcie_gb_per_s(link.width, link.gt_per_s);
    for (const double rate : {link.gb_per_s, link.back_gb_per_s}) {
      if (rate == kUnlimited || rate <= most * 1.001) continue;
      return fail(Code::kCorrupt,
                  "{}: link \"{}\": {} GB/s contradicts {} lanes of {} GT/s, which carry {:.2f}",
                  where, link.name, rate, link.width, link.gt_per_s, most);
    }
  }
  return {};
}

}  // namespace

Status check_components(const Description& d, std::string_view where) {
  if (d.components.empty()) return fail(Code::kCorrupt, "{}: describes no components", where);
  if (d.components.size() > kComponentsMax) {
    return fail(Code::kExhausted, "{}: has {} components, at most {} are supported", where,
                d.components.size(), kComponentsMax);
  }
  std::set<std::string_view> names, addresses;
  std::set<int32_t> numas;
  std::set<std::pair<ComponentKind, int32_t>> indices;
  for (const Component& c : d.components) {
    JIGE_DO(check_component(c, where));
    if (!names.insert(c.name).second) {
      return fail(Code::kCorrupt, "{}: two components are named \"{}\"", where, c.name);
    }
    if (!c.address.empty() && !addresses.insert(c.address).second) {
      return fail(Code::kCorrupt, "{}: component \"{}\": address {} belongs to another one too",
                  where, c.name, c.address);
    }
    if (c.kind == ComponentKind::kMemory && !numas.insert(c.numa).second) {
      return fail(Code::kCorrupt, "{}: component \"{}\": NUMA node {} has a memory already", where,
                  c.name, c.numa);
    }
    if (c.index >= 0 && !indices.insert({c.kind, c.index}).second) {
      return fail(Code::kCorrupt, "{}: component \"{}\": another {} has index {} too", where,
                  c.name, component_kind_name(c.kind), c.index);
    }
  }
  for (const Component& c : d.components) {
    if (c.numa >= 0 && !numas.empty() && !numas.contains(c.numa)) {
      return fail(Code::kCorrupt,
                  "{}: component \"{}\": field \"numa\" is {}, but no memory is on that node",
                  where, c.name, c.numa);
    }
  }
  return {};
}

Status check_links(const Description& d, std::string_view where) {
  std::set<std::string_view> names;
  for (const Link& link : d.links) {
    JIGE_DO(check_link(d, link, where));
    if (!names.insert(link.name).second) {
      return fail(Code::kCorrupt, "{}: two links are named \"{}\"; give one a \"name\"", where,
                  link.name);
    }
  }
  return {};
}

Status check_peers(const Description& d, std::string_view where) {
  const auto is_device = [&](int32_t c) {
    return c >= 0 && c < static_cast<int32_t>(d.components.size()) &&
           d.components[static_cast<size_t>(c)].kind == ComponentKind::kDevice;
  };
  for (const PeerRefusal& refusal : d.no_peer) {
    if (!is_device(refusal.from) || !is_device(refusal.to) || refusal.from == refusal.to) {
      return fail(Code::kCorrupt, "{}: field \"no_peer\" must name two devices each", where);
    }
  }
  return {};
}

Status check_routes(const Description& d, std::string_view where) {
  const auto count = static_cast<int32_t>(d.components.size());
  const auto name = [&](int32_t c) -> const std::string& {
    return d.components[static_cast<size_t>(c)].name;
  };
  std::set<std::pair<int32_t, int32_t>> seen;
  for (const RouteOverride& route : d.routes) {
    if (route.src < 0 || route.src >= count || route.dst < 0 || route.dst >= count ||
        route.src == route.dst || !is_endpoint(d.components[static_cast<size_t>(route.src)].kind) ||
        !is_endpoint(d.components[static_cast<size_t>(route.dst)].kind)) {
      return fail(Code::kCorrupt, "{}: a route must join two devices, memories, hosts or NICs",
                  where);
    }
    if (!seen.insert({route.src, route.dst}).second) {
      return fail(Code::kCorrupt, "{}: two routes lead from \"{}\" to \"{}\"", where,
                  name(route.src), name(route.dst));
    }
    int32_t at = route.src;
    for (size_t i = 0; i < route.links.size(); ++i) {
      const Link& link = d.links[static_cast<size_t>(route.links[i])];
      if (link.from != at && link.to != at) {
        return fail(Code::kCorrupt,
                    "{}: route from \"{}\" to \"{}\": link \"{}\" does not start at \"{}\"", where,
                    name(route.src), name(route.dst), link.name, name(at));
      }
      at = link.from == at ? link.to : link.from;
      const bool last = i + 1 == route.links.size();
      if (!last && !forwards(d.components[static_cast<size_t>(at)].kind)) {
        return fail(Code::kCorrupt, "{}: route from \"{}\" to \"{}\": \"{}\" forwards nothing",
                    where, name(route.src), name(route.dst), name(at));
      }
    }
    if (at != route.dst) {
      return fail(Code::kCorrupt, "{}: route from \"{}\" to \"{}\" ends at \"{}\"", where,
                  name(route.src), name(route.dst), name(at));
    }
  }
  return {};
}

Status check_reach(const Topology& t, std::string_view where) {
  std::vector<int32_t> ends;
  for (size_t i = 0; i < t.components().size(); ++i) {
    if (is_endpoint(t.components()[i].kind)) ends.push_back(static_cast<int32_t>(i));
  }
  if (ends.empty()) {
    return fail(Code::kCorrupt, "{}: has no device, memory, host or NIC", where);
  }
  for (const int32_t a : ends) {
    for (const int32_t b : ends) {
      if (a == b || !t.route(a, b).empty()) continue;
      return fail(Code::kCorrupt, "{}: no path of links leads from \"{}\" to \"{}\"", where,
                  t.component(a).name, t.component(b).name);
    }
  }
  for (const int32_t memory : t.of_kind(ComponentKind::kMemory)) {
    for (const int32_t device : t.of_kind(ComponentKind::kDevice)) {
      if (t.component(device).numa != t.component(memory).numa) continue;
      if (t.count_links(device, memory, LinkKind::kSocket) == 0) continue;
      return fail(Code::kCorrupt,
                  "{}: component \"{}\": field \"numa\" is {}, but its links reach \"{}\" only "
                  "across a socket link",
                  where, t.component(device).name, t.component(device).numa,
                  t.component(memory).name);
    }
  }
  return {};
}

Status check_transfer(const Topology& t, const Transfer& transfer) {
  const auto refuse = [&](std::string_view why) {
    return fail(Code::kInvalidArgument, "transfer {}: {}", transfer_text(t, transfer), why);
  };
  const Component& src = t.component(transfer.src);
  const Component& dst = t.component(transfer.dst);
  if (transfer.src == transfer.dst) return refuse("both ends are the same");
  if (!is_endpoint(src.kind) || !is_endpoint(dst.kind)) {
    return refuse("it must join devices, memories, hosts or NICs");
  }
  const bool host_to_host = src.kind == ComponentKind::kHost && dst.kind == ComponentKind::kHost;
  if ((transfer.kind == TransferKind::kSend) != host_to_host) {
    return refuse("\"send\" is for hosts, and hosts use nothing else");
  }
  const bool devices = src.kind == ComponentKind::kDevice && dst.kind == ComponentKind::kDevice;
  if (transfer.kind == TransferKind::kStaged) {
    const bool to_memory =
        transfer.via >= 0 && t.component(transfer.via).kind == ComponentKind::kMemory;
    if (!to_memory) return refuse("it must go through a memory");
    if (transfer.via == transfer.src || transfer.via == transfer.dst) {
      return refuse("it begins or ends in the memory it goes through");
    }
  } else if (devices) {
    const PeerAccess peer = t.description().peer;
    const bool bridge = t.passes(transfer.src, transfer.dst, ComponentKind::kHostBridge);
    // Whoever runs the transfer reaches into the memory of the other one.
    const bool pull = transfer.kind == TransferKind::kPull;
    const bool refused = t.description().refuses_peer(pull ? transfer.dst : transfer.src,
                                                      pull ? transfer.src : transfer.dst);
    if (peer == PeerAccess::kNone || (peer == PeerAccess::kSwitch && bridge) || refused) {
      return refuse("the devices have no peer access; go through a memory");
    }
  }
  if (transfer.engine == Engine::kCopy) {
    const bool needs_src = transfer.kind != TransferKind::kPull;
    const bool needs_dst = transfer.kind != TransferKind::kPush;
    if ((needs_src && src.copy_engine_gb_per_s <= 0) ||
        (needs_dst && dst.copy_engine_gb_per_s <= 0)) {
      return refuse("no copy engine is described");
    }
  }
  return {};
}

}  // namespace jige::topology
