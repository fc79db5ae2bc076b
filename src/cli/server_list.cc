#include "cli/server_list.h"

#include <fmt/format.h>

#include <algorithm>

namespace jige::cli {
namespace {

// `peer`, or what is wrong with the URL or the authorities, naming the one that is at fault.
Result<api::HttpPeer> placed(Result<api::HttpPeer> peer, const PlacedText& url,
                             const std::string& ca_file) {
  if (peer) return peer;
  const bool of_url =
      peer.error().code == Code::kUnavailable || !api::HttpPeer::url_of(url.text).has_value();
  const std::string place = of_url || ca_file.empty() ? url.place : "--server-ca";
  return with_context(std::move(peer.error()), "{}", place);
}

}  // namespace

std::vector<PlacedText> list_lines(std::string_view text, std::string_view file) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<PlacedText> lines;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
    line = line.substr(0, line.find_last_not_of(kSpace) + 1);
    if (line.empty() || line.front() == '#') continue;
    lines.push_back({std::string(line), fmt::format("{}:{}", file, number)});
  }
  return lines;
}

std::vector<PlacedText> list_values(const std::vector<std::string>& values, std::string_view flag) {
  std::vector<PlacedText> list;
  for (const std::string& value : values) list.push_back({value, std::string(flag)});
  return list;
}

Result<api::HttpPeer> resolve_server(const PlacedText& url, const std::string& ca_file) {
  return placed(api::HttpPeer::resolve(url.text, ca_file), url, ca_file);
}

Result<std::vector<ListedServer>> read_servers(const std::vector<PlacedText>& urls,
                                               std::string_view where, const std::string& ca_file) {
  if (urls.empty()) {
    return fail(Code::kInvalidArgument, "{}: names no server; one URL for each", where);
  }
  std::vector<ListedServer> servers;
  for (const PlacedText& url : urls) {
    JIGE_TRY(api::HttpPeer peer, placed(api::HttpPeer::read(url.text, ca_file), url, ca_file));
    const bool twice = std::ranges::any_of(
        servers, [&](const ListedServer& one) { return one.peer.url() == peer.url(); });
    if (twice) {
      return fail(Code::kInvalidArgument, "{}: {} is there twice; leave one out", url.place,
                  peer.url());
    }
    servers.push_back({std::move(peer), url.place});
  }
  return servers;
}

Result<ServerKeys> ServerKeys::parse(std::string_view text, std::string_view where) {
  ServerKeys keys;
  for (const auto& [line, place] : list_lines(text, where)) {
    const size_t space = line.find_first_of(" \t");
    const std::string key = line.substr(line.find_last_of(" \t") + 1);
    const bool plain = std::ranges::all_of(key, [](unsigned char c) { return c > ' ' && c < 127; });
    if (!plain) return fail(Code::kInvalidArgument, "{}: has characters that no key has", place);
    if (key.find("://") != std::string::npos) {
      return fail(Code::kInvalidArgument, "{}: a URL without a key behind it", place);
    }
    if (space == std::string::npos) {
      if (!keys.for_all_.empty()) {
        return fail(Code::kInvalidArgument,
                    "{}: a second one for all servers; a line for one of them is URL KEY", place);
      }
      keys.for_all_ = key;
      continue;
    }
    // Of a URL without "://" nobody could say that it is no key.
    const std::string first = line.substr(0, space);
    const bool named = first.starts_with("http://") || first.starts_with("https://");
    const size_t behind = line.find_first_not_of(" \t", space);
    if (!named || line.size() - behind != key.size()) {
      return fail(Code::kInvalidArgument,
                  "{}: a line is KEY, for all servers, or URL KEY, such as "
                  "http://10.0.0.5:8000 and a key",
                  place);
    }
    auto url = api::HttpPeer::url_of(first);
    if (!url) return with_context(std::move(url.error()), "{}", place);
    if (!keys.by_url_.emplace(*url, key).second) {
      return fail(Code::kInvalidArgument, "{}: {} is there twice", place, *url);
    }
  }
  if (!keys.for_all_.empty() || !keys.by_url_.empty()) return keys;
  return fail(Code::kInvalidArgument, "{}: holds no key", where);
}

void ServerKeys::give(std::vector<api::HttpPeer>& peers) const {
  for (api::HttpPeer& peer : peers) {
    const auto own = by_url_.find(peer.url());
    peer.api_key = own == by_url_.end() ? for_all_ : own->second;
  }
}

std::vector<std::string> ServerKeys::others(const std::vector<api::HttpPeer>& peers) const {
  std::vector<std::string> urls;
  for (const auto& [url, key] : by_url_) {
    const bool there =
        std::ranges::any_of(peers, [&](const api::HttpPeer& peer) { return peer.url() == url; });
    if (!there) urls.push_back(url);
  }
  return urls;
}

}  // namespace jige::cli
