#include "cli/layers_on_flags.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/split.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "comm/host_address.h"

namespace jige::cli {
namespace {

constexpr size_t kMachinesMax = 64;
constexpr double kLayersWaitS = 300;

}  // namespace

Result<comm::Address> parse_layers_address(std::string_view text, std::string_view flag) {
  return comm::parse_host_address(text, kLayersPort, flag);
}

void LayersOnFlags::declare(Flags& flags) {
  flags.text("--layers-on LIST", machines,
             fmt::format("machines that hold layers of the model besides this one, where `jige "
                         "layers` runs: ADDRESS[:PORT], separated by commas; port {} unless given",
                         kLayersPort));
  flags.integer("--layers-here N", here, {.min = 0, .max = 1 << 20},
                "layers that this machine holds of them (with --layers-on); by memory and threads "
                "unless given");
}

void LayersOnFlags::declare_wait(Flags& flags) {
  flags.number("--layers-wait SECONDS", wait_s, {.min = 0, .max = 1e7},
               fmt::format("when a machine that holds layers is lost, ask for it so long, while "
                           "requests wait; then end, with 0 at once ({:.0f})",
                           kLayersWaitS));
}

Status LayersOnFlags::check() const {
  if (given()) return {};
  if (wait_s) {
    return fail(Code::kInvalidArgument,
                "--layers-wait is of machines that hold layers; name them with --layers-on");
  }
  if (!here) return {};
  return fail(Code::kInvalidArgument,
              "--layers-here divides a model with other machines; name them with --layers-on");
}

double LayersOnFlags::restore_s() const { return wait_s.value_or(kLayersWaitS); }

Result<int64_t> layers_memory_bytes(const DeviceFlags& device) {
  JIGE_TRY(const int64_t bytes, device.memory_bytes());
  return device.memory_limit_bytes > 0 ? bytes : bytes / 4 * 3;
}

Result<serve::DividedModel> LayersOnFlags::load(const std::string& folder,
                                                const ComputeDevices& devices,
                                                const DeviceFlags& device,
                                                const model::InferenceOptions& options,
                                                serve::DividedOptions divided) const {
  if (devices.on_gpu()) {
    return fail(Code::kUnsupported,
                "--layers-on does not go with --device {}; processors hold layers", device.device);
  }
  serve::LayerGroupOptions group{.cancelled = &interrupt_flag()};
  for (const std::string_view machine : split_at(machines, ',')) {
    JIGE_TRY(comm::Address address, parse_layers_address(machine, "--layers-on"));
    group.holders.push_back(std::move(address));
  }
  if (group.holders.size() > kMachinesMax) {
    return fail(Code::kInvalidArgument, "--layers-on names {} machines; {} at most",
                group.holders.size(), kMachinesMax);
  }
  JIGE_TRY(divided.memory_bytes, layers_memory_bytes(device));
  divided.layers_here = here;
  JIGE_TRY(auto connected, serve::LayerGroup::connect(folder, group));
  JIGE_TRY(auto model,
           serve::load_divided(folder, *devices.host, options, std::move(connected), divided));
  log_info("{}", serve::shares_text(model.shares));
  if (!model.beyond) log_warn("--layers-on: the whole model fits here, nobody else has layers");
  return model;
}

}  // namespace jige::cli
