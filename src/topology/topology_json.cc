#include "topology/topology_json.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"

namespace jige::topology {
namespace {

constexpr std::string_view kFormat = "jige.topology";
constexpr int64_t kVersion = 1;
constexpr size_t kJsonFileBytesMax = size_t{16} << 20;

Status check_fields(const Json& object, std::initializer_list<std::string_view> known,
                    std::string_view where) {
  if (!object.is_object()) return fail(Code::kCorrupt, "{}: must be an object", where);
  for (const auto& [field, value] : object.items()) {
    if (std::ranges::find(known, field) != known.end()) continue;
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is not known; there are {}", where, field,
                fmt::join(known, ", "));
  }
  return {};
}

template <typename Enum>
Result<Enum> named(const Json& json, std::string_view field, std::string_view fallback,
                   std::string_view (*name_of)(Enum), int count, std::string_view where) {
  JIGE_TRY(const std::string name, get_string_or(json, field, fallback, where));
  std::string choices;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    if (name_of(value) == name) return value;
    choices += (i == 0 ? "" : ", ") + std::string(name_of(value));
  }
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is \"{}\", must be one of {}", where, field,
              name, choices);
}

Result<int32_t> int_in(const Json& json, std::string_view field, int64_t fallback, int64_t min,
                       int64_t max, std::string_view where) {
  JIGE_TRY(const int64_t value, get_int_or(json, field, fallback, where));
  if (value >= min && value <= max) return static_cast<int32_t>(value);
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}, must be {} to {}", where, field,
              value, min, max);
}

// An array member, empty when absent.
Result<const Json*> list(const Json& json, std::string_view field, std::string_view where) {
  static const Json kEmpty = Json::array();
  const auto found = json.find(std::string(field));
  if (found == json.end()) return &kEmpty;
  if (!found->is_array())
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a list", where, field);
  return &*found;
}

Result<Component> read_component(const Json& json, const std::string& where) {
  JIGE_DO(check_fields(json,
                       {"name", "kind", "numa", "index", "address", "gb_per_s", "pull_cost",
                        "copy_engine_gb_per_s", "penalty"},
                       where));
  Component c;
  JIGE_TRY(c.name, get_string(json, "name", where));
  const std::string here = fmt::format("{} (\"{}\")", where, c.name);
  JIGE_TRY(c.kind, named(json, "kind", "", component_kind_name, kComponentKindCount, here));
  JIGE_TRY(c.numa, int_in(json, "numa", -1, -1, 4095, here));
  JIGE_TRY(c.index, int_in(json, "index", -1, -1, 65535, here));
  JIGE_TRY(c.address, get_string_or(json, "address", "", here));
  JIGE_TRY(c.gb_per_s, get_number_or(json, "gb_per_s", kUnlimited, here));
  JIGE_TRY(c.pull_cost, get_number_or(json, "pull_cost", 1, here));
  JIGE_TRY(c.copy_engine_gb_per_s, get_number_or(json, "copy_engine_gb_per_s", 0, here));
  if (const auto penalty = json.find("penalty"); penalty != json.end()) {
    const std::string inside = here + ": penalty";
    JIGE_DO(check_fields(*penalty, {"flows", "factor", "assumption"}, inside));
    JIGE_TRY(c.penalty.flows, int_in(*penalty, "flows", 0, 1, 4096, inside));
    JIGE_TRY(c.penalty.factor, get_number(*penalty, "factor", inside));
    JIGE_TRY(c.penalty.assumption, get_string(*penalty, "assumption", inside));
  }
  return c;
}

// Indices of components or links by name, the first of those that share one.
using Indices = std::map<std::string, int32_t, std::less<>>;

template <typename Named>
Indices indices_of(const std::vector<Named>& list) {
  Indices indices;
  int32_t index = 0;
  for (const Named& each : list) indices.emplace(each.name, index++);
  return indices;
}

// The component that `field` names.
Result<int32_t> read_end(const Json& json, std::string_view field, const Indices& components,
                         std::string_view where) {
  JIGE_TRY(const std::string name, get_string(json, field, where));
  if (const auto found = components.find(name); found != components.end()) return found->second;
  return fail(Code::kNotFound, "{}: field \"{}\" names \"{}\", which is no component", where, field,
              name);
}

Result<Link> read_link(const Json& json, const Indices& components, const std::string& where) {
  JIGE_DO(check_fields(
      json, {"name", "from", "to", "kind", "gb_per_s", "back_gb_per_s", "width", "gt_per_s"},
      where));
  Link link;
  JIGE_TRY(link.name, get_string_or(json, "name", "", where));
  JIGE_TRY(link.from, read_end(json, "from", components, where));
  JIGE_TRY(link.to, read_end(json, "to", components, where));
  JIGE_TRY(link.kind, named(json, "kind", "pcie", link_kind_name, kLinkKindCount, where));
  JIGE_TRY(link.gb_per_s, get_number_or(json, "gb_per_s", kUnlimited, where));
  const auto back = json.find("back_gb_per_s");
  if (back != json.end() && *back == "unlimited") {
    link.back_gb_per_s = kUnlimited;
  } else {
    JIGE_TRY(link.back_gb_per_s, get_number_or(json, "back_gb_per_s", link.gb_per_s, where));
  }
  JIGE_TRY(link.width, int_in(json, "width", 0, 0, 32, where));
  JIGE_TRY(link.gt_per_s, get_number_or(json, "gt_per_s", 0, where));
  return link;
}

Result<RouteOverride> read_route(const Json& json, const Indices& components, const Indices& links,
                                 const std::string& where) {
  JIGE_DO(check_fields(json, {"src", "dst", "links"}, where));
  RouteOverride route;
  JIGE_TRY(route.src, read_end(json, "src", components, where));
  JIGE_TRY(route.dst, read_end(json, "dst", components, where));
  JIGE_TRY(const Json* const names, list(json, "links", where));
  for (const Json& name : *names) {
    const auto at = name.is_string() ? links.find(name.get_ref<const std::string&>()) : links.end();
    if (at == links.end()) {
      return fail(Code::kNotFound, "{}: field \"links\" names {}, which is no link", where,
                  dump_json(name));
    }
    route.links.push_back(at->second);
  }
  return route;
}

Result<PeerRefusal> read_refusal(const Json& json, const Indices& components,
                                 const std::string& where) {
  JIGE_DO(check_fields(json, {"from", "to"}, where));
  PeerRefusal refusal;
  JIGE_TRY(refusal.from, read_end(json, "from", components, where));
  JIGE_TRY(refusal.to, read_end(json, "to", components, where));
  return refusal;
}

Json component_to_json(const Component& c) {
  Json json{{"name", c.name}, {"kind", component_kind_name(c.kind)}};
  if (c.numa >= 0) json["numa"] = c.numa;
  if (c.index >= 0) json["index"] = c.index;
  if (!c.address.empty()) json["address"] = c.address;
  if (c.gb_per_s != kUnlimited) json["gb_per_s"] = c.gb_per_s;
  if (c.pull_cost != 1) json["pull_cost"] = c.pull_cost;
  if (c.copy_engine_gb_per_s > 0) json["copy_engine_gb_per_s"] = c.copy_engine_gb_per_s;
  if (c.penalty.flows > 0) {
    json["penalty"] = {{"flows", c.penalty.flows},
                       {"factor", c.penalty.factor},
                       {"assumption", c.penalty.assumption}};
  }
  return json;
}

Json link_to_json(const Link& link, const Description& d) {
  Json json{{"name", link.name},
            {"from", d.components[static_cast<size_t>(link.from)].name},
            {"to", d.components[static_cast<size_t>(link.to)].name},
            {"kind", link_kind_name(link.kind)}};
  if (link.gb_per_s != kUnlimited) json["gb_per_s"] = link.gb_per_s;
  if (link.back_gb_per_s != link.gb_per_s) {
    json["back_gb_per_s"] =
        link.back_gb_per_s == kUnlimited ? Json("unlimited") : Json(link.back_gb_per_s);
  }
  if (link.width > 0) json["width"] = link.width;
  if (link.gt_per_s > 0) json["gt_per_s"] = link.gt_per_s;
  return json;
}

}  // namespace

Json description_to_json(const Description& d) {
  Json json{{"format", kFormat},
            {"version", kVersion},
            {"name", d.name},
            {"peer", peer_access_name(d.peer)},
            {"components", Json::array()},
            {"links", Json::array()}};
  for (const Component& c : d.components) json["components"].push_back(component_to_json(c));
  for (const Link& link : d.links) json["links"].push_back(link_to_json(link, d));
  for (const RouteOverride& route : d.routes) {
    Json names = Json::array();
    for (const int32_t link : route.links) names.push_back(d.links[static_cast<size_t>(link)].name);
    json["routes"].push_back({{"src", d.components[static_cast<size_t>(route.src)].name},
                              {"dst", d.components[static_cast<size_t>(route.dst)].name},
                              {"links", std::move(names)}});
  }
  for (const PeerRefusal& refusal : d.no_peer) {
    json["no_peer"].push_back({{"from", d.components[static_cast<size_t>(refusal.from)].name},
                               {"to", d.components[static_cast<size_t>(refusal.to)].name}});
  }
  for (const auto& [fact, value] : d.environment) json["environment"][fact] = value;
  return json;
}

Result<Description> description_from_json(const Json& json, std::string_view where) {
  JIGE_DO(check_fields(json,
                       {"format", "version", "name", "peer", "components", "links", "routes",
                        "no_peer", "environment"},
                       where));
  JIGE_TRY(const std::string format, get_string(json, "format", where));
  JIGE_TRY(const int64_t version, get_int(json, "version", where));
  if (format != kFormat || version != kVersion) {
    return fail(Code::kUnsupported,
                "{}: is \"{}\" version {}, this program reads \"{}\" version {}", where, format,
                version, kFormat, kVersion);
  }
  Description d;
  JIGE_TRY(d.name, get_string_or(json, "name", "", where));
  JIGE_TRY(d.peer, named(json, "peer", "all", peer_access_name, kPeerAccessCount, where));
  const auto each = [&](std::string_view field, auto read) -> Status {
    JIGE_TRY(const Json* const items, list(json, field, where));
    for (size_t i = 0; i < items->size(); ++i) {
      JIGE_DO(read((*items)[i], fmt::format("{}: {}[{}]", where, field, i)));
    }
    return {};
  };
  JIGE_DO(each("components", [&](const Json& item, const std::string& at) -> Status {
    JIGE_TRY(Component component, read_component(item, at));
    d.add(std::move(component));
    return {};
  }));
  const Indices components = indices_of(d.components);
  JIGE_DO(each("links", [&](const Json& item, const std::string& at) -> Status {
    JIGE_TRY(Link link, read_link(item, components, at));
    d.join(std::move(link));
    return {};
  }));
  const Indices links = indices_of(d.links);
  JIGE_DO(each("routes", [&](const Json& item, const std::string& at) -> Status {
    JIGE_TRY(RouteOverride route, read_route(item, components, links, at));
    d.routes.push_back(std::move(route));
    return {};
  }));
  JIGE_DO(each("no_peer", [&](const Json& item, const std::string& at) -> Status {
    JIGE_TRY(const PeerRefusal refusal, read_refusal(item, components, at));
    d.no_peer.push_back(refusal);
    return {};
  }));
  if (const auto facts = json.find("environment"); facts != json.end()) {
    if (!facts->is_object()) {
      return fail(Code::kCorrupt, "{}: field \"environment\" must be an object", where);
    }
    for (const auto& [fact, value] : facts->items()) {
      JIGE_TRY(d.environment[fact],
               get_string(*facts, fact, fmt::format("{}: environment", where)));
    }
  }
  return d;
}

Result<Topology> load_topology(const std::string& path) {
  JIGE_TRY(const std::string text, read_file(path, kJsonFileBytesMax));
  JIGE_TRY(const Json json, parse_json(text, path));
  JIGE_TRY(Description description, description_from_json(json, path));
  if (description.name.empty()) description.name = path;
  return Topology::create(std::move(description), path);
}

}  // namespace jige::topology
