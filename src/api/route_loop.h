// RouterLoop: the loop behind Router (api/router.h). Internal to the router.
//
// Invariants: (1) a relay with a call is at the server that policy and speeds have it at.
//             (2) servers_ are those of the policy, behind every turn.
// Threads: as Router; what is not in Router is the loop's own thread's.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/route_relay.h"
#include "api/router.h"
#include "base/clock.h"
#include "plan/server_speed.h"

namespace jige::api {

class RouterLoop final : public Router {
 public:
  // Takes both descriptors.
  RouterLoop(RouterOptions options, int epoll_fd, int wake_fd);
  ~RouterLoop() override;

  void set_servers(std::vector<HttpPeer> peers) override;
  void answer(HttpRequest request, RouteFacts facts, std::shared_ptr<Responder> responder) override;
  void look(std::function<void(const RouterView&)> looker) override;
  int64_t open_count() const override { return open_count_; }
  void stop() override;

 private:
  using Relays = std::map<plan::RouteId, RouteRelay>;
  static constexpr double kRetryAfterS = 2;

  void hand_in(std::function<void()> work);
  void wake() const;
  void run();
  void take_turn();
  void watch(int fd, uint64_t key, short wanted) const;

  void change_servers(const std::vector<HttpPeer>& peers);
  void follow(RouteServer& server, const HttpPeer& peer) const;
  void look_at_servers();
  void move_probe(RouteServer& server);
  void watch_probe(const RouteServer& server) const;
  void note_state(RouteServer& server);
  void note_loads_and_speeds();
  void drop_gone_servers();

  void admit(plan::RouteId id, HttpRequest request, RouteFacts facts,
             std::shared_ptr<Responder> responder);
  void act_on(RouteRelay& relay, const plan::RouteDecision& decision);
  void ask(RouteRelay& relay, const plan::RouteDecision& decision);
  void call_server(RouteRelay& relay, std::optional<HttpWire> wire);
  void keep_connection(RouteRelay& relay);
  void move(plan::RouteId id);
  void note_progress(RouteRelay& relay, bool had_first);
  void note_answer(RouteServer& server, RouteRelay& relay) const;
  void go_on(plan::RouteId id);
  void lose(RouteRelay& relay, const Error& error);
  void give_up_waiting(RouteRelay& relay);
  void end_or_place_again(RouteRelay& relay, const std::string& why);
  ApiError lost_error(const RouteRelay& relay) const;
  void note_abandoned(RouteRelay& relay);
  void end_trial(RouteRelay& relay);
  void cancel(plan::RouteId id);
  void finish(RouteRelay& relay, plan::RoutePolicy::Ending ending);
  void look_at_relays();
  void place_waiting();
  RouterView view() const;
  RouteServer& server_at(const RouteRelay& relay) { return servers_.at(relay.server); }
  void place_again(RouteRelay& relay);
  void refuse_for_now(RouteRelay& relay, double retry_after_s);
  double shortest_rest_s(const RouteRelay& relay) const;
  std::string default_model() const;
  bool knows_all_models() const;
  void warn_of_differences(const RouteServer& server) const;

  const RouterOptions options_;
  plan::RoutePolicy policy_;
  plan::ServerSpeeds speeds_;
  const StopWatch watch_;
  double now_s_ = 0;
  double looked_s_ = -1, swept_s_ = 0;
  std::map<plan::RouteServerId, RouteServer> servers_;
  Relays relays_;
  size_t bodies_bytes_ = 0;
  RouterTotals totals_;

  const int epoll_fd_;
  const int wake_fd_;
  std::atomic<int64_t> open_count_{0};
  std::atomic<plan::RouteId> next_id_{1};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // guards the two below
  std::deque<std::function<void()>> inbox_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace jige::api
