// The GPUs of a run: one, or for a pipeline several, whose parts its logical devices are in turns.
//
// Unequal GPUs are planned for by the least: every device has what the fullest GPU has for one.
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
Result<std::vector<std::unique_ptr<Device>>> make_gpus(const TrainOptions& options);
std::vector<Device*> pointers(const std::vector<std::unique_ptr<Device>>& gpus);

// What they have left now, together. Fails as cuda_free_bytes.
Result<int64_t> gpus_free_bytes(const TrainOptions& options);

// Sees what each GPU has left, or the memory limit, which is one GPU's; gives a pipeline's devices
// equal parts of the one that has least for each where options name no budget. Returns what the
// GPUs may be asked for together. Fails with kExhausted where the budget is more than a GPU has for
// each of its devices, and as cuda_free_bytes. REQUIRES: a GPU, a pipeline.
Result<int64_t> share_gpus(TrainOptions& options);

}  // namespace jige::train
