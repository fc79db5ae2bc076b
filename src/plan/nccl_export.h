// What of a planned ring stock NCCL can do. Its graph file carries the order alone; how transfers
// go is set for all of them by environment variables. So the ring is projected: every combination
// of those settings is applied to the order, measured again, and the fastest is exported, with the
// list of edges that lost their transfer kind or buffer.
//
//   JIGE_TRY(const NcclExport out, export_to_nccl(problem, plan.best[0], profiler, {2, 21}));
//   out.graph_xml, out.environment, out.lost, out.rate
//
// Threads: one caller.
#pragma once

#include <string>
#include <vector>

#include "plan/nccl_graph.h"
#include "plan/ring_planner.h"

namespace jige::plan {

struct NcclExport {
  std::string graph_xml;
  std::string environment;        // KEY=VALUE lines with comments
  std::vector<std::string> lost;  // one line for each edge that stock NCCL runs another way
  Ring ring;                      // as stock NCCL would run it
  double rate = 0;                // of that, as a set
  double planned_rate = 0;
};

// Fails with kUnsupported where no setting can run the ring, for hosts, and for devices whose
// indices are not known.
Result<NcclExport> export_to_nccl(const RingProblem& problem, const MeasuredRing& planned,
                                  profile::Profiler& profiler, NcclVersion version);

// NCCL's name of the path between two devices: PIX one PCIe switch, PXB several, PHB the host
// bridge of one NUMA node, SYS beyond.
std::string_view nccl_path_type(const topology::Topology& topology, int32_t a, int32_t b);

}  // namespace jige::plan
