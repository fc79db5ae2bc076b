// The best measurement of held-out data that a run has made: whose weights are its result where it
// keeps them (TrainOptions::keep_best), and since when none was better, which may end it
// (TrainOptions::patience).
//
// Losses count as they are, rewards with the other sign: less is better. Equal is not better, and
// what is no number is never best. Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace jige::train {

struct EvalInfo;

struct BestMeasurement {
  double cost = 0;    // the loss, or less the mean reward
  int64_t step = 0;   // behind which it was measured
  int64_t since = 0;  // measurements that were no better

  Json to_json() const;
  // Fails with kNotFound or kInvalidArgument naming the field.
  static Result<BestMeasurement> from_json(const Json& json, const std::string& where);
};

double cost_of(const EvalInfo& info);

// Takes a measurement into account and says whether it is the best one now.
bool note_measurement(const EvalInfo& info, std::optional<BestMeasurement>& best);

}  // namespace jige::train
