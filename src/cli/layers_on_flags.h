// Who holds layers of a model besides what computes here, for commands that run one: other machines
// (`jige layers`, --layers-on), and the GPUs that --device names behind the first.
//
// Threads: one thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/device_flags.h"
#include "cli/layer_flags.h"
#include "comm/socket.h"
#include "serve/divided_model.h"

namespace jige::cli {

class Flags;

inline constexpr int kLayersPort = 29610;

// "ADDRESS[:PORT]"; fails with kInvalidArgument, naming the flag.
Result<comm::Address> parse_layers_address(std::string_view text, std::string_view flag);

struct LayersOnFlags {
  std::string machines;
  std::optional<int64_t> here;   // layers
  std::optional<double> wait_s;  // for machines that were lost, of who declares it

  void declare(Flags& flags);
  void declare_wait(Flags& flags);
  // Whether a model is to be divided.
  bool divide(const DeviceFlags& device) const {
    return !machines.empty() || device.names_several();
  }
  // Fails with kInvalidArgument on flags that contradict one another, and as gpu_indices().
  Status check(const DeviceFlags& device) const;
  // How long lost machines are asked again.
  double restore_s() const;
  // Rows of a forward of who reads prompts alone, and not many answers at once: where GPUs share a
  // model, a piece for each that has layers, so that all compute at once.
  int64_t batch_tokens(const DeviceFlags& device, int64_t usual) const;
  // Connects, divides and loads, and says who holds what; `divided` says what the flags do not.
  // Takes the other GPUs. Fails as load_divided does, and with kUnsupported where layers are to
  // stream. REQUIRES: divide().
  Result<serve::DividedModel> load(const std::string& folder, ComputeDevices& devices,
                                   const DeviceFlags& device, const LayerFlags& layers,
                                   const model::InferenceOptions& options,
                                   serve::DividedOptions divided) const;

 private:
  // The other GPUs and machines.
  Result<serve::LayerGroupOptions> group(const std::string& folder, ComputeDevices& devices,
                                         const DeviceFlags& device, const LayerFlags& layers) const;
};

// What layers and caches may take of this machine, or of a GPU: the limit, else three quarters of
// what is free, of a GPU all but a sixteenth. Fails as cuda_free_bytes().
Result<int64_t> layers_memory_bytes(const DeviceFlags& device, std::optional<int> gpu);

}  // namespace jige::cli
