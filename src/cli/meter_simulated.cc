#include "cli/meter_simulated.h"

#include "cli/flags.h"
#include "profile/simulated_meter.h"

namespace jige::cli {
namespace {

constexpr int64_t kDeviceTransferBytes = int64_t{32} << 20;
constexpr int64_t kHostTransferBytes = int64_t{1} << 20;

}  // namespace

void SimulatedKind::declare(Flags& flags) {
  flags.number("--noise X", noise_, {.min = 0, .max = 0.5},
               "relative deviation of simulated times from run to run");
}

OpenedMeter SimulatedKind::of(topology::Topology topology, const MeterRequest& request) const {
  const bool hosts = topology.of_kind(topology::ComponentKind::kDevice).empty();
  const int64_t usual_bytes = hosts ? kHostTransferBytes : kDeviceTransferBytes;
  const int64_t bytes = request.transfer_bytes > 0 ? request.transfer_bytes : usual_bytes;
  OpenedMeter result{.topology = std::make_unique<topology::Topology>(std::move(topology))};
  result.meter = std::make_unique<profile::SimulatedMeter>(
      *result.topology,
      profile::SimulatedMeterOptions{.bytes = static_cast<double>(bytes),
                                     .noise = noise_,
                                     .seed = static_cast<uint64_t>(request.seed)});
  return result;
}

Result<OpenedMeter> SimulatedKind::open(const TopologyFlags& source,
                                        const MeterRequest& request) const {
  JIGE_TRY(topology::Topology topology, source.load());
  return of(std::move(topology), request);
}

}  // namespace jige::cli
