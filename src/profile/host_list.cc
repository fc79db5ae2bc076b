#include "profile/host_list.h"

#include <algorithm>

#include "base/file.h"
#include "base/split.h"
#include "comm/host_address.h"

namespace jige::profile {
namespace {

constexpr size_t kHostsMax = 64;
constexpr size_t kHostListBytesMax = 1 << 20;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

Result<std::vector<Host>> parse_entries(std::span<const std::string_view> entries,
                                        std::string_view where) {
  std::vector<Host> hosts;
  for (const std::string_view given : entries) {
    const std::string_view entry = trimmed(given);
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return fail(Code::kInvalidArgument, "{}: \"{}\" is no NAME=ADDRESS[:PORT]", where, entry);
    }
    Host host{.name = std::string(trimmed(entry.substr(0, equals)))};
    JIGE_TRY(host.address, parse_agent_address(trimmed(entry.substr(equals + 1)), where));
    for (const Host& other : hosts) {
      if (other.name == host.name || other.address.text() == host.address.text()) {
        return fail(Code::kInvalidArgument, "{}: \"{}\" has the name or address of {} at {}", where,
                    entry, other.name, other.address.text());
      }
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty() || hosts.size() > kHostsMax) {
    return fail(Code::kInvalidArgument, "{}: names {} hosts, must be 1 to {}", where, hosts.size(),
                kHostsMax);
  }
  return hosts;
}

}  // namespace

Result<comm::Address> parse_agent_address(std::string_view text, std::string_view where) {
  return comm::parse_host_address(text, kAgentPort, where);
}

Result<std::vector<Host>> parse_hosts(std::string_view text, std::string_view where) {
  return parse_entries(split_at(text, ','), where);
}

Result<std::vector<Host>> load_hosts(const std::string& path) {
  JIGE_TRY(const std::string text, read_file(path, kHostListBytesMax));
  std::vector<std::string_view> entries;
  for (std::string_view line : split_at(text, '\n')) {
    line = trimmed(line.substr(0, line.find('#')));
    if (!line.empty()) entries.push_back(line);
  }
  return parse_entries(entries, path);
}

topology::Description hosts_description(std::span<const Host> hosts,
                                        std::map<std::string, std::string> environment) {
  using topology::ComponentKind;
  topology::Description d;
  d.name = "hosts";
  d.environment = std::move(environment);
  for (const Host& host : hosts) {
    d.add({.name = host.name, .kind = ComponentKind::kHost, .address = host.address.text()});
  }
  const int32_t router = d.add({.name = "network", .kind = ComponentKind::kRouter});
  for (int32_t i = 0; i < router; ++i) {
    d.join({.from = i, .to = router, .kind = topology::LinkKind::kNetwork});
  }
  return d;
}

}  // namespace jige::profile
