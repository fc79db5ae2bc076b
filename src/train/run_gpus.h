// The GPUs of a run: one, or for a pipeline several, whose parts its logical devices are in turns.
//
// Each device has an equal part of what its GPU has left, so those of unequal GPUs are unequal.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "tensor/device.h"
#include "train/options.h"

namespace jige::train {

// Fails with kInvalidArgument on several GPUs without a pipeline, and on devices that are no
// multiple of them. REQUIRES: no GPU twice.
Status validate_gpus(const TrainOptions& options);

// Opens them, in their order. Fails as make_cuda_device.
Result<std::vector<std::unique_ptr<Device>>> make_gpus(const std::vector<int>& indices);
std::vector<Device*> pointers(const std::vector<std::unique_ptr<Device>>& gpus);

// What they have left now, together. Fails as cuda_free_bytes.
Result<int64_t> gpus_free_bytes(const TrainOptions& options);

// What a pipeline's devices may take of GPUs.
struct GpuShares {
  std::vector<int64_t> device_bytes;  // by device
  int64_t gpu_bytes = 0;              // that all GPUs may be asked for together

  bool equal() const;
};
struct GpuShareOptions {
  std::vector<int> gpus;
  int32_t devices = 1;       // a multiple of them
  int64_t device_bytes = 0;  // that each is to have; 0: its part of what its GPU has, less a
                             // sixteenth for what kernels take besides
  int64_t limit_bytes = 0;   // of each GPU; 0: what it has left now
};
// Fails with kExhausted where a device is to have more than its part, and as cuda_free_bytes.
Result<GpuShares> share_gpus(const GpuShareOptions& options);

// The same for a run, whose pipeline is given the budgets. Returns what the GPUs may be asked for
// together. Fails as share_gpus. REQUIRES: a GPU, a pipeline.
Result<int64_t> share_run_gpus(TrainOptions& options);

}  // namespace jige::train
