#include "cli/topology_flags.h"

#include <fmt/format.h>

#include "cli/flags.h"
#include "topology/nccl_topology.h"
#include "topology/reference_topologies.h"
#include "topology/sysfs_topology.h"
#include "topology/topology_json.h"

namespace jige::cli {
namespace {

constexpr int64_t kDeviceTransferBytes = int64_t{32} << 20;
constexpr int64_t kHostTransferBytes = int64_t{1} << 20;

}  // namespace

void TopologyFlags::declare(Flags& flags, std::string_view file_flag) {
  flags.section("Machine or network");
  flags.text(fmt::format("{} FILE", file_flag), file,
             "a description as JSON, or NCCL's topology as .xml; without one, this machine");
  flags.text("--reference NAME", reference,
             fmt::format("a machine or network that Jige knows: {}",
                         fmt::join(topology::reference_topology_names(), ", ")));
}

Result<topology::Topology> TopologyFlags::load() const {
  if (!file.empty() && !reference.empty()) {
    return fail(Code::kInvalidArgument, "give a file or --reference, not both");
  }
  if (file.ends_with(".xml")) return topology::load_nccl_topology(file);
  if (!file.empty()) return topology::load_topology(file);
  if (!reference.empty()) return topology::reference_topology(reference);
  return topology::sysfs_topology();
}

void LinkFlags::declare(Flags& flags) {
  flags.section("Transfers and their rates (simulated)");
  flags.text("--devices NAMES", devices, "these alone, separated by commas");
  flags.text("--store FILE", store_file,
             "keep what is measured here, and use what is there (JSON lines)");
  flags.toggle("--no-push", no_push, "without writes into another device");
  flags.toggle("--no-pull", no_pull, "without reads from another device");
  flags.toggle("--no-staged", no_staged, "without buffers in host memory");
  flags.toggle("--copy-engines", copy_engines, "copy engines as well, where they are described");
  flags.bytes("--transfer-bytes SIZE", transfer_bytes,
              "of every transfer in a measurement; without it 32 MiB, between hosts 1 MiB");
  flags.number("--noise X", noise, {.min = 0, .max = 0.5},
               "relative deviation of simulated times from run to run");
  flags.integer("--seed N", seed, {.min = 0}, "of the noise and of every sample drawn");
}

Result<std::vector<int32_t>> LinkFlags::chosen_devices(const topology::Topology& topology) const {
  if (devices.empty()) return plan::ring_devices(topology);
  std::vector<int32_t> chosen;
  std::string_view rest = devices;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view name = rest.substr(0, comma);
    const int32_t found = topology.find(name);
    if (found < 0) {
      return fail(Code::kNotFound, "--devices: {} has no component \"{}\"", topology.name(), name);
    }
    chosen.push_back(found);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return chosen;
}

Result<std::unique_ptr<LinkBench>> LinkBench::open(const topology::Topology& topology,
                                                   const LinkFlags& flags) {
  const bool hosts = topology.of_kind(topology::ComponentKind::kDevice).empty();
  const int64_t usual_bytes = hosts ? kHostTransferBytes : kDeviceTransferBytes;
  const profile::SimulatedMeterOptions options{
      .bytes = static_cast<double>(flags.transfer_bytes > 0 ? flags.transfer_bytes : usual_bytes),
      .noise = flags.noise,
      .seed = static_cast<uint64_t>(flags.seed)};
  std::unique_ptr<LinkBench> bench(new LinkBench(topology, options));
  profile::MeasurementStore* store = nullptr;
  if (!flags.store_file.empty()) {
    JIGE_TRY(profile::MeasurementStore opened,
             profile::MeasurementStore::open(flags.store_file, topology, bench->meter_.source()));
    bench->store_.emplace(std::move(opened));
    store = &*bench->store_;
  }
  bench->profiler_.emplace(topology, bench->meter_, store);
  return bench;
}

}  // namespace jige::cli
