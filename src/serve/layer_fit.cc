#include "serve/layer_fit.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/counted.h"
#include "model/inference_folder.h"
#include "model/memory_plan.h"
#include "plan/streamed_layers.h"

namespace jige::serve {
namespace {

int64_t beside_bytes(const model::InferenceSizes& sizes, const LayerBudget& budget) {
  return budget.draft_model ? budget.draft_model->bytes(sizes.kv_block_count) : 0;
}

int64_t device_bytes_of(const model::Architecture& architecture, const model::InferenceSizes& sizes,
                        const LayerBudget& budget) {
  return model::inference_memory(architecture, sizes).total_bytes() + beside_bytes(sizes, budget);
}

Status check_device(const model::Architecture& architecture, const model::InferenceSizes& sizes,
                    const LayerBudget& budget) {
  const int64_t needed = device_bytes_of(architecture, sizes, budget);
  if (needed <= budget.device_bytes) return {};
  const model::InferenceMemory memory = model::inference_memory(architecture, sizes);
  const auto shown = [](int64_t bytes) { return format_bytes(bytes); };
  const int64_t layer_count = architecture.config().layer_count;
  const int64_t resident_count = layer_count - std::ssize(sizes.streamed_layers);
  const std::string layers =
      resident_count > 0 ? fmt::format("{} layers", resident_count) : "no layer";
  const std::string draft =
      budget.draft_model ? fmt::format("the draft model {}, ", shown(beside_bytes(sizes, budget)))
                         : "";
  return fail(Code::kExhausted,
              "with {} of {} on the GPU it takes {} there (weights {}, of which {} for layers that "
              "stream; keys and values of {} tokens {}, {}the rest {}), of {} that it may take; "
              "raise --device-memory, or choose a smaller --context or cache, or weights of fewer "
              "bits (--quantize)",
              layers, layer_count, format_bytes_up(needed), shown(memory.weights.total_bytes()),
              shown(memory.weights.slots_bytes), sizes.kv_block_count * ops::kKvBlockTokens,
              shown(memory.kv_bytes), draft,
              shown(memory.adapters_total_bytes() + memory.states_bytes + memory.activations_bytes +
                    memory.logits_bytes),
              shown(budget.device_bytes));
}

Status check_host(const model::Architecture& architecture, const model::InferenceSizes& sizes,
                  const LayerBudget& budget) {
  const int64_t needed = model::inference_memory(architecture, sizes).weights.streamed_bytes;
  if (needed <= budget.host_bytes) return {};
  return fail(Code::kExhausted,
              "the {} that stream take {} of the host's memory, which has {} left; choose weights "
              "of fewer bits (--quantize), or give more of the GPU (--device-memory)",
              counted(std::ssize(sizes.streamed_layers), "layer"), format_bytes_up(needed),
              format_bytes(budget.host_bytes));
}

}  // namespace

void stream_layers(const model::Architecture& architecture, int64_t resident_count,
                   model::InferenceSizes& sizes) {
  sizes.streamed_layers = plan::streamed_layers(architecture.config().layer_count, resident_count);
  sizes.slot_count = sizes.streamed_layers.empty() ? 0 : plan::kStreamSlots;
}

Result<model::InferenceSizes> fit_layers(const model::Architecture& architecture,
                                         model::InferenceSizes sizes, const LayerBudget& budget) {
  const int64_t layer_count = architecture.config().layer_count;
  if (budget.resident_layers && *budget.resident_layers > layer_count) {
    return fail(Code::kInvalidArgument,
                "--resident-layers: {} are to stay of the {} that there are",
                *budget.resident_layers, layer_count);
  }
  stream_layers(architecture, budget.resident_layers.value_or(layer_count), sizes);
  const auto fits = [&] {
    return device_bytes_of(architecture, sizes, budget) <= budget.device_bytes;
  };
  // As many as there are slots would take as much in them.
  int64_t resident_count = layer_count - plan::kStreamSlots;
  while (!budget.resident_layers && !fits() && resident_count > 0) {
    stream_layers(architecture, --resident_count, sizes);
  }
  JIGE_DO(check_device(architecture, sizes, budget));
  JIGE_DO(check_host(architecture, sizes, budget));
  return sizes;
}

Result<model::InferenceOptions> fit_layers(const std::string& folder,
                                           model::InferenceOptions options,
                                           const LayerBudget& budget, DeviceKind device) {
  if (!budget.may_stream()) return options;
  JIGE_TRY(const model::InferenceFolder opened,
           model::open_inference_folder(folder, options.embeds, device));
  const auto& [architecture, files] = opened;
  JIGE_TRY(const model::InferenceSizes sizes,
           model::inference_sizes(options, *architecture, files));
  auto fitted = fit_layers(*architecture, sizes, budget);
  if (!fitted) return with_context(std::move(fitted.error()), "{}", folder);
  options.streamed_layers = fitted->streamed_layers;
  options.slot_count = fitted->slot_count;
  if (budget.device_bytes < kUnlimitedBytes) {
    options.memory_bytes_max =
        std::min(options.memory_bytes_max, budget.device_bytes - beside_bytes(sizes, budget));
  }
  return options;
}

}  // namespace jige::serve
