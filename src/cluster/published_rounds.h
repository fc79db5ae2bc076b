// The scheduling rounds of the ICPADS'23 scheduler (gajagajago/deepshare at a704439), rule for
// rule, so that its published baselines can be told from corrected ones. Not a policy of ours:
// compare it with `las` and `srtf` of cluster/policy_list.h on the same jobs.
//
//   round of 300 s:  place jobs in order, each on equal shares of the first nodes with room
//                    share = the least of the table's (cluster/slowdown_table.h) in this stint
//                    samples += rate * share * 300; those that are done leave
//                    all others are stopped, at no cost, and queue behind
//
// What is wrong in it is kept:
//   - las puts the most attained time first, srtf the smallest part done: both upside down
//   - of jobs that leave in a round, the one behind each gets nothing in that round, though it has
//     its GPUs
//   - "nearly done" compares samples left with share * 300, without the rate
//   - its "JCT" is the time with GPUs (JobOutcome::held_ns), without queueing; finish_ns is true
//
//   name                     order                 who does not fit   preempts   nodes first
//   published-las            most attained first   holds up others    all        most
//   published-srtf           least part done       holds up others    all        most
//   published-fifo           queue                 is skipped         nobody     most
//   published-fifo-narrow    queue                 is skipped         nobody     two
//
// Threads: pure functions.
#pragma once

#include <atomic>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/sample_trace.h"
#include "cluster/simulation.h"
#include "cluster/slowdown_table.h"

namespace jige::cluster {

struct RoundRules {
  enum class Order : uint8_t { kQueue, kMostAttained, kLeastDone };
  Order order = Order::kQueue;
  bool skips = false;
  bool preempts = true;
  bool widest_first = true;
};

// Nothing: no such name.
std::optional<RoundRules> round_rules(std::string_view name);

// Fails with kInvalidArgument where a job has no spread or does not fit an empty cluster, with
// kCorrupt on one that takes too long, with kExhausted where all of them do, and with kCancelled.
// REQUIRES: jobs.
Result<SimulationResult> simulate_rounds(const ClusterSpec& spec,
                                         const std::vector<SampleJob>& jobs, const RateTable& rates,
                                         const SlowdownTable& table, const RoundRules& rules,
                                         const std::atomic<bool>* cancel = nullptr);

}  // namespace jige::cluster
