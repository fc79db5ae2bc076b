// RoutePolicy: which of several servers answers a request: a pure state machine.
//
// Events in: servers come, go, are up or down and have models; a request arrives, its answer
// begins, goes on, ends, or its server would not have it. Decisions out: a server, or to wait, or
// why nobody answers. No thread, clock or random source is inside: the router and the simulator
// drive the same code, and the same events give the same decisions.
//
// Work is counted in tokens of prompts; a token of an answer counts as `answer_cost` of them. The
// work left of a request at its server is
//
//   (the answer has not begun ? its prompt less what the server is believed to know of it : 0)
//     + answer_cost * max(expected answer - answer so far, answer_floor)
//
// where the expected answer is the mean of those that ended (each counts 1 / 64), at most what the
// request allows. The work of a server, W, is the sum over its requests and over those that others
// have sent it (set_others), of which nothing but their number is known: one that runs has half of
// an expected answer left, one that waits a mean prompt and an answer. A server does its W in
//
//   time(W) = prompts of W / its speed at prompts + answers of W / its speed at answers
//
// with speeds of 1 until set_speed says otherwise: tokens of work that a usual server does
// meanwhile. Rules:
//
//   prefix        the server with the least time(W + the request) - (known_weight - 1) * known
//                 tokens of the prompt, which are not to be read there either; these count more
//                 than once, since a conversation that moves is read again now, and what it takes
//                 of another cache is missed later. They count only
//                 where time(W) <= imbalance_ratio * its mean + imbalance_slack, so that a
//                 beginning that everybody uses does not bury one server. The mean is over the
//                 servers that are up and have the model. (The bound is that of Mirrokni, Thorup
//                 and Zadimoghaddam, Consistent Hashing with Bounded Loads, SODA 2018, who move on
//                 from a server with more than c times the mean; the slack is for when there is
//                 little to do.)
//   least-loaded  the server with the least time(W + the request)
//   round-robin   one after the other
//
// Among equals it is the one that has been idle longest by the order of decisions.
// Invariants, checked by check_invariants():
//   (1) a request is at one server, or waits, or is over
//   (2) W is the sum of the work left of a server's requests and of others'
//   (3) at most requests_max are at a server; at most waiting_max wait
//   (4) nobody waits while a server that may take it has room, behind next()
// and of every decision: (5) the server is up, not leaving, has the model, has room and has not
// refused the request; (6) by prefix: its time(W + the request) was the least of those, or its
// time(W) within the bound.
// Threads: none; one caller. Memory: bounded by the servers, what is at them and what waits.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/prefix_index.h"

namespace jige::plan {

using RouteServerId = int32_t;
using RouteId = int64_t;

enum class RouteRule { kPrefix, kLeastLoaded, kRoundRobin };
inline constexpr RouteRule kRouteRules[] = {RouteRule::kPrefix, RouteRule::kLeastLoaded,
                                            RouteRule::kRoundRobin};
// "prefix", "least-loaded", "round-robin".
std::string_view route_rule_name(RouteRule rule);
std::optional<RouteRule> find_route_rule(std::string_view name);

struct RouteOptions {
  RouteRule rule = RouteRule::kPrefix;
  int32_t requests_max = 256;       // at one server at once
  int32_t waiting_max = 1024;       // for room at a server
  int32_t block_tokens = 32;        // of a block of a beginning
  size_t known_blocks_max = 65536;  // of one server
  int64_t answer_cost = 8;          // tokens of prompts that take as long as one of an answer
  int64_t answer_floor = 16;   // tokens that an answer is expected to go on, however long it is
  int64_t known_weight = 8;    // what a known token saves, in tokens of work
  double answer_tokens = 256;  // expected of an answer before any has ended
  double prompt_tokens = 512;  // unknown ones of a prompt that others sent, before any was placed
  double imbalance_ratio = 1.25;
  double imbalance_slack = 4096;
};

struct RouteRequest {
  RouteId id = 0;
  std::string model;             // empty: whatever a server has
  std::vector<uint64_t> prefix;  // prefix[i] names the first i + 1 blocks of the prompt
  int64_t prompt_tokens = 1;
  int64_t answer_tokens_max = -1;  // -1: not said
};

// Requests at a server that others have sent it. No whole numbers: what is known of them is old.
struct OtherRequests {
  double running = 0;
  double waiting = 0;
};

// How fast a server is beside a usual one, which has 1.
struct RouteSpeed {
  double prompt = 1;
  double answer = 1;
};

enum class ServerState {
  kUp,
  kResting,  // it refuses for now; what it knows it still knows
  kDown,     // nothing is sent to it, and it will know nothing when it comes back
};

enum class RouteVerdict {
  kServer,
  kWait,
  kNoModel,   // no server has the model
  kNoServer,  // none of those that have it is up
  kFull,      // too many wait already
  kRefused,   // every server that could take it has refused it
};

struct RouteDecision {
  RouteVerdict verdict = RouteVerdict::kWait;
  RouteServerId server = -1;
  int64_t known_tokens = 0;   // of the prompt, that the server is believed to know
  int64_t unread_tokens = 0;  // of other prompts, that it has to read first
};

struct PlacedRequest {
  RouteId id = 0;
  RouteDecision decision;
};

struct RouteServerStatus {
  ServerState state = ServerState::kDown;
  bool leaving = false;
  int32_t requests = 0;
  int64_t work = 0;
  OtherRequests others;
  RouteSpeed speed;
  size_t known_blocks = 0;
};

class RoutePolicy {
 public:
  explicit RoutePolicy(RouteOptions options);

  // A server that is down and has no model yet.
  RouteServerId add_server();
  // Gives it nothing more; it is gone when its last request is over.
  void leave(RouteServerId server);
  bool has_server(RouteServerId server) const { return servers_.contains(server); }
  void set_state(RouteServerId server, ServerState state);
  void set_models(RouteServerId server, std::vector<std::string> models);
  // Those that did not come by this policy. REQUIRES: no negative numbers.
  void set_others(RouteServerId server, OtherRequests others);
  // REQUIRES: speeds above 0.
  void set_speed(RouteServerId server, RouteSpeed speed);

  // REQUIRES: the id is new.
  RouteDecision arrive(RouteRequest request);
  // The server would not have the request, or broke before it answered: another one, which may be
  // after some waiting. REQUIRES: the request is at a server.
  RouteDecision refused(RouteId request);
  // The first of an answer has come. Ignored, as those below, where the request is over.
  void began(RouteId request);
  // So many tokens of the answer have come so far.
  void progress(RouteId request, int64_t answer_tokens);
  // The answer is whole, or nobody wants it any more; it counts for the expected one if it is.
  enum class Ending { kWhole, kGivenUp };
  void finished(RouteId request, Ending ending);
  // The next of those that wait about whom something is decided: a server, or that there is none.
  // To be called until it gives nothing, behind every event.
  std::optional<PlacedRequest> next();

  // Whether the request waits and every server that may take it rests. False where it is over.
  bool waits_for_rest(RouteId request) const;

  int32_t waiting_count() const { return static_cast<int32_t>(waiting_.size()); }
  int32_t request_count() const { return static_cast<int32_t>(requests_.size()); }
  double expected_answer_tokens() const { return answer_mean_; }
  RouteServerStatus status(RouteServerId server) const;
  void check_invariants() const;

 private:
  // In tokens of prompts, both.
  struct RouteWork {
    int64_t prompts = 0;
    int64_t answers = 0;
    bool operator==(const RouteWork&) const = default;
  };
  struct Server {
    explicit Server(size_t known_blocks_max) : known(known_blocks_max) {}
    ServerState state = ServerState::kDown;
    bool leaving = false;
    std::vector<std::string> models;
    int32_t requests = 0;
    RouteWork work;  // of its requests
    OtherRequests others;
    RouteSpeed speed;
    int64_t chosen_at = 0;  // by the order of decisions
    PrefixIndex known;
  };
  struct Request {
    RouteRequest spec;
    RouteServerId server = -1;  // -1: it waits
    int64_t prompt_left = 0;
    int64_t answer_expected = 0;
    int64_t answer_tokens = 0;
    RouteWork work;  // as counted at its server
    std::vector<RouteServerId> refused_by;
  };
  struct Candidate {
    RouteServerId id = -1;
    Server* server = nullptr;
    int64_t known_tokens = 0;
    double cost = 0;
  };

  Server& server_of(RouteServerId id);
  static bool has_model(const Server& server, const std::string& model);
  // What is to become of a request that is at no server.
  RouteDecision decide(const Request& request);
  RouteVerdict verdict_without_server(const Request& request) const;
  // It may take the request, be it up or not.
  static bool may_take(RouteServerId id, const Server& server, const Request& request);
  std::vector<Candidate> candidates(const Request& request);
  double time_bound(const Request& request) const;
  double time_of(const Server& server, const RouteWork& more) const;
  RouteWork work_of_others(const Server& server) const;
  int64_t expected_answer(const RouteRequest& spec) const;
  RouteWork work_of(const RouteRequest& spec, int64_t prompt_left, int64_t answer_left) const;
  Candidate choose(const Request& request, std::vector<Candidate> open) const;
  void place(Request& request, const RouteDecision& decision);
  RouteDecision place_or_wait(Request request, bool is_new);
  void take_from_server(Request& request);
  RouteWork work_left(const Request& request) const;
  void recount(Request& request);

  RouteOptions options_;
  std::map<RouteServerId, Server> servers_;
  std::map<RouteId, Request> requests_;
  std::deque<RouteId> waiting_;  // by arrival
  RouteServerId next_server_ = 0;
  int64_t decisions_ = 0;
  double answer_mean_;
  double prompt_mean_;  // of what is unknown of a prompt where it goes
};

}  // namespace jige::plan
