#include "plan/route_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"

namespace jige::plan {
namespace {

using Ending = RoutePolicy::Ending;

std::vector<uint64_t> chain_of(uint64_t text, size_t blocks) {
  std::vector<uint64_t> chain;
  for (size_t i = 0; i < blocks; ++i) chain.push_back(derive_key(text, "block", i));
  return chain;
}

// What the header says, in plain words and slowly: every number is made anew from what happened.
class PlainRouter {
 public:
  struct Server {
    ServerState state = ServerState::kDown;
    bool leaving = false;
    std::set<std::string> models;
    OtherRequests others;
    RouteSpeed speed;
    int64_t chosen_at = 0;
    std::vector<std::vector<uint64_t>> seen;  // chains, since it came up
  };
  struct Request {
    RouteRequest spec;
    RouteServerId server = -1;
    int64_t known = 0, expected = 0, answered = 0;
    bool began = false;
    std::set<RouteServerId> refused_by;
  };

  explicit PlainRouter(RouteOptions options)
      : options_(options), mean(options.answer_tokens), prompt_mean(options.prompt_tokens) {}

  bool has(const Server& server, const Request& request) const {
    return !server.leaving &&
           (request.spec.model.empty() ? !server.models.empty()
                                       : server.models.contains(request.spec.model));
  }
  // In tokens of prompts: what is to be read, and what is to be said.
  int64_t prompts(RouteServerId id) const {
    int64_t sum = std::llround(servers.at(id).others.waiting * prompt_mean);
    for (const auto& [key, one] : requests) {
      if (one.server == id && !one.began) sum += one.spec.prompt_tokens - one.known;
    }
    return sum;
  }
  int64_t answers(RouteServerId id) const {
    const OtherRequests& others = servers.at(id).others;
    int64_t sum = std::llround((others.waiting + others.running / 2) * mean);
    for (const auto& [key, one] : requests) {
      if (one.server != id || one.spec.answer_tokens_max == 0) continue;
      sum += std::max(one.expected - one.answered, options_.answer_floor);
    }
    return options_.answer_cost * sum;
  }
  int64_t load(RouteServerId id) const { return prompts(id) + answers(id); }
  double time(RouteServerId id, int64_t more_prompts = 0, int64_t more_answers = 0) const {
    const RouteSpeed& speed = servers.at(id).speed;
    return static_cast<double>(prompts(id) + more_prompts) / speed.prompt +
           static_cast<double>(answers(id) + more_answers) / speed.answer;
  }
  int64_t expected(const Request& request) const {
    const int64_t most = request.spec.answer_tokens_max;
    return most < 0 ? std::llround(mean) : std::min<int64_t>(std::llround(mean), most);
  }
  // With the request, of whose prompt so much need not be read.
  double time_with(RouteServerId id, const Request& request, int64_t known) const {
    const int64_t answer = request.spec.answer_tokens_max == 0
                               ? 0
                               : std::max(expected(request), options_.answer_floor);
    return time(id, request.spec.prompt_tokens - known, options_.answer_cost * answer);
  }
  int64_t count(RouteServerId id) const {
    return std::ranges::count_if(requests,
                                 [&](const auto& entry) { return entry.second.server == id; });
  }
  int64_t known(const Server& server, const Request& request) const {
    size_t most = 0;
    for (const auto& chain : server.seen) {
      size_t same = 0;
      while (same < std::min(chain.size(), request.spec.prefix.size()) &&
             chain[same] == request.spec.prefix[same]) {
        ++same;
      }
      most = std::max(most, same);
    }
    return std::min(static_cast<int64_t>(most) * options_.block_tokens, request.spec.prompt_tokens);
  }
  double bound(const Request& request) const {
    double sum = 0, all = 0;
    for (const auto& [id, server] : servers) {
      if (server.state == ServerState::kDown || !has(server, request)) continue;
      sum += time(id);
      ++all;
    }
    return options_.imbalance_ratio * (all > 0 ? sum / all : 0) + options_.imbalance_slack;
  }
  bool all_rest(const Request& request) const {
    return std::ranges::none_of(servers, [&](const auto& entry) {
      return entry.second.state == ServerState::kUp && has(entry.second, request) &&
             !request.refused_by.contains(entry.first);
    });
  }
  std::vector<RouteServerId> open(const Request& request) const {
    std::vector<RouteServerId> ids;
    for (const auto& [id, server] : servers) {
      if (server.state == ServerState::kUp && has(server, request) &&
          !request.refused_by.contains(id) && count(id) < options_.requests_max) {
        ids.push_back(id);
      }
    }
    return ids;
  }
  RouteDecision decide(const Request& request) const {
    std::optional<std::tuple<double, int64_t, RouteServerId>> best;
    for (const RouteServerId id : open(request)) {
      const Server& server = servers.at(id);
      double cost = options_.rule == RouteRule::kRoundRobin ? 0 : time_with(id, request, 0);
      if (options_.rule == RouteRule::kPrefix && time(id) <= bound(request)) {
        const int64_t there = known(server, request);
        cost = time_with(id, request, there) -
               static_cast<double>((options_.known_weight - 1) * there);
      }
      const auto key = std::tuple(cost, server.chosen_at, id);
      if (!best || key < *best) best = key;
    }
    if (best) {
      const RouteServerId id = std::get<2>(*best);
      const bool knows = options_.rule == RouteRule::kPrefix;
      return {.verdict = RouteVerdict::kServer,
              .server = id,
              .known_tokens = knows ? known(servers.at(id), request) : 0,
              .unread_tokens = prompts(id)};
    }
    bool has_model = false, may_come = false;
    for (const auto& [id, server] : servers) {
      has_model = has_model || has(server, request);
      may_come = may_come || (has(server, request) && server.state != ServerState::kDown &&
                              !request.refused_by.contains(id));
    }
    if (may_come) return {.verdict = RouteVerdict::kWait};
    if (!request.refused_by.empty()) return {.verdict = RouteVerdict::kRefused};
    return {.verdict = has_model ? RouteVerdict::kNoServer : RouteVerdict::kNoModel};
  }
  void place(Request& request, const RouteDecision& decision) {
    request.server = decision.server;
    request.known = decision.known_tokens;
    request.expected = expected(request);
    prompt_mean +=
        (static_cast<double>(request.spec.prompt_tokens - request.known) - prompt_mean) / 64;
    request.answered = 0;
    request.began = false;
    servers.at(decision.server).chosen_at = ++decisions;
    servers.at(decision.server).seen.push_back(request.spec.prefix);
  }

  RouteOptions options_;
  std::map<RouteServerId, Server> servers;
  std::map<RouteId, Request> requests;
  double mean, prompt_mean;
  int64_t decisions = 0;
};

// Random events to a policy and to the plain one beside it, which says what must be decided.
class Walk {
 public:
  Walk(uint64_t seed, RouteRule rule) : rng_(derive_key(seed, "route walk")) {
    options_.rule = rule;
    options_.requests_max = 1 + static_cast<int32_t>(rng_.below(6));
    options_.waiting_max = static_cast<int32_t>(rng_.below(5));
    options_.block_tokens = 4;
    options_.answer_cost = 1 + static_cast<int64_t>(rng_.below(8));
    options_.known_weight = 1 + static_cast<int64_t>(rng_.below(6));
    options_.answer_floor = 2;
    options_.answer_tokens = 20;
    options_.prompt_tokens = 30;
    options_.imbalance_ratio = 1 + rng_.uniform();
    options_.imbalance_slack = static_cast<double>(rng_.below(300));
    policy_.emplace(options_);
    plain_.emplace(options_);
    const uint64_t servers = 1 + rng_.below(4);
    for (uint64_t i = 0; i < servers; ++i) add_server();
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      step();
      settle();
      policy_->check_invariants();
      for (const auto& [id, server] : plain_->servers) {
        ASSERT_TRUE(policy_->has_server(id));
        ASSERT_EQ(policy_->status(id).work, plain_->load(id));
        ASSERT_EQ(policy_->status(id).requests, plain_->count(id));
      }
      ASSERT_LE(policy_->waiting_count(), options_.waiting_max + refused_waiting_);
      for (const auto& [id, one] : plain_->requests) {
        ASSERT_EQ(policy_->waits_for_rest(id), one.server < 0 && plain_->all_rest(one));
      }
    }
  }

  // Everything that was decided, to be compared between two walks.
  const std::string& log() const { return log_; }

 private:
  void add_server() {
    const RouteServerId id = policy_->add_server();
    PlainRouter::Server& server = plain_->servers[id];
    server.models = {"base"};
    if (rng_.below(2) == 0) server.models.insert("poet");
    policy_->set_models(id, {server.models.begin(), server.models.end()});
    set_state(id, ServerState::kUp);
  }
  void set_state(RouteServerId id, ServerState state) {
    policy_->set_state(id, state);
    plain_->servers.at(id).state = state;
    if (state == ServerState::kDown) plain_->servers.at(id).seen.clear();
  }
  void forget_left() {
    std::erase_if(plain_->servers, [&](const auto& entry) {
      return entry.second.leaving && plain_->count(entry.first) == 0;
    });
  }

  void expect_same(const RouteDecision& got, const RouteDecision& want) {
    ASSERT_EQ(got.verdict, want.verdict) << log_;
    ASSERT_EQ(got.server, want.server) << log_;
    if (got.verdict != RouteVerdict::kServer) return;
    ASSERT_EQ(got.known_tokens, want.known_tokens) << log_;
    ASSERT_EQ(got.unread_tokens, want.unread_tokens) << log_;
    log_ += std::to_string(got.server) + " ";
  }
  // Invariants (5) and (6) of the header, before the request is counted at its server.
  void expect_allowed(const PlainRouter::Request& request, const RouteDecision& decision) {
    if (decision.verdict != RouteVerdict::kServer) return;
    const std::vector<RouteServerId> open = plain_->open(request);
    ASSERT_NE(std::ranges::find(open, decision.server), open.end()) << log_;
    if (options_.rule != RouteRule::kPrefix) return;
    double least = plain_->time_with(open.front(), request, 0);
    for (const RouteServerId id : open) {
      least = std::min(least, plain_->time_with(id, request, 0));
    }
    ASSERT_TRUE(plain_->time_with(decision.server, request, 0) == least ||
                plain_->time(decision.server) <= plain_->bound(request))
        << log_;
  }

  void arrive() {
    PlainRouter::Request request;
    request.spec.id = next_++;
    const uint64_t kind = rng_.below(4);
    request.spec.model = kind == 0 ? "" : kind == 1 ? "poet" : kind == 2 ? "none" : "base";
    request.spec.prefix = chain_of(rng_.below(4), rng_.below(12));
    request.spec.prompt_tokens = std::ssize(request.spec.prefix) * options_.block_tokens + 1 +
                                 static_cast<int64_t>(rng_.below(30));
    request.spec.answer_tokens_max = static_cast<int64_t>(rng_.below(60)) - 1;
    RouteDecision want = plain_->decide(request);
    if (want.verdict == RouteVerdict::kWait && waiting_.size() >= waiting_room()) {
      want.verdict = RouteVerdict::kFull;
    }
    const RouteDecision got = policy_->arrive(request.spec);
    expect_allowed(request, got);
    expect_same(got, want);
    take(request, got, /*front=*/false);
  }
  size_t waiting_room() const { return static_cast<size_t>(options_.waiting_max); }

  void take(PlainRouter::Request request, const RouteDecision& decision, bool front) {
    const RouteId id = request.spec.id;
    if (decision.verdict == RouteVerdict::kServer) {
      plain_->place(request, decision);
    } else if (decision.verdict == RouteVerdict::kWait) {
      waiting_.insert(front ? waiting_.begin() : waiting_.end(), id);
      refused_waiting_ += front ? 1 : 0;
    } else {
      return;
    }
    plain_->requests[id] = std::move(request);
  }

  RouteId any_placed() {
    std::vector<RouteId> placed;
    for (const auto& [id, one] : plain_->requests) {
      if (one.server >= 0) placed.push_back(id);
    }
    return placed.empty() ? -1 : placed[rng_.below(placed.size())];
  }
  RouteServerId any_server() {
    auto at = plain_->servers.begin();
    std::advance(at, static_cast<int64_t>(rng_.below(plain_->servers.size())));
    return at->first;
  }

  void step() {
    const uint64_t what = rng_.below(20);
    if (what < 7 || plain_->servers.empty()) return arrive();
    if (what < 9) return change_server();
    if (what == 9) return add_server();
    const RouteId id = any_placed();
    if (id < 0) return;
    PlainRouter::Request& request = plain_->requests[id];
    if (what < 11) {
      PlainRouter::Request again = request;
      plain_->requests.erase(id);
      again.refused_by.insert(again.server);
      again.server = -1;
      forget_left();
      const RouteDecision want = plain_->decide(again);
      const RouteDecision got = policy_->refused(id);
      expect_allowed(again, got);
      expect_same(got, want);
      take(std::move(again), got, /*front=*/true);
    } else if (what < 13) {
      policy_->began(id);
      request.began = true;
    } else if (what < 16) {
      request.began = true;
      request.answered += static_cast<int64_t>(rng_.below(9));
      policy_->progress(id, request.answered);
    } else {
      finish(id);
    }
  }

  void finish(RouteId id) {
    const bool whole = rng_.below(2) == 0;
    const PlainRouter::Request& request = plain_->requests[id];
    if (whole && request.answered > 0) {
      plain_->mean += (static_cast<double>(request.answered) - plain_->mean) / 64;
    }
    policy_->finished(id, whole ? Ending::kWhole : Ending::kGivenUp);
    plain_->requests.erase(id);
    forget_left();
  }

  void change_server() {
    const RouteServerId id = any_server();
    const uint64_t what = rng_.below(9);
    if (what == 8) {
      // Powers of two, so that both reckon alike to the last bit.
      const double speeds[] = {0.25, 0.5, 1, 2, 4};
      PlainRouter::Server& server = plain_->servers.at(id);
      server.speed = {.prompt = speeds[rng_.below(5)], .answer = speeds[rng_.below(5)]};
      policy_->set_speed(id, server.speed);
    } else if (what == 0) {
      policy_->leave(id);
      plain_->servers.at(id).leaving = true;
      forget_left();
    } else if (what == 1) {
      OtherRequests& others = plain_->servers.at(id).others;
      others = {.running = rng_.uniform() * 3, .waiting = rng_.uniform() * 2};
      policy_->set_others(id, others);
    } else {
      set_state(id, what < 5   ? ServerState::kUp
                    : what < 7 ? ServerState::kResting
                               : ServerState::kDown);
    }
  }

  // Those who waited and need not any more, in the order in which they waited.
  void settle() {
    forget_left();
    for (;;) {
      const auto next = policy_->next();
      auto at = std::ranges::find_if(waiting_, [&](RouteId id) {
        return plain_->decide(plain_->requests.at(id)).verdict != RouteVerdict::kWait;
      });
      ASSERT_EQ(next.has_value(), at != waiting_.end()) << log_;
      if (!next) return;
      ASSERT_EQ(next->id, *at) << log_;
      waiting_.erase(at);
      PlainRouter::Request request = plain_->requests.at(next->id);
      plain_->requests.erase(next->id);
      expect_allowed(request, next->decision);
      expect_same(next->decision, plain_->decide(request));
      take(std::move(request), next->decision, /*front=*/false);
    }
  }

  Rng rng_;
  RouteOptions options_;
  std::optional<RoutePolicy> policy_;
  std::optional<PlainRouter> plain_;
  std::vector<RouteId> waiting_;
  int32_t refused_waiting_ = 0;
  RouteId next_ = 1;
  std::string log_;
};

TEST(RoutePolicy, DecidesAsThePlainOneUnderRandomEvents) {
  for (const RouteRule rule : kRouteRules) {
    for (uint64_t seed = 0; seed < 50 && !HasFatalFailure(); ++seed) {
      SCOPED_TRACE(std::string(route_rule_name(rule)) + ", seed " + std::to_string(seed));
      Walk(seed, rule).run(120);
    }
  }
}

TEST(RoutePolicy, DecidesTheSameAgain) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Walk first(seed, RouteRule::kPrefix), second(seed, RouteRule::kPrefix);
    first.run(200);
    second.run(200);
    EXPECT_FALSE(first.log().empty());
    EXPECT_EQ(first.log(), second.log());
  }
}

RoutePolicy servers_up(RouteOptions options, int count) {
  RoutePolicy policy(options);
  for (int i = 0; i < count; ++i) {
    const RouteServerId id = policy.add_server();
    policy.set_models(id, {"base"});
    policy.set_state(id, ServerState::kUp);
  }
  return policy;
}

TEST(RoutePolicy, KeepsConversationsWhereTheirBeginningIs) {
  RoutePolicy policy = servers_up({}, 3);
  std::map<uint64_t, RouteServerId> homes;
  RouteId id = 0;
  for (size_t turn = 1; turn <= 5; ++turn) {
    for (uint64_t user = 0; user < 9; ++user) {
      const auto blocks = static_cast<int64_t>(turn * 20);
      const RouteDecision decision = policy.arrive(
          {.id = ++id, .prefix = chain_of(user, turn * 20), .prompt_tokens = blocks * 32 + 5});
      ASSERT_EQ(decision.verdict, RouteVerdict::kServer);
      if (turn == 1) homes[user] = decision.server;
      EXPECT_EQ(decision.server, homes[user]);
      EXPECT_EQ(decision.known_tokens, (blocks - 20) * 32);
      policy.finished(id, Ending::kWhole);
    }
  }
}

// Everybody begins alike: as soon as its server has more than the bound others help.
TEST(RoutePolicy, DoesNotBuryAServerUnderOneBeginning) {
  const RouteOptions options{.imbalance_ratio = 1.5, .imbalance_slack = 2000};
  RoutePolicy policy = servers_up(options, 4);
  const std::vector<uint64_t> prefix = chain_of(7, 300);
  std::map<RouteServerId, int> requests;
  for (RouteId id = 1; id <= 200; ++id) {
    const RouteDecision decision =
        policy.arrive({.id = id, .prefix = prefix, .prompt_tokens = 300 * 32 + 10});
    ASSERT_EQ(decision.verdict, RouteVerdict::kServer);
    ++requests[decision.server];
    policy.began(id);
  }
  ASSERT_EQ(requests.size(), 4U);
  int64_t most = 0, sum = 0;
  for (const auto& [id, count] : requests) {
    most = std::max(most, policy.status(id).work);
    sum += policy.status(id).work;
  }
  // One request may be put on top of the bound.
  const double bound = options.imbalance_ratio * static_cast<double>(sum) / 4 +
                       options.imbalance_slack + 8 * 256 + 10;
  EXPECT_LE(static_cast<double>(most), bound);
}

TEST(RoutePolicy, ForgetsWhatAServerKnewThatWasDown) {
  RoutePolicy policy = servers_up({}, 2);
  const std::vector<uint64_t> prefix = chain_of(1, 50);
  const RouteDecision first = policy.arrive({.id = 1, .prefix = prefix, .prompt_tokens = 1600});
  policy.finished(1, Ending::kWhole);
  policy.set_state(first.server, ServerState::kResting);
  policy.set_state(first.server, ServerState::kUp);
  const RouteDecision second = policy.arrive({.id = 2, .prefix = prefix, .prompt_tokens = 1600});
  EXPECT_EQ(second.server, first.server);
  EXPECT_EQ(second.known_tokens, 1600);
  policy.finished(2, Ending::kWhole);
  policy.set_state(first.server, ServerState::kDown);
  policy.set_state(first.server, ServerState::kUp);
  EXPECT_EQ(policy.arrive({.id = 3, .prefix = prefix, .prompt_tokens = 1600}).known_tokens, 0);
}

TEST(RoutePolicy, KnowsNoMoreThanItMay) {
  RoutePolicy policy = servers_up({.known_blocks_max = 100}, 2);
  for (RouteId id = 1; id <= 100; ++id) {
    policy.arrive({.id = id,
                   .prefix = chain_of(static_cast<uint64_t>(id), 30 + static_cast<size_t>(id)),
                   .prompt_tokens = 5000});
    policy.finished(id, Ending::kWhole);
  }
  EXPECT_EQ(policy.status(0).known_blocks, 100U);
  EXPECT_EQ(policy.status(1).known_blocks, 100U);
  EXPECT_EQ(policy.request_count(), 0);
}

TEST(RoutePolicy, LetsWhoLeavesFinishAndSaysWhyNobodyAnswers) {
  RoutePolicy policy = servers_up({.requests_max = 1, .waiting_max = 1}, 2);
  EXPECT_EQ(policy.arrive({.id = 1}).verdict, RouteVerdict::kServer);
  EXPECT_EQ(policy.arrive({.id = 2}).verdict, RouteVerdict::kServer);
  EXPECT_EQ(policy.arrive({.id = 3}).verdict, RouteVerdict::kWait);
  EXPECT_EQ(policy.arrive({.id = 4}).verdict, RouteVerdict::kFull);
  EXPECT_EQ(policy.arrive({.id = 5, .model = "other"}).verdict, RouteVerdict::kNoModel);
  policy.leave(0);
  EXPECT_TRUE(policy.has_server(0)) << "its request goes on";
  policy.finished(1, Ending::kWhole);
  EXPECT_FALSE(policy.has_server(0));
  EXPECT_FALSE(policy.next()) << "nothing goes to who leaves";
  policy.set_state(1, ServerState::kDown);
  const auto next = policy.next();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->id, 3);
  EXPECT_EQ(next->decision.verdict, RouteVerdict::kNoServer);
  EXPECT_EQ(policy.refused(2).verdict, RouteVerdict::kRefused);
  EXPECT_EQ(policy.request_count(), 0);
}

// How many of so many requests that stay each server gets.
std::map<RouteServerId, int> shares_of(RoutePolicy& policy, int requests) {
  std::map<RouteServerId, int> shares;
  for (RouteId id = 1; id <= requests; ++id) {
    ++shares[policy.arrive({.id = id, .prompt_tokens = 500}).server];
  }
  return shares;
}

TEST(RoutePolicy, GivesAServerTwiceAsFastTwiceTheWork) {
  for (const RouteRule rule : {RouteRule::kPrefix, RouteRule::kLeastLoaded}) {
    RoutePolicy policy = servers_up({.rule = rule, .requests_max = 1000}, 3);
    policy.set_speed(0, {.prompt = 2, .answer = 2});
    const auto shares = shares_of(policy, 400);
    EXPECT_NEAR(shares.at(0), 200, 2);
    EXPECT_NEAR(shares.at(1), 100, 2);
    EXPECT_NEAR(shares.at(2), 100, 2);
  }
  RoutePolicy turns = servers_up({.rule = RouteRule::kRoundRobin, .requests_max = 1000}, 2);
  turns.set_speed(0, {.prompt = 2, .answer = 2});
  EXPECT_EQ(shares_of(turns, 400).at(0), 200) << "one after the other";
}

// One reads fast, the other speaks fast: each gets what it is good at.
TEST(RoutePolicy, KnowsWhatAServerIsFastAt) {
  RoutePolicy policy = servers_up({.requests_max = 1000}, 2);
  policy.set_speed(0, {.prompt = 4, .answer = 1});
  policy.set_speed(1, {.prompt = 1, .answer = 4});
  for (RouteId id = 1; id <= 40; ++id) {
    const bool reads = id % 2 == 0;
    const RouteDecision decision = policy.arrive(
        {.id = id, .prompt_tokens = reads ? 4000 : 10, .answer_tokens_max = reads ? 2 : 200});
    EXPECT_EQ(decision.server, reads ? 0 : 1) << id;
    policy.finished(id, Ending::kGivenUp);
  }
}

TEST(RoutePolicy, GoesAroundWhatOthersHaveSent) {
  RoutePolicy policy = servers_up({.requests_max = 1000}, 2);
  policy.set_others(0, {.running = 4, .waiting = 6});
  EXPECT_EQ(policy.status(0).work, 6 * 512 + 8 * 256 * 8);
  const auto shares = shares_of(policy, 30);
  // Its 19456 tokens of work are those of some eight requests of 500 + 8 * 256.
  EXPECT_NEAR(shares.at(1) - shares.at(0), 8, 1);
  policy.set_others(0, {});
  EXPECT_EQ(policy.arrive({.id = 99, .prompt_tokens = 500}).server, 0) << "they are gone";
}

TEST(RouteRule, HasNames) {
  for (const RouteRule rule : kRouteRules) EXPECT_EQ(find_route_rule(route_rule_name(rule)), rule);
  EXPECT_FALSE(find_route_rule("random"));
}

}  // namespace
}  // namespace jige::plan
