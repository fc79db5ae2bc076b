// The flags of every command that computes: device, threads, memory.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "ops/linear.h"
#include "serve/layer_computer.h"
#include "tensor/cpu_device.h"
#include "tensor/cuda_device.h"
#include "tensor/dtype.h"

namespace jige::cli {

// Threads that commands accept: eight for each processor this process may use. More could only take
// turns, and wait for one another within every loop; hundreds hardly move.
int64_t threads_max();
// The range of a flag for threads.
IntRange thread_range(int64_t min);

// A GPU that is named behind the first.
struct OtherGpu {
  std::string name;  // "cuda:1"
  std::unique_ptr<Device> device;
  CudaDeviceInfo info;
};

// What a command computes on. The host's threads read, decode and draw tokens in either case.
struct ComputeDevices {
  std::unique_ptr<CpuDevice> host;
  std::unique_ptr<Device> gpu;             // null: the host computes
  std::optional<CudaDeviceInfo> gpu_info;  // of it
  std::vector<OtherGpu> others;            // where a model is divided among GPUs

  bool on_gpu() const { return gpu != nullptr; }
  Device& compute() const { return gpu ? *gpu : static_cast<Device&>(*host); }
  ThreadTeam& team() const { return host->team(); }
  // The GPU as who divides layers sees it; none: the host computes.
  std::optional<serve::LayerComputer> gpu_as_computer() const;
};

struct DeviceFlags {
  int64_t threads = 0;             // 0: as many as the process may use
  int64_t memory_limit_bytes = 0;  // 0: none
  std::string device = "cpu";
  bool may_be_several = false;  // GPUs; of a command that divides a model among them

  // With `several`, --device may name more than one GPU, which the command then asks named_gpus()
  // for (gpu_list.h), or divides a model among (may_be_several).
  void declare(Flags& flags, bool several = false);
  // The numbers of the GPUs that are named, in their order; none: the CPU. Fails with
  // kInvalidArgument, also on several where these may not be, and as named_gpus().
  Result<std::vector<int>> gpu_indices() const;
  // The first of them. Fails as gpu_indices().
  Result<std::optional<int>> gpu_index() const;
  // Whether a model is to be divided among several. REQUIRES: gpu_indices() does not fail.
  bool names_several() const;
  // What computes. REQUIRES: gpu_indices() does not fail.
  DeviceKind kind() const { return device == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda; }
  // Fails as gpu_indices() and, where GPUs are named, as make_cuda_device() and
  // ops::cuda_matmul_ready().
  Result<ComputeDevices> make() const;
  // Memory that may be taken: the limit, else that of the device, or the first GPU, that is not in
  // use. Fails as gpu_indices() and cuda_free_bytes().
  Result<int64_t> memory_bytes() const;
  // The cap of an arena.
  int64_t arena_bytes_max() const;
};

// "auto" gives nothing, which lets the folder's own type decide.
Result<std::optional<DType>> read_compute_dtype(const std::string& name);

// --quantize, for commands that run a model: "none", "q8", "q4" or "mxfp4".
void declare_quantize(Flags& flags, std::string& quantize);
std::vector<std::string> weight_format_names();
// REQUIRES: one of these.
ops::WeightFormat read_weight_format(const std::string& quantize);

// --kv-cache, for commands that run a model: "compute" or "q8".
void declare_kv_cache(Flags& flags, std::string& kv_cache);
// Nothing for "compute", which leaves it to the products.
std::optional<DType> read_kv_cache(const std::string& kv_cache);
// "f32", "bf16" or "q8".
std::string_view kv_cache_name(DType dtype);

// "bf16"; with matrices of fewer bits "bf16, q8 weights", and with a cache of fewer "bf16, q8
// cache".
std::string numbers_text(DType compute, ops::WeightFormat format,
                         std::optional<DType> kv_cache = {});

// The type of matrix products in training where the user names none: bf16 on GPUs and on processors
// with tiles for it, else f32, which is as fast there and exact.
DType default_training_dtype(bool on_gpu = false);

}  // namespace jige::cli
