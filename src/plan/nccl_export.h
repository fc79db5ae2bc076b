// What of planned rings stock NCCL can do. Its graph file carries their order alone, one ring a
// channel, all channels with equal parts of the data; how transfers go is set for all of them by
// environment variables. So rings are projected: a ring of more weight gets more channels
// (share_channels of msccl_export.h), every combination of the settings is applied to the orders
// and measured again, and the fastest is exported, with the list of what was lost: edges that go by
// another kind or buffer, weights that are other ones.
//
//   JIGE_TRY(const NcclExport out, export_to_nccl(problem, plan.best[0], profiler, {2, 21}));
//   JIGE_TRY(const NcclExport out, export_to_nccl(problem, mixture, profiler, {2, 21}));
//   out.graph_xml, out.environment, out.lost, out.rate
//
// Threads: one caller.
#pragma once

#include <string>
#include <vector>

#include "plan/nccl_graph.h"
#include "plan/ring_mix_planner.h"
#include "plan/ring_planner.h"

namespace jige::plan {

struct NcclExport {
  std::string graph_xml;
  std::string environment;        // KEY=VALUE lines with comments
  std::vector<std::string> lost;  // one line for each edge or weight that stock NCCL has not
  std::vector<int32_t> channels;  // of each ring
  RingMix mix;                    // as stock NCCL would run it
  double rate = 0;                // of that, as a whole
  double planned_rate = 0;
};

// Fails with kUnsupported where there are hosts instead of GPUs.
Status check_nccl_joins(const topology::Topology& topology);

// Fails with kUnsupported where no setting can run the ring, for hosts, and for devices whose
// indices are not known.
Result<NcclExport> export_to_nccl(const RingProblem& problem, const MeasuredRing& planned,
                                  profile::Profiler& profiler, NcclVersion version);
// The same of several rings that share the data. Fails with kUnsupported for a meter that cannot
// send unequal amounts where they need them, too.
Result<NcclExport> export_to_nccl(const RingProblem& problem, const MeasuredMix& planned,
                                  profile::Profiler& profiler, NcclVersion version);

// NCCL's name of the path between two devices, or a device and a NIC: NVL NVLinks alone, PIX one
// PCIe switch, PXB several, PHB the host bridge of one NUMA node, SYS beyond.
std::string_view nccl_path_type(const topology::Topology& topology, int32_t a, int32_t b);

}  // namespace jige::plan
