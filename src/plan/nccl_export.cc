#include "plan/nccl_export.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

namespace jige::plan {

using topology::ComponentKind;
using topology::Engine;
using topology::Topology;
using topology::Transfer;
using topology::TransferKind;

namespace {

constexpr std::array<std::string_view, 4> kPaths = {"PIX", "PXB", "PHB", "SYS"};

size_t path_rank(std::string_view path) {
  return static_cast<size_t>(std::ranges::find(kPaths, path) - kPaths.begin());
}

// The settings that all transfers of a communicator share.
struct Settings {
  size_t peer_levels = 0;  // paths up to this many of kPaths go directly; 0: none
  bool read = false;
  bool buffer_at_sender = false;
};

std::optional<int32_t> find_way(const RingProblem& problem, int32_t from, int32_t to,
                                const Settings& settings) {
  const Topology& t = *problem.topology;
  for (const int32_t way : problem.edge(from, to)) {
    const Transfer& transfer = problem.at(way).transfer;
    if (transfer.engine != Engine::kKernel) continue;
    const bool direct =
        path_rank(nccl_path_type(t, transfer.src, transfer.dst)) < settings.peer_levels;
    if (direct) {
      if (transfer.kind == (settings.read ? TransferKind::kPull : TransferKind::kPush)) return way;
    } else if (transfer.kind == TransferKind::kStaged) {
      const int32_t owner = settings.buffer_at_sender ? transfer.src : transfer.dst;
      if (t.component(transfer.via).numa == t.component(owner).numa) return way;
    }
  }
  return std::nullopt;
}

std::optional<Ring> project(const RingProblem& problem, const Ring& ring,
                            const Settings& settings) {
  Ring projected;
  for (const int32_t candidate : ring) {
    const RingCandidate& edge = problem.at(candidate);
    const std::optional<int32_t> way = find_way(problem, edge.from, edge.to, settings);
    if (!way) return std::nullopt;
    projected.push_back(*way);
  }
  return projected;
}

std::string environment_of(const Settings& s, NcclVersion version, double rate,
                           std::string_view source) {
  std::string text = fmt::format(
      "# For one job, with the graph file beside it; not for /etc/nccl.conf. The same devices "
      "must\n"
      "# be visible as when it was planned. {} rate of the ring: {:.3f} GB/s.\n"
      "NCCL_GRAPH_FILE=graph.xml\n"
      "NCCL_ALGO=Ring\n",
      source, rate);
  if (s.peer_levels == 0) {
    text += "NCCL_P2P_DISABLE=1\n";
  } else {
    text += fmt::format("NCCL_P2P_LEVEL={}\nNCCL_P2P_READ_ENABLE={}\n", kPaths[s.peer_levels - 1],
                        s.read ? 1 : 0);
  }
  if (s.peer_levels < kPaths.size()) {
    text += fmt::format("NCCL_SHM_DISABLE=0\nNCCL_SHM_LOCALITY={}\n", s.buffer_at_sender ? 1 : 2);
    if (version < NcclVersion{2, 23}) {
      text +=
          "# Before 2.23 buffers lie where the owner's process runs: bind each process to the\n"
          "# NUMA node of its GPU.\n";
    }
  }
  return text;
}

// The number NCCL knows a component by: as described, otherwise its place among its kind.
int32_t device_number(const Topology& t, int32_t component) {
  const topology::Component& c = t.component(component);
  if (c.index >= 0) return c.index;
  const std::vector<int32_t> alike = t.of_kind(c.kind);
  return static_cast<int32_t>(std::ranges::find(alike, component) - alike.begin());
}

Result<std::string> graph_of(const RingProblem& problem, const Ring& ring, double rate,
                             NcclVersion version) {
  const Topology& t = *problem.topology;
  NcclChannel channel;
  size_t worst = 0;
  for (const int32_t candidate : ring) {
    const Transfer& transfer = problem.at(candidate).transfer;
    const bool enters = t.component(transfer.src).kind == ComponentKind::kNic;
    const bool leaves = t.component(transfer.dst).kind == ComponentKind::kNic;
    if (enters || leaves) {
      channel.nets.push_back(device_number(t, enters ? transfer.src : transfer.dst));
    } else {
      worst = std::max(worst, path_rank(nccl_path_type(t, transfer.src, transfer.dst)));
    }
    if (!enters) channel.gpus.push_back(device_number(t, transfer.src));
  }
  NcclGraph graph{.speed_intra = rate,
                  .speed_inter = rate,
                  .type_intra = std::string(kPaths[worst]),
                  .type_inter = std::string(kPaths[worst]),
                  .channels = {channel}};
  if (channel.nets.size() == 2) graph.cross_nic = channel.nets[0] != channel.nets[1];
  // Channels are the lesser of ring's and tree's, so the tree takes the same order.
  NcclGraph tree = graph;
  tree.id = 1;
  tree.pattern = kNcclTree;
  return write_nccl_graphs({graph, tree}, version);
}

}  // namespace

std::string_view nccl_path_type(const Topology& t, int32_t a, int32_t b) {
  if (t.count_links(a, b, topology::LinkKind::kSocket) > 0) return "SYS";
  if (t.passes(a, b, ComponentKind::kHostBridge)) return "PHB";
  // A path of two links has one component between.
  return t.route(a, b).size() <= 2 ? "PIX" : "PXB";
}

Result<NcclExport> export_to_nccl(const RingProblem& problem, const MeasuredRing& planned,
                                  profile::Profiler& profiler, NcclVersion version) {
  const Topology& t = *problem.topology;
  if (t.of_kind(ComponentKind::kDevice).empty()) {
    return fail(Code::kUnsupported, "{}: NCCL joins GPUs, these are hosts", t.name());
  }
  NcclExport best;
  best.planned_rate = planned.rate;
  std::optional<Settings> chosen;
  std::map<Ring, double> measured;
  for (size_t levels = 0; levels <= kPaths.size(); ++levels) {
    for (const bool read : {false, true}) {
      for (const bool sender : {false, true}) {
        const Settings settings{levels, read, sender};
        const std::optional<Ring> ring = project(problem, planned.ring, settings);
        if (!ring) continue;
        if (!measured.contains(*ring)) {
          JIGE_TRY(const profile::Measurement m, profiler.measure(ring_transfers(problem, *ring)));
          measured[*ring] = m.rate;
        }
        if (chosen && measured[*ring] <= best.rate * (1 + 1e-9)) continue;
        chosen = settings;
        best.rate = measured[*ring];
        best.ring = *ring;
      }
    }
  }
  if (!chosen) {
    return fail(
        Code::kUnsupported,
        "{}: stock NCCL has no transports for this ring: it needs pushes, pulls or a buffer "
        "in the memory of either end",
        t.name());
  }
  for (size_t i = 0; i < planned.ring.size(); ++i) {
    if (best.ring[i] == planned.ring[i]) continue;
    best.lost.push_back(fmt::format("{} becomes {}",
                                    transfer_text(t, problem.at(planned.ring[i]).transfer),
                                    transfer_text(t, problem.at(best.ring[i]).transfer)));
  }
  JIGE_TRY(best.graph_xml, graph_of(problem, best.ring, best.rate, version));
  best.environment = environment_of(*chosen, version, best.rate, profiler.source());
  return best;
}

}  // namespace jige::plan
