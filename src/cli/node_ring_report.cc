#include "cli/node_ring_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "topology/reference_topologies.h"

namespace jige::cli {
namespace {

constexpr size_t kNodesMax = 1024;

// A kind of machine; at one place in memory, for plans refer to it.
struct Machine {
  std::string source;
  topology::Topology topology;
};

Result<topology::Topology> load_machine(const std::string& source) {
  const auto names = topology::reference_topology_names();
  const bool reference = std::ranges::find(names, source) != names.end();
  TopologyFlags flags;
  (reference ? flags.reference : flags.file) = source;
  return flags.load();
}

const plan::ChainTable& table_of(const std::vector<plan::ChainTable>& tables,
                                 const std::vector<int32_t>& classes, int32_t node) {
  return tables[static_cast<size_t>(classes[static_cast<size_t>(node)])];
}

NodeRingReport report(const std::vector<plan::ChainTable>& tables,
                      const std::vector<int32_t>& classes, const plan::NodeRing& ring) {
  Table table({{"machine", Table::Align::kRight},
               {"kind"},
               {"in"},
               {"out"},
               {"GB/s", Table::Align::kRight},
               {"chain"}});
  NodeRingReport result;
  result.json = {{"rates", "simulated"},
                 {"rate", ring.rate},
                 {"rank_order_rate", ring.rank_order_rate},
                 {"exact_order", ring.exact},
                 {"machines", Json::array()}};
  for (size_t i = 0; i < ring.order.size(); ++i) {
    const plan::ChainTable& kind = table_of(tables, classes, ring.order[i]);
    const plan::Chain& chain = kind.chains.at(ring.nics[i]);
    const topology::Topology& t = *kind.node_class.topology;
    const std::string in = t.component(ring.nics[i].first).name;
    const std::string out = t.component(ring.nics[i].second).name;
    table.row({fmt::format("{}", ring.order[i]), kind.node_class.name, in, out,
               fmt::format("{:.3f}", chain.best.rate),
               plan::ring_text(chain.problem, chain.best.ring)});
    Json transfers = Json::array();
    for (const auto& transfer : plan::ring_transfers(chain.problem, chain.best.ring)) {
      transfers.push_back(topology::transfer_text(t, transfer));
    }
    result.json["machines"].push_back({{"machine", ring.order[i]},
                                       {"kind", kind.node_class.name},
                                       {"entry", in},
                                       {"exit", out},
                                       {"rate", chain.best.rate},
                                       {"gap", chain.gap},
                                       {"transfers", std::move(transfers)}});
  }
  result.text = fmt::format(
      "ring over {} machines; all rates simulated\n{}\n{:.3f} GB/s by the slowest part; machines "
      "in "
      "the order given: {:.3f}; {}\n",
      ring.order.size(), table.render(), ring.rate, ring.rank_order_rate,
      ring.exact ? "all orders were considered" : "orders were sampled, not all considered");
  return result;
}

}  // namespace

Result<NodeRingReport> plan_over_nodes(const NodeRingRequest& request, const LinkFlags& links,
                                       const plan::RingPlanOptions& options) {
  if (request.nodes.size() > kNodesMax) {
    return fail(Code::kInvalidArgument, "--nodes: {} machines, at most {}", request.nodes.size(),
                kNodesMax);
  }
  std::vector<std::unique_ptr<Machine>> machines;
  std::vector<plan::ChainTable> tables;
  std::vector<int32_t> classes;
  for (const std::string& source : request.nodes) {
    const auto known = std::ranges::find_if(
        machines, [&](const auto& machine) { return machine->source == source; });
    classes.push_back(static_cast<int32_t>(known - machines.begin()));
    if (known != machines.end()) continue;
    JIGE_TRY(topology::Topology loaded, load_machine(source));
    machines.push_back(std::make_unique<Machine>(Machine{source, std::move(loaded)}));
    const topology::Topology& t = machines.back()->topology;
    JIGE_TRY(std::vector<int32_t> devices, links.chosen_devices(t));
    JIGE_TRY(const std::unique_ptr<LinkBench> bench, LinkBench::simulate(t, links));
    JIGE_TRY(plan::ChainTable table,
             plan::measure_chains(
                 {source, &t, std::move(devices), t.of_kind(topology::ComponentKind::kNic)},
                 bench->profiler(), options));
    tables.push_back(std::move(table));
  }
  const double rate = request.network_gb_per_s > 0 ? request.network_gb_per_s
                                                   : std::numeric_limits<double>::infinity();
  // Where rails do not meet, a ring is still possible, but at no useful rate.
  constexpr double kApart = 1e-9;
  const auto nic_number = [&](plan::NodePort port) {
    const auto& nics = table_of(tables, classes, port.node).node_class.nics;
    return std::ranges::find(nics, port.nic) - nics.begin();
  };
  const plan::NodeLinkRate link = [&](plan::NodePort from, plan::NodePort to) {
    return request.rails && nic_number(from) != nic_number(to) ? kApart : rate;
  };
  JIGE_TRY(const plan::NodeRing ring, plan::plan_node_ring(tables, classes, link, {}));
  if (ring.rate <= kApart) {
    return fail(
        Code::kInvalidArgument,
        "--rails: no order of the machines joins NICs of the same number all the way round");
  }
  return report(tables, classes, ring);
}

}  // namespace jige::cli
