// The servers of a RouterLoop: who is there, who is well, what is told of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/route_loop.h"
#include "base/log.h"

namespace jige::api {

void RouterLoop::change_servers(const std::vector<HttpPeer>& peers) {
  const auto is_of = [](const HttpPeer& peer, const RouteServer& server) {
    return !server.leaving && peer.url() == server.address();
  };
  for (auto& [id, server] : servers_) {
    const RouteServer& one = server;
    if (server.leaving ||
        std::ranges::any_of(peers, [&](const HttpPeer& peer) { return is_of(peer, one); })) {
      continue;
    }
    server.leaving = true;
    policy_.leave(id);
    log_info("{} gets no more requests; it has {}", server.address(),
             policy_.has_server(id) ? policy_.status(id).requests : 0);
  }
  drop_gone_servers();
  for (const HttpPeer& peer : peers) {
    if (std::ranges::any_of(servers_,
                            [&](const auto& entry) { return is_of(peer, entry.second); })) {
      continue;
    }
    const plan::RouteServerId id = policy_.add_server();
    servers_.try_emplace(id, peer, id, options_.health);
  }
  look_at_servers();
}

void RouterLoop::drop_gone_servers() {
  std::erase_if(servers_, [&](const auto& entry) { return !policy_.has_server(entry.first); });
}

void RouterLoop::look_at_servers() {
  for (auto& [id, server] : servers_) {
    if (server.probe()) {
      move_probe(server);
    } else if (server.health().probe_due(now_s_) &&
               server.begin_probe(now_s_, options_.probe_answer_s, options_.server_key)) {
      watch_probe(server);
    }
    note_state(server);
  }
}

void RouterLoop::move_probe(RouteServer& server) {
  if (server.move_probe(now_s_)) {
    if (server.models().is_array()) policy_.set_models(server.id(), server.model_names());
    note_state(server);
  }
  if (server.probe()) watch_probe(server);
}

void RouterLoop::note_state(RouteServer& server) {
  const plan::ServerState state = server.health().state(now_s_);
  const bool up = state != plan::ServerState::kDown;
  if (policy_.status(server.id()).state != state) policy_.set_state(server.id(), state);
  if (std::exchange(server.told_up, up) == up) return;
  if (up) {
    log_info("{} takes requests: {}", server.address(), fmt::join(server.model_names(), ", "));
    warn_of_differences(server);
  } else {
    log_warn("{} gets no requests for now: {}", server.address(), server.trouble());
  }
}

// A model of one name should be one: what a client gets must not depend on where it comes to.
void RouterLoop::warn_of_differences(const RouteServer& server) const {
  for (const Json& model : server.models()) {
    for (const auto& [id, other] : servers_) {
      if (other.leaving || id == server.id()) continue;
      const auto same = std::ranges::find_if(
          other.models(), [&](const Json& one) { return one["id"] == model["id"]; });
      if (same == other.models().end()) continue;
      for (const char* field : {"root", "parent", "max_model_len", "chat_template"}) {
        const Json* here = find_field(model, field);
        const Json* there = find_field(*same, field);
        if ((here ? *here : Json()) == (there ? *there : Json())) continue;
        log_warn("the model {} differs: {} is {} at {} and {} at {}", dump_json(model["id"]), field,
                 here ? dump_json(*here) : "null", server.address(),
                 there ? dump_json(*there) : "null", other.address());
      }
    }
  }
}

// Whether every server has told which models it has.
bool RouterLoop::knows_all_models() const {
  bool any = false;
  for (const auto& [id, server] : servers_) {
    if (server.leaving) continue;
    any = true;
    if (server.models().empty()) return false;
  }
  return any;
}

void RouterLoop::watch_probe(RouteServer& server) const {
  const uint64_t key = static_cast<uint64_t>(server.id()) * 2 + 1;
  watch(server.probe()->fd(), key, server.probe()->wanted_events());
}

// What a request without a name asks for: the model that the first server has, wherever it is.
std::string RouterLoop::default_model() const {
  for (const auto& [id, server] : servers_) {
    if (!server.leaving && !server.models().empty()) return server.model_names().front();
  }
  return "";
}

RouterView RouterLoop::view() const {
  RouterView view{.totals = totals_,
                  .waiting = policy_.waiting_count(),
                  .in_flight = policy_.request_count() - policy_.waiting_count(),
                  .expected_answer_tokens = policy_.expected_answer_tokens(),
                  .rule = std::string(plan::route_rule_name(options_.policy.rule))};
  for (const auto& [id, server] : servers_) {
    view.servers.push_back(
        {.address = server.address(), .status = policy_.status(id), .server = &server});
  }
  return view;
}

}  // namespace jige::api
