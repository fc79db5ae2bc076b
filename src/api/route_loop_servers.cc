// The servers of a RouterLoop: who is there, who is well, what is told of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/route_loop.h"
#include "base/log.h"

namespace jige::api {
namespace {

constexpr double kSweepSeconds = 0.25;  // between looks at unused connections

}  // namespace

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
    server.idle.clear();
    policy_.leave(id);
    log_info("{} gets no more requests; it has {}", server.address(),
             policy_.has_server(id) ? policy_.status(id).requests : 0);
  }
  drop_gone_servers();
  for (const HttpPeer& peer : peers) {
    const auto known = std::ranges::find_if(
        servers_, [&](const auto& entry) { return is_of(peer, entry.second); });
    if (known != servers_.end()) {
      known->second.set_api_key(peer.api_key);
      follow(known->second, peer);
      continue;
    }
    const plan::RouteServerId id = policy_.add_server();
    servers_.try_emplace(id, peer, id, options_.health, options_.idle);
  }
  look_at_servers();
}

// A server that is well stays where it is: a name may lead to several addresses, in any order.
void RouterLoop::follow(RouteServer& server, const HttpPeer& peer) const {
  if (peer.address == server.peer().address) return;
  if (server.health().state(now_s_) != plan::ServerState::kDown) return;
  log_info("{} has another address now, and is asked there", server.address());
  server.set_address(peer.address);
}

void RouterLoop::drop_gone_servers() {
  std::erase_if(servers_, [&](const auto& entry) {
    const bool gone = !policy_.has_server(entry.first);
    if (gone) speeds_.forget(entry.first);
    return gone;
  });
}

void RouterLoop::look_at_servers() {
  const bool sweep = now_s_ - swept_s_ >= kSweepSeconds;
  if (sweep) swept_s_ = now_s_;
  for (auto& [id, server] : servers_) {
    if (sweep) server.idle.sweep(now_s_);
    if (server.probing()) {
      move_probe(server);
    } else if (server.health().probe_due(now_s_) &&
               server.begin_probe(now_s_, options_.probe_answer_s, speeds_.sequences(id))) {
      watch_probe(server);
    }
    note_state(server);
  }
  note_loads_and_speeds();
}

void RouterLoop::note_loads_and_speeds() {
  const bool learned = options_.learn_speeds && speeds_.update(now_s_);
  for (const auto& [id, server] : servers_) {
    const plan::OtherRequests others = server.load.others(now_s_);
    policy_.set_others(id, others);
    speeds_.set_others(id, now_s_, others.running);
    if (learned) policy_.set_speed(id, speeds_.speed(id));
  }
}

void RouterLoop::move_probe(RouteServer& server) {
  if (server.move_probe(now_s_)) {
    if (server.models().is_array()) policy_.set_models(server.id(), server.model_names());
    note_state(server);
  }
  watch_probe(server);
}

void RouterLoop::note_state(RouteServer& server) {
  const plan::ServerState state = server.health().state(now_s_);
  const bool up = state != plan::ServerState::kDown;
  if (policy_.status(server.id()).state != state) policy_.set_state(server.id(), state);
  if (!up) {
    server.load.forget();
    server.idle.clear();
    if (!server.probing()) server.drop_probe_wire();
    if (std::exchange(server.told_up, false)) speeds_.forget_samples(server.id());
    if (server.trouble().empty() || server.trouble() == server.told_trouble) return;
    server.told_trouble = server.trouble();
    log_warn("{} gets no requests for now: {}", server.address(), server.trouble());
  } else if (!std::exchange(server.told_up, true)) {
    server.told_trouble.clear();
    log_info("{} takes requests: {}", server.address(), fmt::join(server.model_names(), ", "));
    warn_of_differences(server);
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

// Until the first of those that rest and have the model wants requests again.
double RouterLoop::shortest_rest_s(const RouteRelay& relay) const {
  const std::string model = relay.model.empty() ? default_model() : relay.model;
  double least_s = std::numeric_limits<double>::infinity();
  for (const auto& [id, server] : servers_) {
    const std::vector<std::string> names = server.model_names();
    if (server.leaving || std::ranges::find(names, model) == names.end()) continue;
    const double left_s = server.health().rest_left_s(now_s_);
    if (left_s > 0) least_s = std::min(least_s, left_s);
  }
  return std::isfinite(least_s) ? std::max(std::ceil(least_s), 1.0) : 1;
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

void RouterLoop::watch_probe(const RouteServer& server) const {
  const uint64_t key = static_cast<uint64_t>(server.id()) * 2 + 1;
  if (server.probe_fd() >= 0) watch(server.probe_fd(), key, server.probe_events());
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
    view.servers.push_back({.address = server.address(),
                            .status = policy_.status(id),
                            .rates = speeds_.rates(id),
                            .server = &server});
  }
  return view;
}

}  // namespace jige::api
