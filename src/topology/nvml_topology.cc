#include "topology/nvml_topology.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "base/log.h"
#include "topology/nvlinks.h"

namespace jige::topology {
namespace {

int32_t device_at(const Description& d, const std::string& address) {
  for (size_t i = 0; i < d.components.size(); ++i) {
    const Component& c = d.components[i];
    if (c.kind == ComponentKind::kDevice && c.address == address) return static_cast<int32_t>(i);
  }
  return -1;
}

void set_pcie_rate(Description& d, int32_t device, const NvmlGpu& gpu) {
  const int32_t width = gpu.width > 0 ? gpu.width : gpu.width_max;
  const double speed = pcie_gt_per_s(gpu.generation_max > 0 ? gpu.generation_max : gpu.generation);
  const auto upwards =
      std::ranges::find_if(d.links, [&](const Link& link) { return link.from == device; });
  if (width == 0 || speed == 0 || upwards == d.links.end()) return;
  upwards->width = width;
  upwards->gt_per_s = speed;
  upwards->gb_per_s = upwards->back_gb_per_s = pcie_gb_per_s(width, speed);
  if (gpu.width > 0 && gpu.width < gpu.width_max) {
    log_warn("{}: its PCIe link has {} lanes of {}", d.components[static_cast<size_t>(device)].name,
             gpu.width, gpu.width_max);
  }
}

// NVML's indices go first; other devices are numbered after them.
void set_indices(Description& d, const std::map<int32_t, const NvmlGpu*>& gpus) {
  int32_t next = 0;
  for (const auto& [device, gpu] : gpus) next = std::max(next, gpu->index + 1);
  for (size_t i = 0; i < d.components.size(); ++i) {
    if (d.components[i].kind != ComponentKind::kDevice) continue;
    const auto known = gpus.find(static_cast<int32_t>(i));
    d.components[i].index = known == gpus.end() ? next++ : known->second->index;
  }
}

void count_nvlink(Description& d, int32_t device, const NvmlLink& link, NvlinkRates& rates) {
  int32_t other = -1;
  if (link.end == NvmlLink::End::kSwitch) other = nvswitch(d);
  if (link.end == NvmlLink::End::kGpu) other = device_at(d, link.address);
  if (other < 0 || other == device) return;  // to a GPU of another machine, or to a processor
  rates[{device, other}] += nvlink_gb_per_s(link.version);
}

}  // namespace

double pcie_gt_per_s(int32_t generation) {
  constexpr double kSpeeds[] = {2.5, 5, 8, 16, 32, 64, 128};
  if (generation < 1 || generation > static_cast<int32_t>(std::size(kSpeeds))) return 0;
  return kSpeeds[generation - 1];
}

void add_nvml(Description& d, const NvmlReport& report) {
  std::map<int32_t, const NvmlGpu*> gpus;  // by component
  for (const NvmlGpu& gpu : report.gpus) {
    const int32_t device = device_at(d, gpu.address);
    if (device < 0) {
      log_warn(
          "NVML tells of GPU {} at {}, which {} does not show: it is left out; describe the "
          "machine in a file to have it",
          gpu.index, gpu.address, d.name);
      continue;
    }
    gpus[device] = &gpu;
    set_pcie_rate(d, device, gpu);
  }
  set_indices(d, gpus);
  NvlinkRates rates;
  for (const auto& [device, gpu] : gpus) {
    for (const NvmlLink& link : gpu->links) count_nvlink(d, device, link, rates);
  }
  join_nvlinks(d, rates);
  if (!report.driver.empty()) d.environment["driver"] = report.driver;
}

}  // namespace jige::topology
