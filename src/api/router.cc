#include "api/router.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/api_error.h"
#include "api/field_reader.h"
#include "api/route_loop.h"
#include "base/log.h"

namespace jige::api {
namespace {

constexpr int kTurnMs = 20;  // between looks around
constexpr int kEventsAtOnce = 256;
constexpr uint64_t kWakeKey = 0;

// What a descriptor that is watched belongs to: a request by its id, a probe by its server's
// (RouterLoop::watch_probe).
uint64_t relay_key(plan::RouteId id) { return static_cast<uint64_t>(id) * 2; }

}  // namespace

RouterLoop::RouterLoop(RouterOptions options, int epoll_fd, int wake_fd)
    : options_(std::move(options)),
      policy_(options_.policy),
      speeds_({.answer_cost = static_cast<double>(options_.policy.answer_cost)}),
      epoll_fd_(epoll_fd),
      wake_fd_(wake_fd),
      thread_([this] { run(); }) {}

RouterLoop::~RouterLoop() {
  stop();
  close(epoll_fd_);
  close(wake_fd_);
}

void RouterLoop::set_servers(std::vector<HttpPeer> peers) {
  hand_in([this, peers = std::move(peers)] { change_servers(peers); });
}

void RouterLoop::look(std::function<void(const RouterView&)> looker) {
  hand_in([this, looker = std::move(looker)] { looker(view()); });
}

void RouterLoop::hand_in(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    inbox_.push_back(std::move(work));
    if (inbox_.size() > 1) return;  // somebody has waked it already
  }
  wake();
}

void RouterLoop::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

void RouterLoop::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  wake();
  thread_.join();
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(inbox_);
  }
  relays_.clear();  // those who wait are told that they were dropped
}

void RouterLoop::run() {
  while (!stopping_) {
    try {
      take_turn();
    } catch (const std::exception& error) {
      log_error("the router: {}", error.what());  // only memory runs out here
    }
  }
}

void RouterLoop::take_turn() {
  epoll_event events[kEventsAtOnce];
  const int count = epoll_wait(epoll_fd_, events, kEventsAtOnce, kTurnMs);
  if (options_.before_turn) options_.before_turn();
  now_s_ = watch_.seconds();
  // Before the inbox is looked at: who hands something in behind it wakes us again.
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = read(wake_fd_, &ignored, sizeof ignored);
  std::deque<std::function<void()>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(inbox_);
  }
  for (const auto& one : work) one();
  for (int i = 0; i < count; ++i) {
    const uint64_t key = events[i].data.u64;
    if (key == kWakeKey) continue;
    if (key % 2 == 1) {
      const auto found = servers_.find(static_cast<plan::RouteServerId>(key / 2));
      if (found != servers_.end()) move_probe(found->second);
    } else {
      move(static_cast<plan::RouteId>(key / 2));
    }
  }
  if (now_s_ - looked_s_ >= kTurnMs * 1e-3) {
    looked_s_ = now_s_;
    look_at_servers();
    look_at_relays();
  }
  place_waiting();
}

// The descriptor as it is to be watched now; a closed one is forgotten by the kernel.
void RouterLoop::watch(int fd, uint64_t key, short wanted) const {
  epoll_event event{};
  event.events = static_cast<uint32_t>(wanted);  // POLLIN and EPOLLIN are one, and so on
  event.data.u64 = key;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) == 0) return;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
}

void RouterLoop::answer(HttpRequest request, RouteFacts facts,
                        std::shared_ptr<Responder> responder) {
  const plan::RouteId id = next_id_++;
  ++open_count_;
  hand_in([this, id, request = std::move(request), facts = std::move(facts), responder]() mutable {
    admit(id, std::move(request), std::move(facts), std::move(responder));
  });
  // Behind it: a client that has gone already says so at once.
  responder->on_gone([this, id] { hand_in([this, id] { cancel(id); }); });
}

void RouterLoop::admit(plan::RouteId id, HttpRequest request, RouteFacts facts,
                       std::shared_ptr<Responder> responder) {
  const size_t body_bytes = request.body.size();
  RouteRelay& relay =
      relays_.try_emplace(id, id, std::move(request), std::move(responder)).first->second;
  relay.prompt_tokens = facts.prompt_tokens;
  relay.sequences = facts.sequences;
  relay.came_s = now_s_;
  relay.stream = facts.stream;
  relay.model = facts.model;
  relay.counted_bytes = body_bytes;
  bodies_bytes_ += body_bytes;
  if (bodies_bytes_ > options_.bodies_bytes_max) {
    ++totals_.queue_full;
    relay.refuse({.status = 429,
                  .message = "too many large requests are under way; try again",
                  .code = "queue_full",
                  .retry_after_s = kRetryAfterS});
    return finish(relay, plan::RoutePolicy::Ending::kGivenUp);
  }
  act_on(relay, policy_.arrive({.id = id,
                                .model = facts.model.empty() ? default_model() : facts.model,
                                .prefix = std::move(facts.prefix),
                                .prompt_tokens = facts.prompt_tokens,
                                .answer_tokens_max = facts.answer_tokens_max}));
}

void RouterLoop::act_on(RouteRelay& relay, const plan::RouteDecision& decision) {
  ApiError error{.status = 503, .retry_after_s = kRetryAfterS};
  switch (decision.verdict) {
    case plan::RouteVerdict::kServer:
      return ask(relay, decision);
    case plan::RouteVerdict::kWait:
      return;
    case plan::RouteVerdict::kNoModel:
      if (!knows_all_models()) return refuse_for_now(relay, kRetryAfterS);
      ++totals_.no_model;
      error = {
          .status = 404,
          .message = fmt::format("the model {} is not served here", shown_value(Json(relay.model))),
          .param = "model",
          .code = "model_not_found"};
      break;
    case plan::RouteVerdict::kNoServer:
      return refuse_for_now(relay, kRetryAfterS);
    case plan::RouteVerdict::kFull:
      ++totals_.queue_full;
      error.status = 429;
      error.message = "too many requests wait for a server; try again";
      error.code = "queue_full";
      break;
    case plan::RouteVerdict::kRefused:
      if (relay.unanswered) return refuse_for_now(relay, kRetryAfterS);
      ++totals_.refused;
      error.message = "no server could be reached; try again";
      error.code = "no_server";
      break;
  }
  relay.refuse(error);
  finish(relay, plan::RoutePolicy::Ending::kGivenUp);
}

void RouterLoop::refuse_for_now(RouteRelay& relay, double retry_after_s) {
  ++(relay.unanswered ? totals_.lost : totals_.no_server);
  relay.refuse(
      relay.unanswered
          ? lost_error(relay)
          : ApiError{.status = 503,
                     .message = "no server that has the model takes requests now; try again",
                     .code = "no_server",
                     .retry_after_s = retry_after_s});
  finish(relay, plan::RoutePolicy::Ending::kGivenUp);
}

void RouterLoop::ask(RouteRelay& relay, const plan::RouteDecision& decision) {
  RouteServer& server = servers_.at(decision.server);
  if (std::exchange(relay.server, decision.server) >= 0) ++server.counts.retries;
  ++server.counts.requests;
  server.counts.prompt_tokens += relay.prompt_tokens;
  server.counts.known_tokens += decision.known_tokens;
  speeds_.asked(relay.id(), decision.server, now_s_,
                {.prompt_tokens = relay.prompt_tokens - decision.known_tokens,
                 .unread_tokens = decision.unread_tokens,
                 .sequences = relay.sequences});
  server.load.own_is(speeds_.sequences(decision.server));
  relay.asked_afresh = false;
  relay.is_trial = server.health().request_begun(now_s_);
  if (relay.is_trial) note_state(server);
  call_server(relay, server.idle.take(now_s_));
}

void RouterLoop::call_server(RouteRelay& relay, std::optional<HttpWire> wire) {
  RouteServer& server = server_at(relay);
  ++(wire ? server.counts.reused : server.counts.opened);
  const Status asked = relay.ask(server.peer(), std::move(wire), now_s_);
  if (!asked) return lose(relay, asked.error());
  watch(relay.call()->fd(), relay_key(relay.id()), relay.call()->wanted_events());
}

// The connection of an answer that is complete, for other requests.
void RouterLoop::keep_connection(RouteRelay& relay) {
  RouteServer& server = server_at(relay);
  std::optional<HttpWire> wire = relay.call()->take_wire();
  if (!wire || server.leaving) return;
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, wire->fd(), nullptr);
  server.idle.put(std::move(*wire), now_s_);
}

void RouterLoop::move(plan::RouteId id) {
  const auto found = relays_.find(id);
  if (found == relays_.end() || !found->second.call() || found->second.paused()) return;
  RouteRelay& relay = found->second;
  const bool had_first = relay.has_first_bytes();
  const size_t received_bytes = relay.call()->received_bytes();
  auto moved = relay.move(now_s_, [this, id] { hand_in([this, id] { go_on(id); }); });
  note_progress(relay, had_first);
  RouteServer& server = server_at(relay);
  if (relay.call()->received_bytes() != received_bytes) server.health().request_answered();
  if (!moved && relay.call()->ended_unused()) {
    // The server need not have seen the request, and nobody has seen an answer.
    ++server.counts.stale;
    relay.asked_afresh = true;
    return call_server(relay, std::nullopt);
  }
  if (!moved) return lose(relay, moved.error());
  if (*moved != RouteRelay::State::kOpen) keep_connection(relay);
  if (*moved == RouteRelay::State::kDone) {
    ++totals_.answered;
    note_answer(server, relay);
    return finish(relay, plan::RoutePolicy::Ending::kWhole);
  }
  if (*moved == RouteRelay::State::kRefused) {
    ++server.counts.refused;
    server.health().request_refused(now_s_, relay.retry_after_s());
    note_state(server);
    return place_again(relay);
  }
  if (relay.paused()) {  // a peer that hangs up would wake us all the time
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, relay.call()->fd(), nullptr);
  } else {
    watch(relay.call()->fd(), relay_key(id), relay.call()->wanted_events());
  }
}

void RouterLoop::note_progress(RouteRelay& relay, bool had_first) {
  if (!had_first && relay.has_first_bytes()) {
    server_at(relay).first_byte_seconds.observe(relay.first_byte_seconds());
  }
  if (!relay.begun()) return;
  bodies_bytes_ -= std::exchange(relay.counted_bytes, 0);
  policy_.progress(relay.id(), relay.answer_tokens());
  speeds_.progress(relay.id(), now_s_, relay.answer_tokens());
}

void RouterLoop::note_answer(RouteServer& server, RouteRelay& relay) const {
  const int status = relay.call()->response().status();
  ++(status < 400   ? server.counts.well
     : status < 500 ? server.counts.client_errors
                    : server.counts.server_errors);
  server.answer_seconds.observe(now_s_ - relay.asked_at_s());
}

void RouterLoop::go_on(plan::RouteId id) {
  const auto found = relays_.find(id);
  if (found == relays_.end() || !found->second.paused()) return;
  found->second.go_on(now_s_);
  move(id);
}

void RouterLoop::place_again(RouteRelay& relay) {
  relay.drop_call();
  end_trial(relay);
  speeds_.finished(relay.id(), now_s_, plan::SpeedEnding::kIgnored);
  const plan::RouteDecision decision = policy_.refused(relay.id());
  drop_gone_servers();  // one that leaves may have had no other
  act_on(relay, decision);
}

void RouterLoop::cancel(plan::RouteId id) {
  const auto found = relays_.find(id);
  if (found == relays_.end()) return;
  ++totals_.cancelled;
  if (found->second.call()) {
    ++server_at(found->second).counts.cancelled;
    note_abandoned(found->second);
  }
  finish(found->second, plan::RoutePolicy::Ending::kGivenUp);
}

void RouterLoop::finish(RouteRelay& relay, plan::RoutePolicy::Ending ending) {
  const plan::RouteId id = relay.id();
  end_trial(relay);
  // A client that is slow makes its server look slow.
  const bool counts = ending == plan::RoutePolicy::Ending::kWhole && !relay.ever_paused();
  speeds_.finished(id, now_s_, counts ? plan::SpeedEnding::kCounts : plan::SpeedEnding::kIgnored);
  policy_.finished(id, ending);
  bodies_bytes_ -= relay.counted_bytes;
  relays_.erase(id);
  --open_count_;
  drop_gone_servers();
}

void RouterLoop::place_waiting() {
  while (const auto placed = policy_.next()) {
    const auto found = relays_.find(placed->id);
    if (found != relays_.end()) act_on(found->second, placed->decision);
  }
}

Result<std::unique_ptr<Router>> Router::start(RouterOptions options) {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  const int wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeKey;
  if (epoll_fd < 0 || wake_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) != 0) {
    const int error = errno;
    if (epoll_fd >= 0) close(epoll_fd);
    if (wake_fd >= 0) close(wake_fd);
    return fail(Code::kExhausted, "the router: {}", std::strerror(error));
  }
  return std::make_unique<RouterLoop>(std::move(options), epoll_fd, wake_fd);
}

}  // namespace jige::api
