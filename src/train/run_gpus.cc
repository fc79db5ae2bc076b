#include "train/run_gpus.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "tensor/cuda_device.h"

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

Result<std::vector<std::unique_ptr<Device>>> make_gpus(const TrainOptions& options) {
  std::vector<std::unique_ptr<Device>> gpus;
  for (const int index : options.gpus) {
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

Result<int64_t> share_gpus(TrainOptions& options) {
  PipelineOptions& pipeline = *options.pipeline;
  const int64_t on_each = pipeline.devices / std::ssize(options.gpus);
  int64_t together = 0, least = INT64_MAX;
  for (const int index : options.gpus) {
    int64_t gpu_bytes = options.memory_limit_bytes;
    if (gpu_bytes == 0) {
      JIGE_TRY(gpu_bytes, cuda_free_bytes(index));
    }
    together += gpu_bytes;
    const int64_t part = gpu_bytes / on_each;
    least = std::min(least, part);
    if (pipeline.device_bytes <= part) continue;
    const std::string which = options.gpus.size() > 1 ? fmt::format("GPU {}", index) : "the GPU";
    return fail(Code::kExhausted,
                "a logical device is to have {} of memory, but {} of the {} of {} would have {} "
                "each; give them less, or take fewer",
                format_bytes(pipeline.device_bytes), on_each, format_bytes(gpu_bytes), which,
                format_bytes(part));
  }
  constexpr int64_t kBesides = 16;  // a part of so many is left for what kernels need besides
  if (pipeline.device_bytes == 0) pipeline.device_bytes = least - least / kBesides;
  return together;
}

}  // namespace jige::train
