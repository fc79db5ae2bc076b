#include "plan/route_policy.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace jige::plan {
namespace {

constexpr double kAnswerWeight = 1.0 / 64;

}  // namespace

std::string_view route_rule_name(RouteRule rule) {
  switch (rule) {
    case RouteRule::kPrefix:
      return "prefix";
    case RouteRule::kLeastLoaded:
      return "least-loaded";
    case RouteRule::kRoundRobin:
      return "round-robin";
  }
  return "";
}

std::optional<RouteRule> find_route_rule(std::string_view name) {
  for (const RouteRule rule : kRouteRules) {
    if (route_rule_name(rule) == name) return rule;
  }
  return std::nullopt;
}

RoutePolicy::RoutePolicy(RouteOptions options)
    : options_(options), answer_mean_(options.answer_tokens) {
  JIGE_CHECK(options.requests_max > 0 && options.waiting_max >= 0, "no request could be placed");
}

RouteServerId RoutePolicy::add_server() {
  servers_.emplace(next_server_, Server(options_.known_blocks_max));
  return next_server_++;
}

RoutePolicy::Server& RoutePolicy::server_of(RouteServerId id) {
  const auto found = servers_.find(id);
  JIGE_CHECK(found != servers_.end(), "there is no such server");
  return found->second;
}

void RoutePolicy::leave(RouteServerId id) {
  Server& server = server_of(id);
  server.leaving = true;
  if (server.requests == 0) servers_.erase(id);
}

void RoutePolicy::set_state(RouteServerId id, ServerState state) {
  Server& server = server_of(id);
  server.state = state;
  if (state == ServerState::kDown) server.known.clear();
}

void RoutePolicy::set_models(RouteServerId id, std::vector<std::string> models) {
  server_of(id).models = std::move(models);
}

void RoutePolicy::set_other_work(RouteServerId id, int64_t tokens) {
  server_of(id).other_work = std::max<int64_t>(tokens, 0);
}

bool RoutePolicy::has_model(const Server& server, const std::string& model) {
  if (model.empty()) return !server.models.empty();
  return std::ranges::find(server.models, model) != server.models.end();
}

RouteDecision RoutePolicy::arrive(RouteRequest spec) {
  JIGE_CHECK(!requests_.contains(spec.id), "a request comes once");
  Request request;
  request.spec = std::move(spec);
  return place_or_wait(std::move(request), /*is_new=*/true);
}

RouteDecision RoutePolicy::refused(RouteId id) {
  const auto found = requests_.find(id);
  JIGE_CHECK(found != requests_.end() && found->second.server >= 0, "it is at no server");
  Request request = std::move(found->second);
  requests_.erase(found);
  request.refused_by.push_back(request.server);
  take_from_server(request);
  return place_or_wait(std::move(request), /*is_new=*/false);
}

// One that was refused has waited its turn already: it goes to the front.
RouteDecision RoutePolicy::place_or_wait(Request request, bool is_new) {
  const RouteId id = request.spec.id;
  RouteDecision decision = decide(request);
  if (decision.verdict == RouteVerdict::kWait && is_new &&
      std::ssize(waiting_) >= options_.waiting_max) {
    decision.verdict = RouteVerdict::kFull;
  }
  const bool stays =
      decision.verdict == RouteVerdict::kServer || decision.verdict == RouteVerdict::kWait;
  if (!stays) return decision;
  Request& kept = requests_.emplace(id, std::move(request)).first->second;
  if (decision.verdict == RouteVerdict::kServer) {
    place(kept, decision);
  } else if (is_new) {
    waiting_.push_back(id);
  } else {
    waiting_.push_front(id);
  }
  return decision;
}

RouteDecision RoutePolicy::decide(const Request& request) {
  std::vector<Candidate> open = candidates(request);
  if (open.empty()) return {.verdict = verdict_without_server(request)};
  const Candidate best = choose(request, std::move(open));
  return {.verdict = RouteVerdict::kServer, .server = best.id, .known_tokens = best.known_tokens};
}

RouteVerdict RoutePolicy::verdict_without_server(const Request& request) const {
  bool known = false;
  for (const auto& [id, server] : servers_) {
    if (server.leaving || !has_model(server, request.spec.model)) continue;
    known = true;
    const bool tried = std::ranges::find(request.refused_by, id) != request.refused_by.end();
    if (server.state != ServerState::kDown && !tried) return RouteVerdict::kWait;
  }
  if (!request.refused_by.empty()) return RouteVerdict::kRefused;
  return known ? RouteVerdict::kNoServer : RouteVerdict::kNoModel;
}

std::vector<RoutePolicy::Candidate> RoutePolicy::candidates(const Request& request) {
  std::vector<Candidate> open;
  for (auto& [id, server] : servers_) {
    if (server.leaving || server.state != ServerState::kUp) continue;
    if (server.requests >= options_.requests_max) continue;
    if (!has_model(server, request.spec.model)) continue;
    if (std::ranges::find(request.refused_by, id) != request.refused_by.end()) continue;
    open.push_back({.id = id, .server = &server});
  }
  return open;
}

int64_t RoutePolicy::load_bound(const Request& request) const {
  double sum = 0;
  int64_t count = 0;
  for (const auto& [id, server] : servers_) {
    const bool counts = !server.leaving && server.state != ServerState::kDown &&
                        has_model(server, request.spec.model);
    if (!counts) continue;
    sum += static_cast<double>(server.load());
    ++count;
  }
  const double mean = count > 0 ? sum / static_cast<double>(count) : 0;
  return static_cast<int64_t>(
      std::floor(options_.imbalance_ratio * mean + options_.imbalance_slack));
}

RoutePolicy::Candidate RoutePolicy::choose(const Request& request,
                                           std::vector<Candidate> open) const {
  const int64_t bound = options_.rule == RouteRule::kPrefix ? load_bound(request) : 0;
  for (Candidate& one : open) {
    const int64_t load = one.server->load();
    if (options_.rule == RouteRule::kRoundRobin) continue;  // by the order of decisions alone
    one.cost = load;
    if (options_.rule != RouteRule::kPrefix) continue;
    const auto blocks = static_cast<int64_t>(one.server->known.match(request.spec.prefix));
    one.known_tokens = std::min(blocks * options_.block_tokens, request.spec.prompt_tokens);
    if (load <= bound) one.cost = load - options_.known_weight * one.known_tokens;
  }
  return *std::ranges::min_element(open, {}, [](const Candidate& one) {
    return std::tuple(one.cost, one.server->chosen_at, one.id);
  });
}

void RoutePolicy::place(Request& request, const RouteDecision& decision) {
  Server& server = server_of(decision.server);
  request.server = decision.server;
  request.prompt_left = request.spec.prompt_tokens - decision.known_tokens;
  request.answer_expected = std::llround(answer_mean_);
  if (request.spec.answer_tokens_max >= 0) {
    request.answer_expected = std::min(request.answer_expected, request.spec.answer_tokens_max);
  }
  request.answer_tokens = 0;
  server.chosen_at = ++decisions_;
  ++server.requests;
  recount(request);
  if (options_.rule == RouteRule::kPrefix) server.known.touch(request.spec.prefix);
}

void RoutePolicy::take_from_server(Request& request) {
  const RouteServerId id = request.server;
  Server& server = server_of(id);
  server.work -= request.work;
  --server.requests;
  request.work = 0;
  request.server = -1;
  if (server.leaving && server.requests == 0) servers_.erase(id);
}

int64_t RoutePolicy::work_left(const Request& request) const {
  const int64_t answer_left =
      request.spec.answer_tokens_max == 0
          ? 0
          : std::max(request.answer_expected - request.answer_tokens, options_.answer_floor);
  return request.prompt_left + options_.answer_cost * answer_left;
}

void RoutePolicy::recount(Request& request) {
  Server& server = server_of(request.server);
  server.work -= request.work;
  request.work = work_left(request);
  server.work += request.work;
}

void RoutePolicy::began(RouteId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.server < 0) return;
  found->second.prompt_left = 0;
  recount(found->second);
}

void RoutePolicy::progress(RouteId id, int64_t answer_tokens) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.server < 0) return;
  found->second.prompt_left = 0;
  found->second.answer_tokens = answer_tokens;
  recount(found->second);
}

void RoutePolicy::finished(RouteId id, Ending ending) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Request& request = found->second;
  if (request.server < 0) {
    std::erase(waiting_, id);
  } else {
    if (ending == Ending::kWhole && request.answer_tokens > 0) {
      answer_mean_ += kAnswerWeight * (static_cast<double>(request.answer_tokens) - answer_mean_);
    }
    take_from_server(request);
  }
  requests_.erase(found);
}

std::optional<PlacedRequest> RoutePolicy::next() {
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    const RouteId id = *at;
    Request& request = requests_.at(id);
    const RouteDecision decision = decide(request);
    if (decision.verdict == RouteVerdict::kWait) continue;
    waiting_.erase(at);
    if (decision.verdict == RouteVerdict::kServer) {
      place(request, decision);
    } else {
      requests_.erase(id);
    }
    return PlacedRequest{.id = id, .decision = decision};
  }
  return std::nullopt;
}

RouteServerStatus RoutePolicy::status(RouteServerId id) const {
  const auto found = servers_.find(id);
  JIGE_CHECK(found != servers_.end(), "there is no such server");
  const Server& server = found->second;
  return {.state = server.state,
          .leaving = server.leaving,
          .requests = server.requests,
          .work = server.load(),
          .known_blocks = server.known.size()};
}

void RoutePolicy::check_invariants() const {
  std::map<RouteServerId, std::pair<int32_t, int64_t>> at;
  size_t waiting = 0;
  for (const auto& [id, request] : requests_) {
    const auto places = std::ranges::count(waiting_, id);
    JIGE_CHECK(places == (request.server < 0 ? 1 : 0), "a request is at a server or waits");
    if (request.server < 0) {
      ++waiting;
      continue;
    }
    JIGE_CHECK(request.work == work_left(request), "work is what is left");
    ++at[request.server].first;
    at[request.server].second += request.work;
  }
  JIGE_CHECK(waiting == waiting_.size(), "who is over does not wait");
  for (const auto& [id, server] : servers_) {
    JIGE_CHECK(server.requests == at[id].first && server.work == at[id].second,
               "a server's work is that of its requests");
    JIGE_CHECK(server.requests <= options_.requests_max, "a server has at most so many");
    JIGE_CHECK(!server.leaving || server.requests > 0, "who has left is gone");
    JIGE_CHECK(server.known.size() <= options_.known_blocks_max, "what is known is bounded");
    at.erase(id);
  }
  JIGE_CHECK(at.empty(), "requests are at servers that are there");
}

}  // namespace jige::plan
