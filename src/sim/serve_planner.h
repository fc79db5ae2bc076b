// The settings of a server for a load: the greatest throughput under bounds on latency.
//
//   JIGE_TRY(const ServePlan plan, plan_serving({.load = {.step = measured, .users = 16, …},
//                                                .bounds = {.itl_s = 0.05}}));
//   if (plan.chosen) …plan.chosen->settings…
//
// A setting is a policy, how many answers at once, the tokens of an iteration (chunked) and the
// prompts and steps of a round (rounds). Settings of a grid are judged by the closed form
// (plan/serve_steady.h). Then those that promise most are simulated by the scheduler itself, one
// after the other, and how far off the closed form was there corrects what it says of settings near
// by. What is told of a setting comes of its simulation.
//
// Loads, and what is best for them where bounds hold:
//   users    a closed loop: the most requests a second; within half a percent, the fastest answers
//   rate     an open loop, which comes out as it goes in: the least mean time of an answer
//   neither  as much as it carries: the most requests a second of a closed loop with as many users
//            as answers at once. Throughput and latency grow together then, along rows and prompts
//            and against steps, but for the time to a first token: without a bound on that, branch
//            and bound (plan/serve_search.h) asks for few of the grid
// Otherwise all of the grid is looked at: with a given number of users, more throughput means less
// latency of answers.
// The same request gives the same plan. Threads: none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/serve_scheduler.h"
#include "sim/serve_prediction.h"

namespace jige::sim {

struct ServePlanRequest {
  ServeLoad load;
  ServeBounds bounds;
  int32_t batch_requests_max = 64;  // the most that settings may have
  int32_t batch_tokens_max = 512;
  std::vector<plan::ServePolicy> policies = {plan::ServePolicy::kChunked, plan::ServePolicy::kOrca,
                                             plan::ServePolicy::kRounds,
                                             plan::ServePolicy::kStatic};
  // What a server has without a plan: predicted, too, and one of those to choose from unless it is
  // beyond the limits.
  ServeSettings usual;

  int32_t simulations_max = 32;
  bool certify = false;  // simulates all settings, however long it takes
  // Simulations that are done and are to come at most.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

struct ServePlan {
  std::optional<ServePrediction> chosen;     // none: nothing that was simulated keeps the bounds
  std::optional<ServePrediction> runner_up;  // the best of other policies, else the next
  // What comes closest to the bounds, where nothing keeps them: bounds `nearest->ratio` times as
  // large would be kept.
  std::optional<ServePrediction> nearest;
  ServePrediction usual;
  std::vector<ServePrediction> by_policy;  // each policy's best; what is simulated, if only one
  // What keeps throughput from being greater: "e2e" and other bounds, "memory", "answers at once",
  // "users", "rate" or "time of an iteration".
  std::string binding;
  int64_t settings = 0;   // of the grid
  int64_t evaluated = 0;  // by the closed form
  int64_t simulated = 0;
  double steady_error_max = 0;  // the closed form's throughput beside the simulations', relative
  // With certify: the best of all, and how much better it is than what is chosen, as a share.
  std::optional<ServePrediction> certified;
  double certified_gain = 0;
};

// Fails with kInvalidArgument on what cannot be planned, naming the field and its value, with
// kExhausted where a request has no room alone, and kCancelled.
Result<ServePlan> plan_serving(const ServePlanRequest& request);

}  // namespace jige::sim
