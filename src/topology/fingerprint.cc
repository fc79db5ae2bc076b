#include "topology/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "topology/access_control.h"

namespace jige::topology {
namespace {

// FNV-1a; a change of hardware is no adversary.
std::string hash_of(std::span<const std::string> lines) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (const std::string& line : lines) {
    for (const char c : line) mix(static_cast<unsigned char>(c));
    mix('\n');
  }
  return fmt::format("{:016x}", hash);
}

const std::string kMayBeUnknown = std::string("environment ") + kAccessControlFact;

// Lines of `lines`, less those about what `others` know nothing of.
std::vector<std::string> known_to_both(std::span<const std::string> lines,
                                       std::span<const std::string> others) {
  std::vector<std::string> kept;
  for (const std::string& line : lines) {
    const std::string_view subject = std::string_view(line).substr(0, line.rfind(' ') + 1);
    const bool told = std::ranges::any_of(
        others, [&](const std::string& other) { return other.starts_with(subject); });
    if (told || !line.starts_with(kMayBeUnknown)) kept.push_back(line);
  }
  std::ranges::sort(kept);
  return kept;
}

}  // namespace

Fingerprint fingerprint(const Description& d) {
  const auto name = [&](int32_t c) -> const std::string& {
    return d.components[static_cast<size_t>(c)].name;
  };
  Fingerprint result;
  std::vector<std::string>& facts = result.facts;
  facts.push_back(fmt::format("peer access {}", peer_access_name(d.peer)));
  for (const Component& c : d.components) {
    facts.push_back(fmt::format(
        "component {} {} numa {} index {} at {} {} GB/s pull {} copy {} penalty {} {}", c.name,
        component_kind_name(c.kind), c.numa, c.index, c.address.empty() ? "-" : c.address,
        c.gb_per_s, c.pull_cost, c.copy_engine_gb_per_s, c.penalty.flows, c.penalty.factor));
  }
  for (const Link& link : d.links) {
    facts.push_back(fmt::format("link {} {} {} {} {} {} GB/s {}x{} GT/s", link.name,
                                name(link.from), name(link.to), link_kind_name(link.kind),
                                link.gb_per_s, link.back_gb_per_s, link.width, link.gt_per_s));
  }
  for (const RouteOverride& route : d.routes) {
    std::string line = fmt::format("route {} {}", name(route.src), name(route.dst));
    for (const int32_t link : route.links) line += " " + d.links[static_cast<size_t>(link)].name;
    facts.push_back(std::move(line));
  }
  for (const PeerRefusal& refusal : d.no_peer) {
    facts.push_back(fmt::format("no peer access {} {}", name(refusal.from), name(refusal.to)));
  }
  for (const auto& [fact, value] : d.environment) {
    facts.push_back(fmt::format("environment {} {}", fact, value));
  }
  std::ranges::sort(facts);
  result.hash = hash_of(facts);
  return result;
}

std::vector<std::string> difference(std::span<const std::string> before,
                                    std::span<const std::string> after) {
  const std::vector<std::string> a = known_to_both(before, after), b = known_to_both(after, before);
  std::vector<std::string> lines, only;
  std::ranges::set_difference(a, b, std::back_inserter(only));
  for (const std::string& line : only) lines.push_back("- " + line);
  only.clear();
  std::ranges::set_difference(b, a, std::back_inserter(only));
  for (const std::string& line : only) lines.push_back("+ " + line);
  return lines;
}

}  // namespace jige::topology
