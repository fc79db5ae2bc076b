#include "train/run_gpus.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "tensor/cuda_device.h"
#include "train/logical_device.h"

namespace jige::train {

Status validate_gpus(const TrainOptions& options) {
  const std::set<int> different(options.gpus.begin(), options.gpus.end());
  const auto count = std::ssize(options.gpus);
  JIGE_CHECK(std::ssize(different) == count, "{} GPUs, {} of them different", count,
             different.size());
  if (count <= 1) return {};
  if (!options.pipeline) {
    return fail(Code::kInvalidArgument,
                "{} GPUs train one model by a schedule alone: give --devices {}, or one GPU", count,
                count);
  }
  if (options.pipeline->devices % count == 0) return {};
  return fail(Code::kInvalidArgument,
              "{} logical devices cannot be shared out evenly among {} GPUs; give a multiple of {}",
              options.pipeline->devices, count, count);
}

Result<std::vector<std::unique_ptr<Device>>> make_gpus(const std::vector<int>& indices) {
  std::vector<std::unique_ptr<Device>> gpus;
  for (const int index : indices) {
    JIGE_TRY(auto gpu, make_cuda_device(index));
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

std::vector<Device*> pointers(const std::vector<std::unique_ptr<Device>>& gpus) {
  std::vector<Device*> all;
  for (const auto& gpu : gpus) all.push_back(gpu.get());
  return all;
}

Result<int64_t> gpus_free_bytes(const TrainOptions& options) {
  int64_t together = 0;
  for (const int index : options.gpus) {
    JIGE_TRY(const int64_t bytes, cuda_free_bytes(index));
    together += bytes;
  }
  return together;
}

bool GpuShares::equal() const {
  return std::ranges::all_of(device_bytes,
                             [&](int64_t bytes) { return bytes == device_bytes.front(); });
}

Result<GpuShares> share_gpus(const GpuShareOptions& options) {
  constexpr int64_t kBesides = 16;  // a part of so many is left for what kernels need besides
  const auto gpu_count = std::ssize(options.gpus);
  const int64_t on_each = options.devices / gpu_count;
  GpuShares shares;
  std::vector<int64_t> of_gpus;  // what a device of each has
  for (const int index : options.gpus) {
    int64_t gpu_bytes = options.limit_bytes;
    if (gpu_bytes == 0) {
      JIGE_TRY(gpu_bytes, cuda_free_bytes(index));
    }
    shares.gpu_bytes += gpu_bytes;
    const int64_t part = gpu_bytes / on_each;
    if (options.device_bytes > part) {
      const std::string which = gpu_count > 1 ? fmt::format("GPU {}", index) : "the GPU";
      return fail(Code::kExhausted,
                  "a logical device is to have {} of memory, but {} of the {} of {} would have {} "
                  "each; give them less, or take fewer",
                  format_bytes(options.device_bytes), on_each, format_bytes(gpu_bytes), which,
                  format_bytes(part));
    }
    of_gpus.push_back(options.device_bytes > 0 ? options.device_bytes : part - part / kBesides);
  }
  for (int32_t d = 0; d < options.devices; ++d) {
    shares.device_bytes.push_back(of_gpus[gpu_in_turn(of_gpus.size(), d)]);
  }
  return shares;
}

Result<int64_t> share_run_gpus(TrainOptions& options) {
  PipelineOptions& pipeline = *options.pipeline;
  JIGE_TRY(GpuShares shares, share_gpus({.gpus = options.gpus,
                                         .devices = pipeline.devices,
                                         .device_bytes = pipeline.device_bytes,
                                         .limit_bytes = options.memory_limit_bytes}));
  if (shares.equal()) {
    pipeline.device_bytes = shares.device_bytes.front();
  } else {
    pipeline.own_bytes = std::move(shares.device_bytes);
  }
  return shares.gpu_bytes;
}

}  // namespace jige::train
