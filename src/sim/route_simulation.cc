#include "sim/route_simulation.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <utility>

#include "base/check.h"

namespace jige::sim {
namespace {

constexpr double kNotYet = std::numeric_limits<double>::infinity();

// One server: an engine with one batch at a time.
struct SimulatedServer {
  SimulatedServer(const plan::ServeSchedulerOptions& options, uint64_t seed, double speed_now)
      : scheduler(options), noise(seed), speed(speed_now) {}

  plan::ServeScheduler scheduler;
  plan::ServerLoad load{{}};
  Rng noise;
  double speed;
  std::optional<plan::Batch> batch;  // under way
  double end_s = kNotYet;
  std::vector<double> token_s;  // of each item: when its tokens are told
  int64_t computed_tokens = 0;
  double busy_s = 0;
};

class RouteSimulation {
 public:
  explicit RouteSimulation(const RouteSimulationOptions& options)
      : options_(options), talk_(options.load), policy_(options.route), tell_at_s_(options.tell_s) {
    JIGE_CHECK(options.speeds.empty() || std::ssize(options.speeds) == options.server_count,
               "each server has a speed");
    for (int32_t i = 0; i < options.server_count; ++i) {
      const double speed = options.speeds.empty() ? 1 : options.speeds[static_cast<size_t>(i)];
      servers_.emplace_back(options.scheduler,
                            derive_key(options.load.seed, "noise", static_cast<uint64_t>(i)),
                            speed);
      const plan::RouteServerId id = policy_.add_server();
      policy_.set_models(id, {"model"});
      policy_.set_state(id, plan::ServerState::kUp);
      if (options.known_speeds == KnownSpeeds::kExact) policy_.set_speed(id, {speed, speed});
    }
  }

  Result<RouteSimulationResult> run() {
    for (int64_t user = 0; user < options_.load.user_count; ++user) begin_turn(user);
    for (;;) {
      if (options_.cancel && options_.cancel->load(std::memory_order_relaxed)) {
        return fail(Code::kCancelled, "by a signal");
      }
      for (SimulatedServer& server : servers_) {
        if (server.end_s <= now_s_) land(server);
      }
      while (const auto placed = policy_.next()) JIGE_DO(place(*placed));
      while (!due_.empty() && due_.top().first <= now_s_) {
        const int64_t user = due_.top().second;
        due_.pop();
        JIGE_DO(ask(user));
      }
      double next_s = due_.empty() ? kNotYet : due_.top().first;
      for (SimulatedServer& server : servers_) {
        launch(server);
        next_s = std::min(next_s, server.end_s);
      }
      if (next_s == kNotYet) break;
      if (options_.tell_s > 0) next_s = std::min(next_s, tell_at_s_);
      now_s_ = next_s;
      learn();
    }
    if (!asked_.empty()) {
      return fail(Code::kInternal, "{} requests are left and nothing can run", asked_.size());
    }
    for (const SimulatedServer& server : servers_) {
      result_.computed_tokens.push_back(server.computed_tokens);
      result_.busy_s.push_back(server.busy_s);
    }
    for (size_t id = 0; id < outcomes_.size(); ++id) {
      (by_others_[id] ? result_.other_outcomes : result_.outcomes)
          .push_back(std::move(outcomes_[id]));
    }
    return std::move(result_);
  }

 private:
  struct Asked {
    int64_t user = 0;
    Turn turn;
    int64_t told = 0;  // tokens of the answer
  };
  using Due = std::pair<double, int64_t>;  // when, who

  void begin_turn(int64_t user) {
    const std::optional<Turn> turn = talk_.next(user);
    if (!turn) return;
    due_.emplace(now_s_ + turn->think_s, user);
    turns_[user] = *turn;
  }

  Status ask(int64_t user) {
    const auto id = static_cast<plan::RequestId>(outcomes_.size());
    const Turn& turn = turns_.at(user);
    plan::RequestSpec spec{.id = id,
                           .prompt = Conversations::prompt(turn, options_.load.seed),
                           .max_new_tokens = static_cast<int32_t>(turn.answer_tokens)};
    outcomes_.push_back({.start_s = now_s_, .prompt_tokens = turn.prompt_tokens});
    by_others_.push_back(user >= options_.load.user_count - options_.other_users);
    result_.prompt_tokens += turn.prompt_tokens;
    asked_[id] = {.user = user, .turn = turn};
    if (by_others_.back()) return servers_.front().scheduler.arrive(spec);
    // What a client allows is no word on how long its answer gets.
    const plan::RouteDecision decision = policy_.arrive(
        {.id = id, .prefix = chain_of(spec.prompt), .prompt_tokens = turn.prompt_tokens});
    specs_[id] = std::move(spec);
    if (decision.verdict == plan::RouteVerdict::kWait) return {};
    return place({.id = id, .decision = decision});
  }

  Status place(const plan::PlacedRequest& placed) {
    if (placed.decision.verdict != plan::RouteVerdict::kServer) {
      return fail(Code::kExhausted, "request {}: more wait for a server than may", placed.id);
    }
    const plan::RouteDecision& decision = placed.decision;
    result_.believed_tokens += decision.known_tokens;
    const auto spec = specs_.extract(placed.id);
    speeds_.asked(placed.id, decision.server, now_s_,
                  {.prompt_tokens = std::ssize(spec.mapped().prompt) - decision.known_tokens,
                   .unread_tokens = decision.unread_tokens});
    return servers_[static_cast<size_t>(decision.server)].scheduler.arrive(spec.mapped());
  }

  // What the router hears and finds out, as time goes on.
  void learn() {
    const bool tells = options_.tell_s > 0 && now_s_ >= tell_at_s_;
    if (tells) tell_at_s_ = now_s_ + options_.tell_s;
    for (plan::RouteServerId id = 0; id < options_.server_count; ++id) {
      SimulatedServer& server = servers_[static_cast<size_t>(id)];
      if (tells) {
        server.load.asked(speeds_.sequences(id));
        server.load.told(now_s_,
                         {.running = static_cast<double>(server.scheduler.running_count()),
                          .waiting = static_cast<double>(server.scheduler.waiting_count())});
      }
      if (options_.tell_s > 0) {
        const plan::OtherRequests others = server.load.others(now_s_);
        policy_.set_others(id, others);
        speeds_.set_others(id, now_s_, others.running);
      }
    }
    if (options_.known_speeds != KnownSpeeds::kLearned || !speeds_.update(now_s_)) return;
    for (plan::RouteServerId id = 0; id < options_.server_count; ++id) {
      policy_.set_speed(id, speeds_.speed(id));
    }
  }

  std::vector<uint64_t> chain_of(const std::vector<int32_t>& tokens) const {
    const auto block = static_cast<size_t>(options_.route.block_tokens);
    std::vector<uint64_t> chain;
    plan::PrefixHash hash = plan::prefix_seed(0);
    for (size_t at = 0; at + block <= tokens.size(); at += block) {
      hash = plan::extend_prefix(hash, std::span(tokens).subspan(at, block));
      chain.push_back(hash.low);
    }
    return chain;
  }

  void launch(SimulatedServer& server) {
    if (server.batch) return;
    server.batch = server.scheduler.next_batch();
    if (!server.batch) return;
    const double step_s =
        options_.step.draw_seconds(*server.batch, server.token_s, server.noise) / server.speed;
    for (double& one_s : server.token_s) one_s = now_s_ + one_s / server.speed;
    server.end_s = now_s_ + step_s;
    server.busy_s += step_s;
  }

  void land(SimulatedServer& server) {
    const plan::Batch batch = *std::exchange(server.batch, std::nullopt);
    server.end_s = kNotYet;
    server.computed_tokens += batch.token_count();
    std::vector<plan::SampledNext> sampled;
    for (size_t i = 0; i < batch.items.size(); ++i) {
      const plan::WorkItem& item = batch.items[i];
      if (!item.samples) continue;
      const Asked& asked = asked_.at(item.request);
      const int64_t position = item.context_count + std::ssize(item.tokens);
      sampled.push_back({.request = item.request,
                         .token = Conversations::token(asked.turn, position, options_.load.seed)});
      tell_token(server, item.request, server.token_s[i]);
    }
    for (const plan::RequestId id : server.scheduler.complete(batch.id, sampled)) finish(id);
  }

  void tell_token(const SimulatedServer& server, plan::RequestId id, double token_s) {
    RequestOutcome& outcome = outcomes_[static_cast<size_t>(id)];
    Asked& asked = asked_.at(id);
    if (asked.told++ == 0) {
      outcome.first_token_s = token_s;
      result_.cached_tokens += server.scheduler.counters(id).cached_tokens;
    } else {
      outcome.gaps_s.push_back(token_s - outcome.end_s);
    }
    outcome.output_tokens = asked.told;
    outcome.end_s = token_s;
    policy_.progress(id, asked.told);
    speeds_.progress(id, token_s, asked.told);
  }

  void finish(plan::RequestId id) {
    const int64_t user = asked_.at(id).user;
    asked_.erase(id);
    policy_.finished(id, plan::RoutePolicy::Ending::kWhole);
    speeds_.finished(id, now_s_, plan::SpeedEnding::kCounts);
    begin_turn(user);
  }

  const RouteSimulationOptions& options_;
  Conversations talk_;
  plan::RoutePolicy policy_;
  plan::ServerSpeeds speeds_{{}};
  double tell_at_s_;
  std::deque<SimulatedServer> servers_;
  RouteSimulationResult result_;
  std::vector<RequestOutcome> outcomes_;  // by arrival
  std::vector<bool> by_others_;
  std::map<int64_t, Turn> turns_;  // that users are about to ask
  std::map<plan::RequestId, Asked> asked_;
  std::map<plan::RequestId, plan::RequestSpec> specs_;  // of those that are at no server yet
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  double now_s_ = 0;
};

}  // namespace

Result<RouteSimulationResult> simulate_route(const RouteSimulationOptions& options) {
  return RouteSimulation(options).run();
}

}  // namespace jige::sim
