// Policies by name: ORDER[+ADMISSION][/PLACEMENT].
//
//   fifo  fifo+easy  sjf/span  las+skip/random  srtf/contention  greedy
//
// ORDER as in cluster/order.h, ADMISSION strict, skip or easy, PLACEMENT pack, span, best-fit,
// random, contention or learned. What is left out: fifo is strict, the others skip; placement is
// span. srtf and srsf preempt at once, las, gittins, max-min and ftf in rounds of five minutes,
// fifo and sjf never. `greedy` is the contention-aware greedy: what has the least service left,
// where it disturbs least, with deadlines, ageing, room made for fixed shapes, and moves; `learned`
// is the same with a trained network as the placer. Threads: pure functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/contention_placer.h"
#include "cluster/learned_placer.h"
#include "cluster/policy_network.h"
#include "cluster/queue_policy.h"

namespace jige::cluster {

struct PolicyContext {
  uint64_t seed = 1;
  double noise = 1;                              // of length estimates
  std::vector<double> history_gpu_s;             // for gittins
  std::shared_ptr<const PolicyNetwork> network;  // for learned
};

// What `greedy` and `learned` queue by.
QueueOptions greedy_queue_options();

// Fails with kInvalidArgument, naming `flag`, the text and the forms.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name, std::string_view flag,
                                            const PolicyContext& context);

}  // namespace jige::cluster
