// The GPUs that --device names: "cuda" (the first one), "cuda:1", "cuda:0,cuda:1" or, shorter,
// "cuda:0,1", and "cuda:all".
//
// Threads: pure, but named_gpus(), which may ask the driver.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::cli {

struct GpuList {
  std::vector<int> indices;  // in the order in which they are named; none: the processor
  bool all = false;          // "cuda:all", without indices
  bool operator==(const GpuList&) const = default;
};

// "cpu", or what names GPUs. Fails with kInvalidArgument, also on a GPU that is named twice.
Result<GpuList> parse_gpu_list(std::string_view device);

// The same with the indices of all GPUs of this machine, where they are named so. Fails as
// parse_gpu_list and, where there may be several, as list_cuda_devices, with kNotFound where one is
// not there; whether a single one is there is said when it is opened.
Result<std::vector<int>> named_gpus(std::string_view device);

// "cuda:0,1", which parse_gpu_list reads. REQUIRES: one at least.
std::string gpus_text(const std::vector<int>& gpus);

}  // namespace jige::cli
