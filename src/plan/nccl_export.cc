#include "plan/nccl_export.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "plan/msccl_export.h"

namespace jige::plan {

using topology::ComponentKind;
using topology::Engine;
using topology::Topology;
using topology::Transfer;
using topology::TransferKind;

namespace {

constexpr std::array<std::string_view, 5> kPaths = {"NVL", "PIX", "PXB", "PHB", "SYS"};
constexpr std::string_view kNoNicPath = "PIX";  // as dumps of one machine have it

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

// The best any setting gives so far.
struct Projection {
  Settings settings;
  std::vector<Ring> rings;
  double rate = 0;
};

class NcclExporter {
 public:
  NcclExporter(const RingProblem& problem, const MeasuredMix& planned, profile::Profiler& profiler,
               NcclVersion version)
      : problem_(problem),
        topology_(*problem.topology),
        planned_(planned),
        profiler_(profiler),
        version_(version) {
    std::vector<double> weights;
    for (const WeightedRing& ring : planned.mix.rings) weights.push_back(ring.weight);
    out_.channels = share_channels(weights);
    out_.planned_rate = planned.rate;
    channel_count_ = std::accumulate(out_.channels.begin(), out_.channels.end(), 0);
  }

  Result<NcclExport> run() {
    JIGE_TRY(const Projection best, find_settings());
    for (size_t r = 0; r < best.rings.size(); ++r) {
      out_.mix.rings.push_back({best.rings[r], share_of(r)});
    }
    out_.mix.predicted = out_.rate = best.rate;
    list_losses();
    JIGE_TRY(out_.graph_xml, graph());
    out_.environment = environment_of(best.settings, version_, best.rate, profiler_.source());
    return std::move(out_);
  }

 private:
  const std::vector<WeightedRing>& rings() const { return planned_.mix.rings; }
  double share_of(size_t ring) const {
    return static_cast<double>(out_.channels[ring]) / channel_count_;
  }

  // Measures the planned orders under every setting by which all their edges can go.
  Result<Projection> find_settings() {
    std::optional<Projection> best;
    std::map<std::vector<Ring>, double> measured;
    for (size_t levels = 0; levels <= kPaths.size(); ++levels) {
      for (const bool read : {false, true}) {
        for (const bool sender : {false, true}) {
          const Settings settings{levels, read, sender};
          const std::vector<Ring> projected = project_all(settings);
          if (projected.empty()) continue;
          if (!measured.contains(projected)) {
            JIGE_TRY(measured[projected], measure(projected));
          }
          const double rate = measured[projected];
          if (best && rate <= best->rate * (1 + 1e-9)) continue;
          best = Projection{settings, projected, rate};
        }
      }
    }
    if (best) return std::move(*best);
    return fail(
        Code::kUnsupported,
        "{}: stock NCCL has no transports for this ring: it needs pushes, pulls or a buffer "
        "in the memory of either end",
        topology_.name());
  }

  // None where one of the rings cannot run.
  std::vector<Ring> project_all(const Settings& settings) const {
    std::vector<Ring> projected;
    for (const WeightedRing& ring : rings()) {
      std::optional<Ring> one = project(problem_, ring.ring, settings);
      if (!one) return {};
      projected.push_back(std::move(*one));
    }
    return projected;
  }

  Result<double> measure(const std::vector<Ring>& projected) {
    if (projected.size() == 1) {
      JIGE_TRY(const profile::Measurement m,
               profiler_.measure(ring_transfers(problem_, projected.front())));
      return m.rate;
    }
    RingMix mix;
    for (size_t r = 0; r < projected.size(); ++r) {
      mix.rings.push_back({projected[r], share_of(r)});
    }
    std::vector<topology::Transfer> set;
    std::vector<double> shares;
    for (const TransferShare& s : mix_shares(mix)) {
      set.push_back(problem_.at(s.candidate).transfer);
      shares.push_back(s.share);
    }
    JIGE_TRY(const profile::Measurement m, profiler_.measure_shares(set, shares));
    return m.rate;
  }

  void list_losses() {
    for (size_t r = 0; r < rings().size(); ++r) {
      const Ring& planned = rings()[r].ring;
      const Ring& run = out_.mix.rings[r].ring;
      for (size_t i = 0; i < planned.size(); ++i) {
        if (run[i] == planned[i]) continue;
        std::string line =
            fmt::format("{} becomes {}", transfer_text(topology_, problem_.at(planned[i]).transfer),
                        transfer_text(topology_, problem_.at(run[i]).transfer));
        if (std::ranges::find(out_.lost, line) == out_.lost.end()) {
          out_.lost.push_back(std::move(line));
        }
      }
      if (std::fabs(share_of(r) - rings()[r].weight) <= 1e-3) continue;
      out_.lost.push_back(fmt::format(
          "ring {} gets {} of {} channels, {:.1f} % of the data instead of {:.1f} %", r,
          out_.channels[r], channel_count_, 100 * share_of(r), 100 * rings()[r].weight));
    }
    if (channel_count_ == 1) return;
    out_.lost.push_back(fmt::format(
        "messages too small for {} channels take the first of them alone", channel_count_));
  }

  // The farthest path of channels, between devices and to NICs.
  struct Farthest {
    size_t intra = 0;
    size_t inter = path_rank(kNoNicPath);
  };

  // The channel of a ring; notes the farthest paths within it.
  NcclChannel channel_of(const Ring& ring, Farthest& farthest) const {
    NcclChannel channel;
    for (const int32_t candidate : ring) {
      const Transfer& transfer = problem_.at(candidate).transfer;
      const bool enters = topology_.component(transfer.src).kind == ComponentKind::kNic;
      const bool leaves = topology_.component(transfer.dst).kind == ComponentKind::kNic;
      const size_t path = path_rank(nccl_path_type(topology_, transfer.src, transfer.dst));
      size_t& worst = enters || leaves ? farthest.inter : farthest.intra;
      worst = std::max(worst, path);
      if (enters || leaves) {
        channel.nets.push_back(device_number(topology_, enters ? transfer.src : transfer.dst));
      }
      if (!enters) channel.gpus.push_back(device_number(topology_, transfer.src));
    }
    return channel;
  }

  Result<std::string> graph() const {
    Farthest farthest;
    NcclGraph graph{.same_channels = rings().size() == 1, .channels = {}};
    // Rings in turns, so that few channels are not all of one ring.
    for (int32_t turn = 0; turn < std::ranges::max(out_.channels); ++turn) {
      for (size_t r = 0; r < rings().size(); ++r) {
        if (turn >= out_.channels[r]) continue;
        graph.channels.push_back(channel_of(out_.mix.rings[r].ring, farthest));
        const std::vector<int32_t>& nets = graph.channels.back().nets;
        graph.cross_nic = graph.cross_nic || (nets.size() == 2 && nets[0] != nets[1]);
      }
    }
    graph.speed_intra = graph.speed_inter = out_.rate / channel_count_;
    graph.type_intra = std::string(kPaths[farthest.intra]);
    graph.type_inter = std::string(kPaths[farthest.inter]);
    // Channels are the lesser of ring's and tree's, so the tree takes the same orders.
    NcclGraph tree = graph;
    tree.id = 1;
    tree.pattern = kNcclTree;
    return write_nccl_graphs({graph, tree}, version_);
  }

  const RingProblem& problem_;
  const Topology& topology_;
  const MeasuredMix& planned_;
  profile::Profiler& profiler_;
  NcclVersion version_;
  int32_t channel_count_ = 0;
  NcclExport out_;
};

}  // namespace

std::string_view nccl_path_type(const Topology& t, int32_t a, int32_t b) {
  if (t.count_links(a, b, topology::LinkKind::kSocket) > 0) return "SYS";
  if (t.passes(a, b, ComponentKind::kHostBridge)) return "PHB";
  const std::span<const topology::Hop> route = t.route(a, b);
  const auto nvlinks = static_cast<size_t>(t.count_links(a, b, topology::LinkKind::kNvlink));
  if (!route.empty() && nvlinks == route.size()) return "NVL";
  // A path of two links has one component between.
  return route.size() <= 2 ? "PIX" : "PXB";
}

Status check_nccl_joins(const Topology& topology) {
  if (!topology.of_kind(ComponentKind::kDevice).empty()) return {};
  return fail(Code::kUnsupported, "{}: NCCL joins GPUs, these are hosts", topology.name());
}

Result<NcclExport> export_to_nccl(const RingProblem& problem, const MeasuredMix& planned,
                                  profile::Profiler& profiler, NcclVersion version) {
  JIGE_DO(check_nccl_joins(*problem.topology));
  return NcclExporter(problem, planned, profiler, version).run();
}

Result<NcclExport> export_to_nccl(const RingProblem& problem, const MeasuredRing& planned,
                                  profile::Profiler& profiler, NcclVersion version) {
  const MeasuredMix alone{.name = {}, .mix = {.rings = {{planned.ring, 1}}}, .rate = planned.rate};
  return export_to_nccl(problem, alone, profiler, version);
}

}  // namespace jige::plan
