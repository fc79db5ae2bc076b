#include "cli/gpu_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/split.h"
#include "tensor/cuda_device.h"

namespace jige::cli {
namespace {

constexpr std::string_view kNumbered = "cuda:";

std::optional<int> read_index(std::string_view text) {
  int index = -1;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, index);
  if (error != std::errc() || at != end || index < 0) return std::nullopt;
  return index;
}

}  // namespace

Result<GpuList> parse_gpu_list(std::string_view device) {
  if (device == "cpu") return GpuList{};
  if (device == "cuda") return GpuList{.indices = {0}};
  if (device == "cuda:all") return GpuList{.indices = {}, .all = true};
  GpuList list;
  for (std::string_view item : split_at(device, ',')) {
    const bool numbered = item.starts_with(kNumbered);
    if (numbered) item.remove_prefix(kNumbered.size());
    const std::optional<int> index = read_index(item);
    if (!index || (!numbered && list.indices.empty())) {
      return fail(Code::kInvalidArgument,
                  "--device is \"{}\"; it must be cpu, cuda or cuda:N, such as cuda:1, or name "
                  "several GPUs: cuda:0,cuda:1, cuda:0,1 or cuda:all",
                  device);
    }
    if (std::ranges::find(list.indices, *index) != list.indices.end()) {
      return fail(Code::kInvalidArgument, "--device {} names GPU {} twice", device, *index);
    }
    list.indices.push_back(*index);
  }
  return list;
}

Result<std::vector<int>> named_gpus(std::string_view device) {
  JIGE_TRY(GpuList list, parse_gpu_list(device));
  if (!list.all && list.indices.size() < 2) return std::move(list.indices);
  auto present = list_cuda_devices();
  if (!present) return with_context(std::move(present.error()), "--device {}", device);
  if (present->empty()) return fail(Code::kNotFound, "--device {}: there is no GPU here", device);
  for (const int index : list.indices) {
    if (index < std::ssize(*present)) continue;
    return fail(Code::kNotFound, "--device {}: there is no GPU {}; this machine has {}", device,
                index, present->size());
  }
  if (!list.all) return std::move(list.indices);
  for (const CudaDeviceInfo& gpu : *present) list.indices.push_back(gpu.index);
  return std::move(list.indices);
}

std::string gpus_text(const std::vector<int>& gpus) {
  return fmt::format("{}{}", kNumbered, fmt::join(gpus, ","));
}

}  // namespace jige::cli
