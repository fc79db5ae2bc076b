#include "plan/route_policy.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace jige::plan {
namespace {

constexpr double kMeanWeight = 1.0 / 64;

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
    : options_(options), answer_mean_(options.answer_tokens), prompt_mean_(options.prompt_tokens) {
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

void RoutePolicy::set_others(RouteServerId id, OtherRequests others) {
  JIGE_CHECK(others.running >= 0 && others.waiting >= 0, "nobody sends less than nothing");
  server_of(id).others = others;
}

void RoutePolicy::set_speed(RouteServerId id, RouteSpeed speed) {
  JIGE_CHECK(speed.prompt > 0 && speed.answer > 0, "a server does something");
  server_of(id).speed = speed;
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
  return {.verdict = RouteVerdict::kServer,
          .server = best.id,
          .known_tokens = best.known_tokens,
          .unread_tokens = best.server->work.prompts + work_of_others(*best.server).prompts};
}

RouteVerdict RoutePolicy::verdict_without_server(const Request& request) const {
  bool known = false;
  for (const auto& [id, server] : servers_) {
    if (server.leaving || !has_model(server, request.spec.model)) continue;
    known = true;
    if (server.state != ServerState::kDown && may_take(id, server, request)) {
      return RouteVerdict::kWait;
    }
  }
  if (!request.refused_by.empty()) return RouteVerdict::kRefused;
  return known ? RouteVerdict::kNoServer : RouteVerdict::kNoModel;
}

bool RoutePolicy::may_take(RouteServerId id, const Server& server, const Request& request) {
  return !server.leaving && has_model(server, request.spec.model) &&
         std::ranges::find(request.refused_by, id) == request.refused_by.end();
}

bool RoutePolicy::waits_for_rest(RouteId id) const {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.server >= 0) return false;
  return std::ranges::none_of(servers_, [&](const auto& entry) {
    return entry.second.state == ServerState::kUp &&
           may_take(entry.first, entry.second, found->second);
  });
}

std::vector<RoutePolicy::Candidate> RoutePolicy::candidates(const Request& request) {
  std::vector<Candidate> open;
  for (auto& [id, server] : servers_) {
    if (server.state != ServerState::kUp || server.requests >= options_.requests_max) continue;
    if (may_take(id, server, request)) open.push_back({.id = id, .server = &server});
  }
  return open;
}

RoutePolicy::RouteWork RoutePolicy::work_of_others(const Server& server) const {
  const OtherRequests& others = server.others;
  const double answers = others.waiting + others.running / 2;
  return {.prompts = std::llround(others.waiting * prompt_mean_),
          .answers = std::llround(answers * answer_mean_) * options_.answer_cost};
}

// What the server needs for its work and `more`.
double RoutePolicy::time_of(const Server& server, const RouteWork& more) const {
  const RouteWork others = work_of_others(server);
  const auto prompts = static_cast<double>(server.work.prompts + others.prompts + more.prompts);
  const auto answers = static_cast<double>(server.work.answers + others.answers + more.answers);
  return prompts / server.speed.prompt + answers / server.speed.answer;
}

double RoutePolicy::time_bound(const Request& request) const {
  double sum = 0;
  int64_t count = 0;
  for (const auto& [id, server] : servers_) {
    const bool counts = !server.leaving && server.state != ServerState::kDown &&
                        has_model(server, request.spec.model);
    if (!counts) continue;
    sum += time_of(server, {});
    ++count;
  }
  const double mean = count > 0 ? sum / static_cast<double>(count) : 0;
  return options_.imbalance_ratio * mean + options_.imbalance_slack;
}

RoutePolicy::Candidate RoutePolicy::choose(const Request& request,
                                           std::vector<Candidate> open) const {
  const bool by_prefix = options_.rule == RouteRule::kPrefix;
  const double bound = by_prefix ? time_bound(request) : 0;
  const RouteRequest& spec = request.spec;
  for (Candidate& one : open) {
    if (options_.rule == RouteRule::kRoundRobin) continue;  // by the order of decisions alone
    if (by_prefix) {
      const auto blocks = static_cast<int64_t>(one.server->known.match(spec.prefix));
      one.known_tokens = std::min(blocks * options_.block_tokens, spec.prompt_tokens);
    }
    const bool counts = by_prefix && time_of(*one.server, {}) <= bound;
    const int64_t known = counts ? one.known_tokens : 0;
    const RouteWork more = work_of(spec, spec.prompt_tokens - known, expected_answer(spec));
    one.cost =
        time_of(*one.server, more) - static_cast<double>((options_.known_weight - 1) * known);
  }
  return *std::ranges::min_element(open, {}, [](const Candidate& one) {
    return std::tuple(one.cost, one.server->chosen_at, one.id);
  });
}

void RoutePolicy::place(Request& request, const RouteDecision& decision) {
  Server& server = server_of(decision.server);
  request.server = decision.server;
  request.prompt_left = request.spec.prompt_tokens - decision.known_tokens;
  prompt_mean_ += kMeanWeight * (static_cast<double>(request.prompt_left) - prompt_mean_);
  request.answer_expected = expected_answer(request.spec);
  request.answer_tokens = 0;
  server.chosen_at = ++decisions_;
  ++server.requests;
  recount(request);
  if (options_.rule == RouteRule::kPrefix) server.known.touch(request.spec.prefix);
}

void RoutePolicy::take_from_server(Request& request) {
  const RouteServerId id = request.server;
  Server& server = server_of(id);
  server.work.prompts -= request.work.prompts;
  server.work.answers -= request.work.answers;
  --server.requests;
  request.work = {};
  request.server = -1;
  if (server.leaving && server.requests == 0) servers_.erase(id);
}

int64_t RoutePolicy::expected_answer(const RouteRequest& spec) const {
  const int64_t expected = std::llround(answer_mean_);
  return spec.answer_tokens_max < 0 ? expected : std::min(expected, spec.answer_tokens_max);
}

RoutePolicy::RouteWork RoutePolicy::work_of(const RouteRequest& spec, int64_t prompt_left,
                                            int64_t answer_left) const {
  if (spec.answer_tokens_max == 0) return {.prompts = prompt_left};
  return {.prompts = prompt_left,
          .answers = options_.answer_cost * std::max(answer_left, options_.answer_floor)};
}

RoutePolicy::RouteWork RoutePolicy::work_left(const Request& request) const {
  return work_of(request.spec, request.prompt_left,
                 request.answer_expected - request.answer_tokens);
}

void RoutePolicy::recount(Request& request) {
  Server& server = server_of(request.server);
  const RouteWork left = work_left(request);
  server.work.prompts += left.prompts - request.work.prompts;
  server.work.answers += left.answers - request.work.answers;
  request.work = left;
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
      answer_mean_ += kMeanWeight * (static_cast<double>(request.answer_tokens) - answer_mean_);
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
  const RouteWork others = work_of_others(server);
  return {.state = server.state,
          .leaving = server.leaving,
          .requests = server.requests,
          .work = server.work.prompts + server.work.answers + others.prompts + others.answers,
          .others = server.others,
          .speed = server.speed,
          .known_blocks = server.known.size()};
}

void RoutePolicy::check_invariants() const {
  std::map<RouteServerId, std::pair<int32_t, RouteWork>> at;
  size_t waiting = 0;
  for (const auto& [id, request] : requests_) {
    const auto places = std::ranges::count(waiting_, id);
    JIGE_CHECK(places == (request.server < 0 ? 1 : 0), "a request is at a server or waits");
    if (request.server < 0) {
      ++waiting;
      continue;
    }
    JIGE_CHECK(request.work == work_left(request), "work is what is left");
    auto& [count, work] = at[request.server];
    ++count;
    work.prompts += request.work.prompts;
    work.answers += request.work.answers;
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
