// Simulation of serving: plan::ServeScheduler, the code that serves, driven by a virtual clock and
// a model of how long an iteration takes.
//
//   JIGE_TRY(const ServeSimulationResult result,
//            simulate_serve(load.requests, {.scheduler = …, .step = {.base_s = 0.01}}));
//   const LoadReport report = make_report(result.outcomes);
//
// With n batches in flight the machine is a pipeline of n equal stages: a batch enters when the
// first stage is free and leaves n stages later, in order. Cancels come after an exponential time,
// a lost batch takes its time and yields nothing, a stop ends an answer early, a forward takes
// longer by the noise of its StepTime; all are drawn from the seed, so a run repeats exactly. With
// the static policy an answer ends with its batch. Nothing is drafted but by an observer: which
// guesses come true is a matter of texts, and there are none. Threads: none.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/serve_scheduler.h"
#include "sim/load_report.h"
#include "sim/step_time.h"
#include "sim/workload.h"

namespace jige::sim {

struct ServeFaults {
  double cancel_share = 0;    // of requests whose client gives up
  double cancel_after_s = 1;  // mean time until it does
  double lose_share = 0;      // of batches whose results are lost; below 1
  double stop_share = 0;      // of tokens that end their answer
};

// From an answer to the next request of a user of `jige bench serve`: it comes while the iteration
// behind the answer is under way.
inline constexpr double kBenchTurnaroundSeconds = 5e-5;

struct ServeSimulationOptions {
  plan::ServeSchedulerOptions scheduler;
  StepTime step;
  int64_t users = 0;  // > 0: closed loop, each user sends the next request when one is over
  // and so much later; users who are due together come one after the other, so much apart, as one
  // client sends for all: who comes first to an idle machine begins alone.
  double turnaround_s = 0;
  ServeFaults faults;
  uint64_t seed = 1;
  const std::atomic<bool>* cancel = nullptr;
};

// Looks on and takes part: for tests of the scheduler, and to show how far a simulation is.
class SimulationObserver {
 public:
  virtual ~SimulationObserver() = default;
  // Fills in the prompt and what else is wanted of a request that has its id and length already; by
  // default a prompt that shares nothing with others.
  virtual void complete_spec(const RequestShape& shape, plan::RequestSpec& spec);
  virtual void on_arrival(const plan::RequestSpec&) {}
  // Before a batch is chosen; may draft tokens of requests.
  virtual void before_batch(plan::ServeScheduler&) {}
  virtual void on_batch(const plan::Batch&) {}
  virtual void on_lost(const plan::Batch&) {}
  // The token that a sampling item gives behind the first `count` of its tokens: all of them, or
  // fewer with drafts. Before on_complete.
  virtual int32_t next_token(const plan::WorkItem&, int32_t /*count*/) { return 0; }
  virtual void on_complete(const plan::Batch&) {}
  virtual void on_over(plan::RequestId) {}
  // Behind every event.
  virtual void check(const plan::ServeScheduler&) {}
};

struct ServeSimulationResult {
  std::vector<RequestOutcome> outcomes;  // by request; failures: "cancelled", "too large"
  double busy_s = 0;                     // batches in flight
  int64_t iterations = 0;                // complete
  int64_t iterations_lost = 0;
  int64_t preemptions = 0;
  int64_t computed_tokens = 0;
  int32_t kv_blocks_live_max = 0;
  int32_t kv_blocks_live_end = 0;  // anything but 0 is a leak
};

// Request i has the id i. Fails with kInternal where the scheduler comes to a stand while requests
// are left, and with kCancelled. REQUIRES: requests by arrival; lengths fit into 31 bits; times of
// the model >= 0 and not all 0; shares in [0, 1], lose_share < 1.
Result<ServeSimulationResult> simulate_serve(std::span<const RequestShape> requests,
                                             const ServeSimulationOptions& options,
                                             SimulationObserver* observer = nullptr);

}  // namespace jige::sim
