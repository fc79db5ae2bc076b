// A step profile: what iterations of the serving engine took on a machine with a model, and the
// StepTime that was fitted to them; a file of `jige profile serve`.
//
//   {"format": "jige.step-profile", "version": 2,
//    "machine": {…}, "model": {…},  // as sim/profiled_subject.h shows them
//    "limits": {"rows": 512, "sampled_rows": 64},
//    "step": {"base_s": 1e-3, …, "row_segments": [{"end": 8, "unit_s": 1e-5}, …], …,
//             "noise": [{"end_s": 2e-3, "quantiles": [0.9, …, 7.1]}, …]},
//    "held_out": {"all": {"cells": 90, "mean": 0.02, "worst": -0.09, "slower": 0.04}, "decode":
//    {…},
//                 …},
//    "cells": [{"kind": "decode", "rows": 8, "sampled_rows": 8, "sequences": 8, "kv_tokens": 2048,
//               "decode_keys": 2048, "pairs": 2048, "seconds": 1e-3, "low_s": 9e-4,
//               "high_s": 1.1e-3, "runs": 12,
//               "disturbed": 1}, …]}
//
// "held_out" has relative errors on cells that the fit had not seen (step_fit.h).
// Threads: values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "sim/profiled_subject.h"
#include "sim/step_fit.h"
#include "sim/step_time.h"

namespace jige::sim {

// Above this mean error on cells held out a profile is no ground for plans.
inline constexpr double kStepErrorMax = 0.1;

struct StepProfile {
  ProfiledSubject subject;
  StepTime step;
  StepErrors held_out;
  std::vector<StepCell> cells;
};

// The fields of "step".
Json step_time_to_json(const StepTime& step);
// What is in the field "step" of an object, all but the limits. Fails as step_profile_from_json().
Status read_step_time(const Json& json, std::string_view where, StepTime& step);
Json step_profile_to_json(const StepProfile& profile);
// Fails with kUnsupported on another format or version, kCorrupt, kInvalidArgument and kNotFound on
// fields that are wrong or missing, naming them.
Result<StepProfile> step_profile_from_json(const Json& json, std::string_view where);
// Fails so, and as reading the file does.
Result<StepProfile> load_step_profile(const std::string& path);

}  // namespace jige::sim
