// Simulation of a cluster: a workload, a policy and a model of contention on a clock of whole
// nanoseconds.
//
//   JIGE_TRY(const SimulationResult result,
//            simulate(spec, workload, make_link_contention(spec, {}), *policy, {}));
//
// At one instant jobs end before others arrive, then the policy decides once. The same inputs give
// the same bytes. A job that an empty cluster could not hold is refused on arrival with the reason.
// Threads: none.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/contention.h"
#include "cluster/policy.h"
#include "cluster/recorder.h"

namespace jige::cluster {

struct JobOutcome {
  int64_t arrival_ns = 0;
  int64_t first_start_ns = -1;  // -1: never
  int64_t finish_ns = -1;
  int64_t held_ns = 0;     // with GPUs: the service time
  int64_t restart_ns = 0;  // of that, without progress
  double alone_ns = 0;     // on its ideal placement without neighbours
  int32_t gpus = 0;
  int32_t preemptions = 0;
  int32_t migrations = 0;
  std::string refused;  // why it never ran
};

struct SimulationOptions {
  bool record_links = false;
  std::shared_ptr<const Colocation> colocation = nullptr;  // null: nobody shares GPUs
  const std::atomic<bool>* cancel = nullptr;
};

struct SimulationResult {
  std::vector<JobOutcome> outcomes;  // by job
  Recorder record;
  int64_t end_ns = 0;
  int64_t decisions = 0;  // calls of the policy
  int64_t rate_changes = 0;
};

// Where clocks of simulations end, far within their range, and the kExhausted that says so.
inline constexpr int64_t kSimulatedMax_ns = 4'000'000'000 * kSecond;
tl::unexpected<Error> simulated_too_long(size_t jobs_left);

// Fails with kInternal where the policy leaves jobs waiting on an empty cluster, with kExhausted
// where the clock would pass its range, and with kCancelled. REQUIRES: jobs by arrival, from 0 on.
Result<SimulationResult> simulate(const ClusterSpec& spec, const Workload& workload,
                                  std::unique_ptr<Contention> contention, Policy& policy,
                                  const SimulationOptions& options);

}  // namespace jige::cluster
