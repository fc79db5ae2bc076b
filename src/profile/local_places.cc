#include "profile/local_places.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/split.h"
#include "profile/place_list.h"

namespace jige::profile {
namespace {

constexpr int kNodesMax = 4096;

std::optional<int> number_after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

// "0-3,8" as the kernel lists processors; what is not of that form counts for nothing.
std::vector<int> processors_of_list(std::string_view list) {
  std::vector<int> processors;
  for (const std::string_view range : split_at(list, ',')) {
    const size_t dash = std::min(range.find('-'), range.size());
    const auto first = number_after(range.substr(0, dash), "");
    const auto last = dash < range.size() ? number_after(range.substr(dash + 1), "") : first;
    for (int p = first.value_or(0); first && last && p <= std::min(*last, CPU_SETSIZE - 1); ++p) {
      processors.push_back(p);
    }
  }
  return processors;
}

// The processors of each node in turn: the first of every node, then the second …
std::vector<Processor> in_turn(std::span<const Processor> processors) {
  std::map<int, std::vector<Processor>> by_node;
  for (const Processor& p : processors) by_node[p.numa].push_back(p);
  std::vector<Processor> turns;
  for (size_t i = 0; turns.size() < processors.size(); ++i) {
    for (const auto& [node, own] : by_node) {
      if (i < own.size()) turns.push_back(own[i]);
    }
  }
  return turns;
}

Result<LocalPlace> parse_place(std::string_view entry, std::span<const Processor> processors,
                               std::string_view where) {
  const size_t equals = entry.find('=');
  const bool named = equals != std::string_view::npos;
  const std::string_view at = named ? entry.substr(equals + 1) : entry;
  LocalPlace place{.name = std::string(named ? entry.substr(0, equals) : entry)};
  const auto processor = number_after(at, "cpu"), node = number_after(at, "numa");
  for (const Processor& p : processors) {
    if (!(processor && p.number == *processor) && !(node && p.numa == *node)) continue;
    if (place.processors.empty()) place.numa = p.numa;
    place.processors.push_back(p.number);
  }
  if ((!processor && !node) || place.name.empty()) {
    return fail(Code::kInvalidArgument, "{}: \"{}\" is no [NAME=]cpuN or [NAME=]numaN", where,
                entry);
  }
  if (place.processors.empty()) {
    return fail(Code::kInvalidArgument, "{}: \"{}\" is no place this process may run on", where,
                entry);
  }
  return place;
}

std::vector<LocalPlace> spread(int count, std::span<const Processor> processors) {
  const std::vector<Processor> turns = in_turn(processors);
  std::vector<LocalPlace> places;
  for (int i = 0; i < count; ++i) {
    const Processor& p = turns[static_cast<size_t>(i) % turns.size()];
    places.push_back({fmt::format("rank{}", i), {p.number}, p.numa});
  }
  return places;
}

}  // namespace

std::vector<Processor> usable_processors(const std::string& sysfs) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<Processor> processors;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return processors;
  for (int p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &allowed)) processors.push_back({p, 0});
  }
  for (int node = 0; node < kNodesMax; ++node) {
    const std::string folder = fmt::format("{}/devices/system/node/node{}", sysfs, node);
    // Numbers may have gaps, but not beyond the few that a machine has.
    if (node > 64 && !std::filesystem::exists(folder)) break;
    auto list = read_file(folder + "/cpulist", 1 << 16);
    if (!list) continue;
    while (!list->empty() && list->back() == '\n') list->pop_back();
    const std::vector<int> here = processors_of_list(*list);
    for (Processor& p : processors) {
      if (std::ranges::find(here, p.number) != here.end()) p.numa = node;
    }
  }
  return processors;
}

std::string LocalPlace::text() const {
  return fmt::format("processor {}, NUMA node {}", fmt::join(processors, " "), numa);
}

std::vector<std::string> place_names(std::span<const LocalPlace> places) {
  std::vector<std::string> names;
  for (const LocalPlace& place : places) names.push_back(place.name);
  return names;
}

Result<std::vector<LocalPlace>> parse_places(std::string_view text,
                                             std::span<const Processor> processors,
                                             std::string_view where) {
  if (processors.empty()) {
    return fail(Code::kUnsupported, "{}: the kernel does not say where this process may run",
                where);
  }
  if (const auto count = number_after(text, "")) {
    JIGE_DO(check_place_count(*count, where));
    return spread(*count, processors);
  }
  return parse_place_list<LocalPlace>(
      text, where,
      {.parse = [&](std::string_view entry) { return parse_place(entry, processors, where); },
       .same = [](const LocalPlace& a, const LocalPlace& b) { return a.name == b.name; },
       .remedy = "give NAME=cpuN"});
}

Status pin_to(const LocalPlace& place) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int p : place.processors) CPU_SET(p, &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return {};
  return fail(Code::kUnavailable, "{} cannot run on {}: {}", place.name, place.text(),
              std::strerror(errno));
}

topology::Description places_description(std::span<const LocalPlace> places,
                                         std::map<std::string, std::string> environment) {
  using topology::ComponentKind;
  topology::Description d;
  d.name = "processes of this machine";
  d.environment = std::move(environment);
  for (const LocalPlace& place : places) {
    d.environment["place of " + place.name] = place.text();
    d.add({.name = place.name, .kind = ComponentKind::kHost, .numa = place.numa});
  }
  const int32_t router = d.add({.name = "memory", .kind = ComponentKind::kRouter});
  for (int32_t i = 0; i < router; ++i) {
    d.join({.from = i, .to = router, .kind = topology::LinkKind::kMemoryBus});
  }
  return d;
}

}  // namespace jige::profile
