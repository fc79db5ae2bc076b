#include "cli/device_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/cpu.h"
#include "cli/gpu_list.h"
#include "ops/linear_cuda.h"
#include "tensor/arena.h"
#include "train/process_memory.h"

namespace jige::cli {
namespace {

constexpr int64_t kThreadsPerProcessor = 8;

int64_t processor_count() { return std::max<int64_t>(1, cpu_features().logical_count); }

}  // namespace

int64_t threads_max() { return kThreadsPerProcessor * processor_count(); }

IntRange thread_range(int64_t min) {
  return {.min = min,
          .max = threads_max(),
          .reason = fmt::format("{} for each of the {} processor{} that this process may use",
                                kThreadsPerProcessor, processor_count(),
                                processor_count() == 1 ? "" : "s")};
}

std::optional<serve::LayerComputer> ComputeDevices::gpu_as_computer() const {
  if (!gpu_info) return {};
  return serve::gpu_as_computer(*gpu_info);
}

void DeviceFlags::declare(Flags& flags, bool several) {
  flags.section("Machine");
  flags.text("--device NAME", device,
             several ? "where to compute: cpu, cuda (the first NVIDIA GPU), cuda:N (GPU N), or "
                       "several GPUs, as cuda:0,cuda:1, cuda:0,1 or cuda:all"
                     : "where to compute: cpu, cuda (the first NVIDIA GPU) or cuda:N (GPU N)");
  flags.integer("--threads N", threads, thread_range(0),
                "threads, 8 for each processor at most; 0: as many as the process may use");
  flags.bytes("--memory-limit SIZE", memory_limit_bytes,
              "memory for weights and buffers at most, such as 4GiB; more is refused before the "
              "work begins");
}

Result<std::vector<int>> DeviceFlags::gpu_indices() const {
  if (may_be_several) return named_gpus(device);
  JIGE_TRY(const GpuList list, parse_gpu_list(device));
  if (!list.all && list.indices.size() <= 1) return list.indices;
  return fail(Code::kInvalidArgument,
              "--device {} names several GPUs, and this computes on one; name it as cuda:N",
              device);
}

Result<std::optional<int>> DeviceFlags::gpu_index() const {
  JIGE_TRY(const std::vector<int> gpus, gpu_indices());
  return gpus.empty() ? std::optional<int>() : gpus.front();
}

bool DeviceFlags::names_several() const {
  const auto gpus = gpu_indices();
  return gpus && gpus->size() > 1;
}

Result<ComputeDevices> DeviceFlags::make() const {
  ComputeDevices devices;
  devices.host =
      std::make_unique<CpuDevice>(CpuDeviceOptions{.thread_count = static_cast<int>(threads)});
  JIGE_TRY(const std::vector<int> gpus, gpu_indices());
  if (gpus.empty()) return devices;
  const auto make_gpus = [&]() -> Status {
    JIGE_TRY(const auto infos, list_cuda_devices());
    for (const int index : gpus) {
      JIGE_TRY(auto gpu, make_cuda_device(index));
      const CudaDeviceInfo& info = infos.at(static_cast<size_t>(index));
      if (!devices.gpu) {
        devices.gpu = std::move(gpu);
        devices.gpu_info = info;
      } else {
        devices.others.push_back({fmt::format("cuda:{}", index), std::move(gpu), info});
      }
    }
    return ops::cuda_matmul_ready();
  };
  if (Status made = make_gpus(); !made) {
    return with_context(std::move(made.error()), "--device {}", device);
  }
  return devices;
}

Result<int64_t> DeviceFlags::memory_bytes() const {
  if (memory_limit_bytes > 0) return memory_limit_bytes;
  JIGE_TRY(const std::optional<int> index, gpu_index());
  return index ? cuda_free_bytes(*index) : train::machine_memory_bytes();
}

int64_t DeviceFlags::arena_bytes_max() const {
  return memory_limit_bytes > 0 ? memory_limit_bytes : kUnlimitedBytes;
}

Result<std::optional<DType>> read_compute_dtype(const std::string& name) {
  if (name == "auto") return std::optional<DType>();
  JIGE_TRY(const DType dtype, parse_dtype(name));
  return std::optional<DType>(dtype);
}

std::vector<std::string> weight_format_names() {
  std::vector<std::string> names;
  for (const ops::WeightFormat format : ops::kWeightFormats) {
    names.emplace_back(ops::weight_format_name(format));
  }
  return names;
}

void declare_quantize(Flags& flags, std::string& quantize) {
  flags.choice("--quantize NAME", quantize, weight_format_names(),
               "keep the weight matrices in 8.5 (q8) or 4.5 (q4, the head q8) bits a number: less "
               "memory, faster answers, slightly other results; mxfp4: experts in 4.5 bits, those "
               "of gpt-oss as they are in its folder, all else q8");
}

ops::WeightFormat read_weight_format(const std::string& quantize) {
  for (const ops::WeightFormat format : ops::kWeightFormats) {
    if (ops::weight_format_name(format) == quantize) return format;
  }
  JIGE_CHECK(false, "no weights in {}", quantize);
  return ops::WeightFormat::kCompute;
}

void declare_kv_cache(Flags& flags, std::string& kv_cache) {
  flags.choice(
      "--kv-cache NAME", kv_cache, {"compute", "q8"},
      "keep the keys and values of contexts in the type of the products, or in 8 bits and a "
      "scale for each token and head (q8): about half of bf16, a quarter of f32, slightly other "
      "results");
}

std::optional<DType> read_kv_cache(const std::string& kv_cache) {
  return kv_cache == "q8" ? std::optional(DType::kI8) : std::nullopt;
}

std::string_view kv_cache_name(DType dtype) {
  return dtype == DType::kI8 ? "q8" : dtype_info(dtype).name;
}

std::string numbers_text(DType compute, ops::WeightFormat format, std::optional<DType> kv_cache) {
  std::string text(dtype_info(compute).name);
  if (format != ops::WeightFormat::kCompute) {
    text += fmt::format(", {} weights", ops::weight_format_name(format));
  }
  if (kv_cache.value_or(compute) != compute) {
    text += fmt::format(", {} cache", kv_cache_name(*kv_cache));
  }
  return text;
}

DType default_training_dtype(bool on_gpu) {
  return on_gpu || active_isa() >= Isa::kAvx512Bf16 ? DType::kBF16 : DType::kF32;
}

}  // namespace jige::cli
