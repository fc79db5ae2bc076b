// The flags of commands that run a model on a GPU which may have no room for all of its layers:
// those that do not fit stream from the host's memory (serve/layer_fit.h).
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/device_flags.h"
#include "model/inference.h"
#include "serve/layer_fit.h"

namespace jige::cli {

class Flags;

struct LayerFlags {
  int64_t device_memory_bytes = 0;  // 0: nobody said
  std::optional<int64_t> resident_layers;

  void declare(Flags& flags);
  // Of what the device has: --device-memory, else what without_kernels() leaves of what is free
  // there now; with --memory-limit alone, which refuses what does not fit, no layer
  // streams by itself. Fails with kInvalidArgument where a flag is given for a CPU, and as
  // cuda_free_bytes().
  Result<serve::LayerBudget> budget(const DeviceFlags& device) const;
};

// What a model may take of so many free bytes of a GPU: less a sixteenth, for what kernels take
// besides.
int64_t without_kernels(int64_t free_bytes);

// "24 of 32 layers on the GPU, 8 stream from memory: at least 13.1 ms an iteration at 24.8 GB/s";
// empty where all are there.
std::string streamed_layers_text(const model::InferenceModel& model);
// Says it in the log, where it is so.
void tell_streamed_layers(const model::InferenceModel& model);

}  // namespace jige::cli
