// Shows how far a plan of links is: what it has spent of its budget, and what it has measured.
// Where links are simulated that takes no time mostly, and is shown only once it does.
//
//   PlanProgress progress(bench.profiler(), budget_s, quiet);   // draws after every set
//   progress.collective(meter, task);                           // and counts one of these
//   progress.finish();                                          // before the result is printed
//
// Single transfers and a few finalists are measured beyond a budget that is too small for them, so
// that the bar may wait at its end. Threads: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/progress.h"
#include "profile/collective_meter.h"
#include "profile/profiler.h"

namespace jige::cli {

class PlanProgress {
 public:
  // The profiler outlives it, and has no other such listener meanwhile. Nothing is drawn in the
  // first seconds, `shown_after_s`. Quiet draws nothing.
  PlanProgress(profile::Profiler& profiler, double budget_s, double shown_after_s, bool quiet);
  ~PlanProgress();
  PlanProgress(const PlanProgress&) = delete;
  PlanProgress& operator=(const PlanProgress&) = delete;

  // Runs it; the profiler counts its time as it does that of sets.
  Result<profile::CollectiveTimes> collective(profile::CollectiveMeter& meter,
                                              const profile::CollectiveTask& task);
  void draw();
  // Says what it took, where anything was drawn.
  void finish() { bar_.finish(note()); }

 private:
  std::string note() const;

  profile::Profiler& profiler_;
  const profile::ProfilerCounts before_;
  int64_t collectives_ = 0;
  Progress bar_;
};

}  // namespace jige::cli
