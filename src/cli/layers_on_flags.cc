#include "cli/layers_on_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/split.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "comm/host_address.h"
#include "train/process_memory.h"

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
                "layers that this machine, or the first GPU, holds of them (with --layers-on or "
                "several GPUs); by memory and speed unless given");
}

void LayersOnFlags::declare_wait(Flags& flags) {
  flags.number("--layers-wait SECONDS", wait_s, {.min = 0, .max = 1e7},
               fmt::format("when a machine that holds layers is lost, ask for it so long, while "
                           "requests wait; then end, with 0 at once ({:.0f})",
                           kLayersWaitS));
}

Status LayersOnFlags::check(const DeviceFlags& device) const {
  JIGE_DO(device.gpu_indices());
  if (wait_s && machines.empty()) {
    return fail(Code::kInvalidArgument,
                "--layers-wait is of machines that hold layers; name them with --layers-on");
  }
  if (!here || divide(device)) return {};
  return fail(Code::kInvalidArgument,
              "--layers-here divides a model with other machines or GPUs; name them with "
              "--layers-on or --device");
}

double LayersOnFlags::restore_s() const { return wait_s.value_or(kLayersWaitS); }

Result<int64_t> layers_memory_bytes(const DeviceFlags& device, std::optional<int> gpu) {
  if (device.memory_limit_bytes > 0) return device.memory_limit_bytes;
  if (!gpu) return train::machine_memory_bytes() / 4 * 3;
  JIGE_TRY(const int64_t free_bytes, cuda_free_bytes(*gpu));
  return without_kernels(free_bytes);
}

namespace {

// The same where --device-memory may say it of GPUs.
Result<int64_t> memory_of(const DeviceFlags& device, const LayerFlags& layers,
                          std::optional<int> gpu) {
  if (layers.device_memory_bytes == 0) return layers_memory_bytes(device, gpu);
  if (device.memory_limit_bytes == 0) return layers.device_memory_bytes;
  return std::min(device.memory_limit_bytes, layers.device_memory_bytes);
}

}  // namespace

Result<serve::LayerGroupOptions> LayersOnFlags::group(const std::string& folder,
                                                      ComputeDevices& devices,
                                                      const DeviceFlags& device,
                                                      const LayerFlags& layers) const {
  serve::LayerGroupOptions group{.gpu = devices.gpu_as_computer(), .cancelled = &interrupt_flag()};
  for (OtherGpu& gpu : devices.others) {
    JIGE_TRY(const int64_t memory_bytes, memory_of(device, layers, gpu.info.index));
    JIGE_TRY(group.local.emplace_back(),
             serve::LocalHolder::create(gpu.name, std::move(gpu.device),
                                        {.folder = folder,
                                         .gpu = serve::gpu_as_computer(gpu.info),
                                         .memory_bytes = memory_bytes}));
  }
  devices.others.clear();
  if (machines.empty()) return group;
  for (const std::string_view machine : split_at(machines, ',')) {
    JIGE_TRY(comm::Address address, parse_layers_address(machine, "--layers-on"));
    group.holders.push_back(std::move(address));
  }
  if (group.holders.size() > kMachinesMax) {
    return fail(Code::kInvalidArgument, "--layers-on names {} machines; {} at most",
                group.holders.size(), kMachinesMax);
  }
  return group;
}

Result<serve::DividedModel> LayersOnFlags::load(const std::string& folder, ComputeDevices& devices,
                                                const DeviceFlags& device, const LayerFlags& layers,
                                                const model::InferenceOptions& options,
                                                serve::DividedOptions divided) const {
  if (layers.resident_layers) {
    return fail(Code::kUnsupported,
                "--resident-layers: the layers of a model that is divided among machines or GPUs "
                "do not stream from the host's memory");
  }
  JIGE_TRY(const std::optional<int> gpu, device.gpu_index());
  JIGE_TRY(divided.memory_bytes, memory_of(device, layers, gpu));
  divided.layers_here = here;
  JIGE_TRY(const serve::LayerGroupOptions asked, group(folder, devices, device, layers));
  JIGE_TRY(auto connected, serve::LayerGroup::connect(folder, asked));
  JIGE_TRY(auto model,
           serve::load_divided(folder, devices.compute(), options, std::move(connected), divided));
  log_info("{}", serve::shares_text(model.shares));
  if (!model.beyond) log_warn("the whole model is here, nobody else has layers");
  return model;
}

int64_t LayersOnFlags::batch_tokens(const DeviceFlags& device, int64_t usual) const {
  const auto gpus = device.gpu_indices();
  if (!gpus || gpus->empty() || !divide(device)) return usual;
  const auto others = machines.empty() ? 0 : std::ssize(split_at(machines, ','));
  return usual * (std::ssize(*gpus) + others);
}

}  // namespace jige::cli
