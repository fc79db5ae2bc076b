// The rings that could be built: which nodes, and which transfers could carry each edge.
//
//   JIGE_TRY(const RingProblem problem, ring_problem(box, devices, {}));
//   problem.between[from * problem.node_count + to]      // candidates of one edge
//
// A ring visits every node once and returns; it is a list of candidates, the first leaving node 0.
// A chain through a machine of a cluster is a ring too: its node 0 is the network, entered through
// one NIC and left through another.
//
// Invariants: between any two nodes there is at least one candidate, but for node 0 of a chain with
// itself. Threads: values; the topology outlives the problem.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "topology/topology.h"

namespace jige::plan {

struct RingCandidate {
  topology::Transfer transfer;
  int32_t from = 0;  // node
  int32_t to = 0;
  std::vector<topology::Usage> usage;  // as the topology describes it
};

struct RingProblem {
  const topology::Topology* topology = nullptr;
  int32_t node_count = 0;
  std::vector<int32_t> components;  // of nodes; -1: the network
  std::vector<RingCandidate> candidates;
  std::vector<std::vector<int32_t>> between;

  const std::vector<int32_t>& edge(int32_t from, int32_t to) const {
    return between[static_cast<size_t>(from * node_count + to)];
  }
  const RingCandidate& at(int32_t candidate) const {
    return candidates[static_cast<size_t>(candidate)];
  }
  // Every candidate's transfer, in order.
  std::vector<topology::Transfer> transfers() const;
};

using Ring = std::vector<int32_t>;  // candidates

struct RingOptions {
  bool push = true;
  bool pull = true;
  bool staged = true;  // through the memory of any NUMA node
  bool copy_engines = false;
  bool kernels = true;  // false: copy engines alone
};

// Fails with kInvalidArgument for fewer than two devices, one named twice, what is no device or
// host, a mixture of both, and where two have no way to each other that the options allow.
Result<RingProblem> ring_problem(const topology::Topology& topology,
                                 std::span<const int32_t> devices, const RingOptions& options);

// REQUIRES: NICs. Fails as ring_problem does, but takes a single device.
Result<RingProblem> chain_problem(const topology::Topology& topology,
                                  std::span<const int32_t> devices, int32_t entry_nic,
                                  int32_t exit_nic, const RingOptions& options);

// Devices, or hosts where there are none, in the order of the description.
std::vector<int32_t> ring_devices(const topology::Topology& topology);

std::vector<topology::Transfer> ring_transfers(const RingProblem& problem,
                                               std::span<const int32_t> ring);
// "gpu0 -push-> gpu2 -via numa1-> gpu1 -pull-> gpu0"
std::string ring_text(const RingProblem& problem, std::span<const int32_t> ring);

}  // namespace jige::plan
