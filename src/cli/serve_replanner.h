// ServeReplanner: plans again, in the background, for a server whose requests are no longer those
// of its plan, and lets its engine go on with what it found.
//
//   ServeReplanner replanner(*engine, plan_file, {.pause_s = 60});
//   …replanner.status()…
//
// When is said by plan/serve_replan.h, for what and whether it is worth a switch by
// sim/serve_replanner.h. The engine changes between two iterations (Engine::change_plan); answers
// keep their bits. A plan is made on a thread that gets what others leave of the processors. What
// comes of it is logged, told by status(), and where a plan is switched to it is written to a new
// file of the folder.
// Threads: it has one of its own, and one for each plan; status() from any thread, the rest from
// one. The engine must outlive it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "plan/serve_replan.h"
#include "serve/engine.h"
#include "sim/serve_plan_file.h"
#include "sim/serve_replanner.h"

namespace jige::cli {

struct ServeReplanOptions {
  double pause_s = 60;  // at least, between two plans
  std::string folder;   // for plans that are switched to; empty: they are not written
};

class ServeReplanner {
 public:
  // REQUIRES: an engine with the settings of the plan and as its planned load that of the plan.
  ServeReplanner(serve::Engine& engine, sim::ServePlanFile planned, ServeReplanOptions options);
  // Stops as stop() does.
  ~ServeReplanner();
  ServeReplanner(const ServeReplanner&) = delete;
  ServeReplanner& operator=(const ServeReplanner&) = delete;

  plan::ReplanStatus status() const;
  // Gives up a plan that is being made, and joins the thread. Again: no effect.
  void stop();

 private:
  void run();
  void look();
  void plan(const plan::RecentLoad& recent);
  // On a thread of low priority.
  Result<sim::ServeReplan> make_plan(const plan::RecentLoad& recent);
  // Hands it to the engine, unless it came to nothing.
  Status put_in_force(const sim::ServeReplan& found, plan::PlannedLoad load);
  void tell(plan::ReplanOutcome outcome, std::string text, std::string file, double planning_s);

  serve::Engine& engine_;
  const sim::ServePlanFile planned_;
  const ServeReplanOptions options_;
  plan::ReplanPolicy policy_;
  sim::ServeSettings settings_;  // in force, or from the next border on
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  plan::ReplanStatus status_;
  int64_t ended_ns_ = 0;
  std::thread thread_;  // after what it uses
};

// Writes to plan-N.json in the folder, N above those that are there; gives the path. Fails as
// writing a file does.
Result<std::string> write_next_plan(const std::string& folder, const std::string& text);

}  // namespace jige::cli
