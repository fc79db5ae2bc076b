// Shows how far a search for a way to train is (plan/pipeline_planner.h), or the timing before it,
// where that takes a while.
//
//   TrainPlanProgress progress(quiet);
//   plan::plan_train(request, progress.listener());
//
// The bar goes with the object, for a search may end before its last part. Threads: one.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/progress.h"
#include "plan/pipeline_planner.h"

namespace jige::cli {

class TrainPlanProgress {
 public:
  // Quiet draws nothing.
  explicit TrainPlanProgress(bool quiet, const char* title = "planning")
      : quiet_(quiet), title_(title) {}
  ~TrainPlanProgress() { clear_progress_line(); }
  TrainPlanProgress(const TrainPlanProgress&) = delete;
  TrainPlanProgress& operator=(const TrainPlanProgress&) = delete;

  // REQUIRES: this outlives it.
  plan::PlanListener listener() {
    return [this](int64_t done, int64_t total) {
      if (!bar_) bar_.emplace(title_, total, quiet_);
      if (watch_.seconds() > kShownAfter_s) bar_->update(done, "");
    };
  }

 private:
  static constexpr double kShownAfter_s = 0.5;  // most searches are over by then

  bool quiet_;
  const char* title_;
  StopWatch watch_;
  std::optional<Progress> bar_;
};

}  // namespace jige::cli
