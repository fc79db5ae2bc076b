// --layers-on: other machines that hold layers of a model (`jige layers`), for commands that run
// one.
//
// Threads: one thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/device_flags.h"
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
  bool given() const { return !machines.empty(); }
  // Fails with kInvalidArgument on flags that contradict one another.
  Status check() const;
  // How long lost machines are asked again.
  double restore_s() const;
  // Connects, divides and loads, and says who holds what; `divided` says what the flags do not.
  // Fails as load_divided does, and with kUnsupported on a GPU. REQUIRES: given().
  Result<serve::DividedModel> load(const std::string& folder, const ComputeDevices& devices,
                                   const DeviceFlags& device,
                                   const model::InferenceOptions& options,
                                   serve::DividedOptions divided) const;
};

// What layers and caches may take of this machine: the limit, else three quarters of what is free.
Result<int64_t> layers_memory_bytes(const DeviceFlags& device);

}  // namespace jige::cli
