// The plan of a server as a file: what `jige plan serve -o` writes and `jige serve --plan` reads.
//
//   {"format": "jige.serve-plan", "version": 2,
//    "settings": {"policy": "rounds", "max_batch": 16, "round_prompts": 4, "round_steps": 8},
//    "load": {"users": 16, "requests": 400, "prompt_tokens_mean": 161, "output_tokens_mean": 338,
//             "prompt_tokens": [4, …, 900], "output_tokens": [1, …, 1200],
//             "kv_tokens": 16384, "iteration": "20 ms an iteration, …"},
//    "machine": {…}, "model": {…},  // whose profile it rests on, as sim/profiled_subject.h shows
//    "bounds": {"quantile": 0.99, "margin": 0, "itl_ms": 50},
//    "binding": "itl",
//    "prediction": {"requests_per_s": 2.3, "output_tokens_per_s": 690, "kv_blocks_max": 700,
//                   "ttft_ms": {"mean": 40, "p50": 31, "p90": 70, "p99": 130}, "itl_ms": {…},
//                   "tpot_ms": {…}, "e2e_ms": {…}},
//    "runner_up": {"settings": {…}, "prediction": {…}}, "usual": {…},
//    "search": {"policies": ["chunked", …], "max_batch": 64, "batch_tokens": 512,
//               "forward_rows": 512, "forward_sampled_rows": 64},
//    "step": {…}}  // as sim/step_profile.h shows it
//
// "settings" has batch_tokens with the policy chunked, and what rounds are with rounds; nothing
// else may be in it, so that a mistyped name is told. Who edits it changes what is served; the
// prediction is then of what it was. "users" or "rate" is there with such a load, else it is as
// much as is carried. What is not read back is for people: "runner_up", "usual". "search" and
// "step" are what another plan for the same server takes (serve_replanner.h); plans from before
// there were such have neither. Threads: values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "plan/serve_drift.h"
#include "sim/profiled_subject.h"
#include "sim/serve_planner.h"

namespace jige::sim {

// What a plan was searched among, and by which times.
struct ServeSearchSpace {
  std::vector<plan::ServePolicy> policies;
  int32_t batch_requests_max = 64;  // the most that settings may have
  int32_t batch_tokens_max = 512;
  StepTime step;
};

struct ServePlanFile {
  ServeSettings settings;
  ServeBounds bounds;
  int64_t users = 0;  // of the load, as in ServeLoad
  double rate_per_s = 0;
  int64_t requests = 0;
  double prompt_tokens_mean = 0, output_tokens_mean = 0;
  plan::PlannedLoad lengths;  // and the rate, if it is for one
  int64_t kv_tokens = 0;
  std::string iteration;  // where its time comes from, in words
  std::optional<ProfiledSubject> profiled;
  std::string binding;
  ServePrediction prediction;  // without ratio and tightest
  std::optional<ServeSearchSpace> search;
};

// Where the time of an iteration comes from.
struct PlannedIteration {
  std::string text;
  std::optional<ProfiledSubject> profiled = {};  // none: figures that somebody gave
};

Json prediction_json(const ServePrediction& prediction);

// REQUIRES: plan.chosen.
Json serve_plan_to_json(const ServePlanRequest& request, const ServePlan& plan,
                        const PlannedIteration& iteration);
// Fails with kUnsupported on another format or version, and with kCorrupt, kInvalidArgument or
// kNotFound on fields that are wrong, missing or unknown, naming them.
Result<ServePlanFile> serve_plan_from_json(const Json& json, std::string_view where);
// Fails so, and as reading the file does.
Result<ServePlanFile> load_serve_plan(const std::string& path);

}  // namespace jige::sim
