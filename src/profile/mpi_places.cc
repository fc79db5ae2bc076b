#include "profile/mpi_places.h"

#include "profile/place_list.h"

namespace jige::profile {
namespace {

constexpr std::string_view kHost = "host:";

// "host:node1" or "a=host:node1".
Result<MpiPlace> parse_host(std::string_view entry, std::string_view where) {
  const size_t equals = entry.find('=');
  const bool named = equals != std::string_view::npos;
  std::string_view host = named ? entry.substr(equals + 1) : entry;
  if (!host.starts_with(kHost) || host.size() == kHost.size() ||
      host.find_first_of(" \t=:", kHost.size()) != std::string_view::npos || equals == 0) {
    return fail(Code::kInvalidArgument,
                "{}: \"{}\" is no [NAME=]host:HOST; hosts and places of this machine do not mix",
                where, entry);
  }
  host.remove_prefix(kHost.size());
  return MpiPlace{{.name = std::string(named ? entry.substr(0, equals) : host)}, std::string(host)};
}

}  // namespace

Result<std::vector<MpiPlace>> parse_mpi_places(std::string_view text,
                                               std::span<const Processor> processors,
                                               std::string_view where) {
  if (text.find(kHost) == std::string_view::npos) {
    JIGE_TRY(std::vector<LocalPlace> local, parse_places(text, processors, where));
    std::vector<MpiPlace> places;
    for (LocalPlace& place : local) places.push_back({std::move(place), {}});
    return places;
  }
  return parse_place_list<MpiPlace>(
      text, where,
      {.parse = [&](std::string_view entry) { return parse_host(entry, where); },
       .same = [](const MpiPlace& a,
                  const MpiPlace& b) { return a.place.name == b.place.name || a.host == b.host; },
       .remedy = "a host has one rank, under a name of its own"});
}

topology::Description mpi_description(std::span<const MpiPlace> places,
                                      std::map<std::string, std::string> environment) {
  std::vector<LocalPlace> local;
  for (const MpiPlace& place : places) local.push_back(place.place);
  if (places.front().host.empty()) return places_description(local, std::move(environment));
  using topology::ComponentKind;
  topology::Description d;
  d.name = "hosts by MPI";
  d.environment = std::move(environment);
  for (const MpiPlace& place : places) {
    d.add({.name = place.place.name, .kind = ComponentKind::kHost, .address = place.host});
  }
  const int32_t router = d.add({.name = "network", .kind = ComponentKind::kRouter});
  for (int32_t i = 0; i < router; ++i) {
    d.join({.from = i, .to = router, .kind = topology::LinkKind::kNetwork});
  }
  return d;
}

}  // namespace jige::profile
