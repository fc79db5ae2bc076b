// Measures what the serving engine's iterations take with a model, over a grid of batches, and fits
// a model of it: the work of `jige profile serve`, and of `jige simulate serve` with a model.
//
// All batches of the grid take turns, round by round, in another order each time, so that what else
// the machine does falls on all of them; usual times are without turns that another program has
// disturbed, unless there are few others, and the noise around them is with these. Of a slow model
// the grid is coarser.
// Threads: one at a time; the model's own compute.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/bench_serve_model.h"
#include "serve/step_meter.h"
#include "sim/step_profile.h"

namespace jige::cli {

struct StepGridCell {
  std::string kind;  // as of sim::StepCell
  serve::StepShape shape;
  int detail = 0;  // from this on a grid has it
};

// Batches that a model holds, for kStepTurns turns of each. `detail`: 0 to kStepGridDetailMax.
inline constexpr int kStepGridDetailMax = 2;
inline constexpr int32_t kStepTurns = 3;
std::vector<StepGridCell> step_grid(const model::InferenceSizes& sizes, int detail);

struct StepProfileOptions {
  double seconds = 60;  // about; one round is made in any case
  const std::atomic<bool>* cancel = nullptr;
  // Of the time; what is measured now.
  std::function<void(double seconds, const std::string& note)> on_progress = {};
};

// Fails with kUnsupported on models with states or of embeddings, kCancelled, and as they run.
Result<sim::StepProfile> profile_steps(BenchServeModel& served, const StepProfileOptions& options);

// The same with a bar, unless quiet, to be ended by a signal.
Result<sim::StepProfile> show_profiling(BenchServeModel& served, double seconds, bool quiet);

// A warning where the profile's error is more than plans may rest on.
void warn_of_error(const sim::StepProfile& profile);

}  // namespace jige::cli
