// Shows how far a plan is that measures real links: what it has spent of its budget, and what it
// has measured.
//
//   PlanProgress progress(bench.profiler(), budget_s, quiet);   // draws after every set
//   progress.collective();                                      // and before one of these
//   progress.finish();                                          // before the result is printed
//
// Finalists are measured and run outside the budget, so that the bar may wait at its end. Threads:
// one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/progress.h"
#include "profile/profiler.h"

namespace jige::cli {

class PlanProgress {
 public:
  // The profiler outlives it, and has no other such listener meanwhile. Quiet draws nothing.
  PlanProgress(profile::Profiler& profiler, double budget_s, bool quiet);
  ~PlanProgress();
  PlanProgress(const PlanProgress&) = delete;
  PlanProgress& operator=(const PlanProgress&) = delete;

  // One more collective is about to run.
  void collective();
  // Says what it took.
  void finish() { bar_.finish(note()); }

 private:
  void draw();
  std::string note() const;

  profile::Profiler& profiler_;
  const profile::ProfilerCounts before_;
  int64_t collectives_ = 0;
  Progress bar_;
};

}  // namespace jige::cli
