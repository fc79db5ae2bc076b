#include "cli/layer_flags.h"

#include <fmt/format.h>

#include "base/free_memory.h"
#include "base/log.h"
#include "cli/flags.h"
#include "tensor/cuda_device.h"

namespace jige::cli {
namespace {

tl::unexpected<Error> refuse_on_cpu(std::string_view flag) {
  return fail(
      Code::kInvalidArgument,
      "{} is about the memory of a GPU; here the processor computes, and weights are in the "
      "host's memory anyway: leave it out, or add --device cuda",
      flag);
}

}  // namespace

int64_t without_kernels(int64_t free_bytes) {
  constexpr int64_t kShareBesides = 16;
  return free_bytes - free_bytes / kShareBesides;
}

void LayerFlags::declare(Flags& flags) {
  flags.bytes(
      "--device-memory SIZE", device_memory_bytes,
      "what a model may take of a GPU, such as 8GiB; layers that do not fit stream from the "
      "host's memory in every iteration. Without it, what the GPU has free, but with "
      "--memory-limit, which refuses such models");
  flags.integer("--resident-layers N", resident_layers, {.min = 0, .max = 1 << 20},
                "layers that stay on the GPU, the others stream; without it as many as fit");
}

Result<serve::LayerBudget> LayerFlags::budget(const DeviceFlags& device) const {
  serve::LayerBudget budget;
  JIGE_TRY(const std::optional<int> gpu, device.gpu_index());
  if (!gpu) {
    if (device_memory_bytes > 0) return refuse_on_cpu("--device-memory");
    if (resident_layers) return refuse_on_cpu("--resident-layers");
    return budget;
  }
  budget.resident_layers = resident_layers;
  budget.host_bytes = host_free_bytes();  // pinned
  if (device_memory_bytes > 0) {
    budget.device_bytes = device_memory_bytes;
  } else if (device.memory_limit_bytes == 0) {
    JIGE_TRY(const int64_t free_bytes, cuda_free_bytes(*gpu));
    budget.device_bytes = without_kernels(free_bytes);
  }
  return budget;
}

std::string streamed_layers_text(const model::InferenceModel& model) {
  const model::LayerStream* const layers = model.layer_stream();
  if (!layers) return "";
  const int64_t count = model.config().layer_count;
  const double rate = layers->bytes_per_s();
  return fmt::format(
      "{} of {} layers on the GPU, {} stream{} from memory: at least {:.3g} ms an iteration at "
      "{:.3g} GB/s",
      count - layers->layer_count(), count, layers->layer_count(),
      layers->layer_count() == 1 ? "s" : "", 1e3 * static_cast<double>(layers->bytes()) / rate,
      rate / 1e9);
}

void tell_streamed_layers(const model::InferenceModel& model) {
  const std::string text = streamed_layers_text(model);
  if (!text.empty()) log_info("{}", text);
}

}  // namespace jige::cli
