#include "cli/server_list.h"

#include <algorithm>

namespace jige::cli {

std::vector<std::string> list_servers(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
    line = line.substr(0, line.find_last_not_of(kSpace) + 1);
    if (!line.empty() && line.front() != '#') lines.emplace_back(line);
  }
  return lines;
}

Result<std::vector<api::HttpPeer>> resolve_servers(const std::vector<std::string>& urls,
                                                   std::string_view where,
                                                   const std::string& ca_file) {
  if (urls.empty()) {
    return fail(Code::kInvalidArgument, "{}: names no server; one URL for each", where);
  }
  std::vector<api::HttpPeer> peers;
  for (const std::string& url : urls) {
    auto peer = api::HttpPeer::resolve(url, ca_file);
    if (!peer) return with_context(std::move(peer.error()), "{}", where);
    const bool twice = std::ranges::any_of(
        peers, [&](const api::HttpPeer& one) { return one.url() == peer->url(); });
    if (twice) return fail(Code::kInvalidArgument, "{}: {} is there twice", where, url);
    peers.push_back(std::move(*peer));
  }
  return peers;
}

}  // namespace jige::cli
