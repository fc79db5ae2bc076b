// Requests of a RouterLoop that their servers lose or leave without an answer, and what that says
// of these servers.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "api/api_error.h"
#include "api/route_loop.h"
#include "base/log.h"

namespace jige::api {

// Its server could not be reached, or ended what it had begun.
void RouterLoop::lose(RouteRelay& relay, const Error& error) {
  RouteServer& server = server_at(relay);
  const bool reached = relay.call() && relay.call()->connected();
  ++(reached ? server.counts.broke : server.counts.connect_failed);
  const std::string why = error.message;
  // One whose client is slow is given up by a server, which is well for all that.
  if (!relay.ever_paused()) {
    server.set_trouble(why);
    server.health().request_failed(now_s_);
    note_state(server);
  }
  // One that is not there any more when it is asked afresh may have been lost with the request.
  if (reached || relay.asked_afresh) ++relay.broken_count;
  relay.unanswered = false;
  end_or_place_again(relay, why);
}

// Its server is well by its probes, and has said nothing for too long.
void RouterLoop::give_up_waiting(RouteRelay& relay) {
  RouteServer& server = server_at(relay);
  ++server.counts.silent;
  server.health().request_silent(now_s_);
  if (server.health().silent(now_s_)) {
    server.set_trouble(fmt::format("the last {} requests had no answer within {:g} s",
                                   options_.health.silent_max, options_.answer_s));
  }
  note_state(server);
  ++relay.broken_count;
  relay.unanswered = true;
  end_or_place_again(
      relay, fmt::format("nothing came for the {:g} s of --answer-seconds", options_.answer_s));
}

// A request that its server will not answer to the end.
void RouterLoop::end_or_place_again(RouteRelay& relay, const std::string& why) {
  RouteServer& server = server_at(relay);
  if (relay.begun()) {
    ++server.counts.cut;
    ++totals_.cut;
    log_warn("request {}: {} was lost behind the first bytes of its answer to {}: {}", relay.name(),
             server.address(), relay.path(), why);
    relay.cut(lost_error(relay));
    return finish(relay, plan::RoutePolicy::Ending::kGivenUp);
  }
  if (relay.broken_count > 1) {
    ++totals_.lost;
    log_warn("request {}: {} was lost with it, as another before, at {}: {}", relay.name(),
             server.address(), relay.path(), why);
    relay.refuse(lost_error(relay));
    return finish(relay, plan::RoutePolicy::Ending::kGivenUp);
  }
  if (relay.unanswered) {
    log_warn("request {}: {} did not answer it, at {}: {}", relay.name(), server.address(),
             relay.path(), why);
  }
  place_again(relay);
}

// Where servers are and what they died of is no matter of clients.
ApiError RouterLoop::lost_error(const RouteRelay& relay) const {
  if (relay.unanswered) {
    return {
        .status = 504,
        .message = fmt::format("the server said nothing for {:g} s, the longest that the router's "
                               "--answer-seconds lets it",
                               options_.answer_s),
        .code = "server_silent"};
  }
  return {.status = 503,
          .message = "the server was lost before its answer was complete; try again",
          .code = "server_lost",
          .retry_after_s = kRetryAfterS};
}

// Its client has gone; where it had waited long for a first byte, that says something of its
// server.
void RouterLoop::note_abandoned(RouteRelay& relay) {
  RouteServer& server = server_at(relay);
  if (!relay.call()->connected() || relay.call()->received_bytes() > 0) return;
  const double waited_s = now_s_ - relay.asked_at_s();
  if (waited_s < options_.health.abandoned_s) return;
  ++server.counts.abandoned;
  server.health().request_abandoned(now_s_, waited_s);
  if (server.health().silent(now_s_)) {
    server.set_trouble(fmt::format(
        "the last {} clients went without a byte of an answer, each after {:g} s or more",
        options_.health.abandoned_max, options_.health.abandoned_s));
  }
  note_state(server);
}

// A request leaves its server: where it was a trial of that, another may be the next.
void RouterLoop::end_trial(RouteRelay& relay) {
  if (!std::exchange(relay.is_trial, false)) return;
  RouteServer& server = server_at(relay);
  server.health().trial_over();
  note_state(server);
}

void RouterLoop::look_at_relays() {
  std::vector<std::pair<plan::RouteId, std::string>> lost;
  std::vector<plan::RouteId> tired, unanswered;
  for (auto& [id, relay] : relays_) {
    // Where a server is not well it is lost, below, and its requests are asked elsewhere.
    if (relay.silent_for(options_.event_pause_s, now_s_)) relay.say_it_goes_on(now_s_);
    if (!relay.call() && now_s_ - relay.came_s >= options_.rest_wait_s &&
        policy_.waits_for_rest(id)) {
      tired.push_back(id);
    }
    if (!relay.call() || relay.paused()) continue;
    const RouteServer& server = server_at(relay);
    if (!relay.call()->connected()) {
      if (now_s_ - relay.asked_at_s() < options_.connect_s) continue;
      lost.emplace_back(id, fmt::format("no connection within {:g} s", options_.connect_s));
    } else if (server.health().unanswering() &&
               (!relay.begun() || now_s_ - relay.last_moved_s() >= options_.stalled_s)) {
      lost.emplace_back(id, server.trouble());
    } else if (options_.answer_s > 0 && now_s_ - relay.last_moved_s() >= options_.answer_s) {
      unanswered.push_back(id);
    }
  }
  for (const auto& [id, why] : lost) {
    const auto found = relays_.find(id);
    if (found != relays_.end()) lose(found->second, {Code::kUnavailable, why});
  }
  for (const plan::RouteId id : unanswered) {
    const auto found = relays_.find(id);
    if (found != relays_.end()) give_up_waiting(found->second);
  }
  for (const plan::RouteId id : tired) {
    const auto found = relays_.find(id);
    if (found != relays_.end()) refuse_for_now(found->second, shortest_rest_s(found->second));
  }
}

}  // namespace jige::api
