// How concurrent transfers share what they meet: weighted max-min fairness by progressive filling,
// and the times at which finite transfers then end.
//
//   const std::vector<double> rates = max_min_rates(box.resources(), flows);
//   const FluidRun run = run_flows(box.resources(), flows, {1e9, 1e9});
//
// All rates rise together, each in proportion to its weight, until a resource is full; the flows on
// it keep what they have, the others go on. A flow that uses nothing is unlimited. Beyond max-min
// there is one effect: a resource's Penalty, an assumption that the description names.
//
// The lowest rate of equal weights is min over resources of rate / (sum of costs), and where all
// flows carry equal bytes those on that resource end last, together: the makespan of a set is its
// bytes over its lowest rate.
// Threads: pure functions.
#pragma once

#include <span>
#include <vector>

#include "topology/topology.h"

namespace jige::topology {

struct Flow {
  std::vector<Usage> usage;  // costs above 0
  double weight = 1;         // above 0
};

// GB/s of each flow while all run.
std::vector<double> max_min_rates(std::span<const Resource> resources, std::span<const Flow> flows);

struct FluidRun {
  std::vector<double> end_s;  // of each flow
  double makespan_s = 0;
};

// Starts every flow at 0 and shares anew whenever one ends. REQUIRES: one size a flow, bytes >= 0.
FluidRun run_flows(std::span<const Resource> resources, std::span<const Flow> flows,
                   std::span<const double> bytes);

}  // namespace jige::topology
