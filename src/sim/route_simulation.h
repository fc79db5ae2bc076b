// Simulation of several servers behind a router: plan::RoutePolicy, the code that routes, in front
// of plan::ServeScheduler, the code that serves, once for each server, on one virtual clock.
//
//   JIGE_TRY(const RouteSimulationResult result,
//            simulate_route({.server_count = 4, .route = …, .scheduler = …, .step = …}));
//
// Users hold conversations (sim/conversations.h) in a closed loop. The router sees what a real one
// does: how a prompt begins and how long it is, and tokens as they come. It tells the tokens of
// prompts exactly, where a real one counts four bytes for each; what a request takes on the way is
// nothing. Some users may ask the first server themselves, of which the router knows what servers
// tell every so often. Threads: none.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "plan/route_policy.h"
#include "plan/serve_scheduler.h"
#include "plan/server_load.h"
#include "plan/server_speed.h"
#include "sim/conversations.h"
#include "sim/load_report.h"
#include "sim/step_time.h"

namespace jige::sim {

// What the router knows of how fast servers are.
enum class KnownSpeeds {
  kEqual,    // nothing: they count as equal
  kLearned,  // by plan::ServerSpeeds
  kExact,
};

struct RouteSimulationOptions {
  int32_t server_count = 4;
  std::vector<double> speeds;  // of each server; empty: all 1. An iteration takes step / speed
  KnownSpeeds known_speeds = KnownSpeeds::kLearned;
  // The last ones of load.user_count, who ask the first server themselves.
  int64_t other_users = 0;
  double tell_s = 0;  // between two times that servers tell how much they have; 0: they do not
  plan::RouteOptions route;
  plan::ServeSchedulerOptions scheduler;  // of each server
  StepTime step;                          // likewise
  ConversationOptions load;
  const std::atomic<bool>* cancel = nullptr;
};

struct RouteSimulationResult {
  std::vector<RequestOutcome> outcomes;        // of requests by the router, by arrival
  std::vector<RequestOutcome> other_outcomes;  // of others
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;             // of these, found at the server
  int64_t believed_tokens = 0;           // of these, that the router took for known there
  std::vector<int64_t> computed_tokens;  // of each server
  std::vector<double> busy_s;            // likewise
};

// REQUIRES: speeds above 0, one for each server or none; fewer other users than users.
// Fails with kExhausted on a request that no server has room for, and with kCancelled.
Result<RouteSimulationResult> simulate_route(const RouteSimulationOptions& options);

}  // namespace jige::sim
