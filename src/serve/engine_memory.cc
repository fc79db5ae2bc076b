#include "serve/engine_memory.h"

#include <algorithm>

#include "base/bytes.h"
#include "model/inference_folder.h"
#include "serve/engine_drafts.h"

namespace jige::serve {
namespace {

// More blocks than this would be beyond what block numbers can count.
constexpr int64_t kPoolBlocksMax = int64_t{1} << 26;

EngineMemory memory_of(const model::Architecture& architecture, model::InferenceSizes sizes,
                       const MemoryBeside& beside, int64_t block_count) {
  sizes.kv_block_count = block_count;
  const model::InferenceMemory bytes = model::inference_memory(architecture, sizes);
  EngineMemory memory{
      .weights_bytes = bytes.weights.total_bytes(),
      .adapters_bytes = bytes.adapters_total_bytes(),
      .kv_bytes = bytes.kv_bytes,
      .states_bytes = bytes.states_bytes,
      .workspace_bytes = bytes.activations_bytes + bytes.logits_bytes,
      .drafts_bytes =
          EngineDrafts::bytes_for(beside.drafts, beside.draft_sequences, sizes.context_max),
      .draft_model_bytes = beside.draft_model ? beside.draft_model->bytes(block_count) : 0,
      .constraints_bytes = beside.constraints_bytes,
      .images_bytes = beside.images_bytes,
      .kv_block_count = block_count,
      .streamed_layers = sizes.streamed_layers,
      .slot_count = sizes.slot_count,
      .kv_tokens = block_count * ops::kKvBlockTokens};
  memory.full_contexts =
      static_cast<double>(memory.kv_tokens) / static_cast<double>(sizes.context_max);
  return memory;
}

// Blocks of one sequence of the longest context.
int64_t least_blocks(const model::InferenceSizes& sizes) {
  return (sizes.context_max + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
}

}  // namespace

Result<EngineMemory> plan_engine_memory(const model::Architecture& architecture,
                                        model::InferenceSizes sizes, int64_t limit_bytes,
                                        const MemoryBeside& beside) {
  const int64_t least = least_blocks(sizes);
  const EngineMemory smallest = memory_of(architecture, sizes, beside, least);
  if (smallest.total_bytes() > limit_bytes) {
    const std::string states =
        sizes.state_count > 0
            ? fmt::format("{} states {}, ", sizes.state_count, format_bytes(smallest.states_bytes))
            : "";
    const std::string draft_model =
        beside.draft_model
            ? fmt::format("the draft model {}, ", format_bytes(smallest.draft_model_bytes))
            : "";
    const std::string images =
        beside.images_bytes > 0
            ? fmt::format("reading images {} (--no-images), ", format_bytes(beside.images_bytes))
            : "";
    const std::string streamed =
        sizes.streamed_layers.empty()
            ? ""
            : fmt::format(" where {} of {} layers stream", sizes.streamed_layers.size(),
                          architecture.config().layer_count);
    return fail(
        Code::kExhausted,
        "a memory limit of {} is too small: weights take {}{}, adapters {}, an iteration of {} "
        "tokens {}, "
        "drafts {}, {}constraints {}, {}{}the cache of one context of {} tokens {}; give at least "
        "{} bytes ({}), or a shorter --context, a smaller --batch-tokens or less "
        "--constraint-memory{}",
        format_bytes(limit_bytes), format_bytes(smallest.weights_bytes), streamed,
        format_bytes(smallest.adapters_bytes), sizes.batch_tokens_max,
        format_bytes(smallest.workspace_bytes), format_bytes(smallest.drafts_bytes), draft_model,
        format_bytes(smallest.constraints_bytes), images, states, sizes.context_max,
        format_bytes(smallest.kv_bytes), smallest.total_bytes(),
        format_bytes_up(smallest.total_bytes()),
        states.empty() ? "" : ", or fewer --states or --kept-states");
  }
  // Bytes grow with the blocks, in steps of what the arena rounds to.
  int64_t low = least;
  int64_t high = kPoolBlocksMax;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (memory_of(architecture, sizes, beside, middle).total_bytes() <= limit_bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return memory_of(architecture, sizes, beside, low);
}

Result<EngineMemory> plan_streaming_memory(const model::Architecture& architecture,
                                           model::InferenceSizes sizes, int64_t limit_bytes,
                                           const MemoryBeside& beside, double contexts_max) {
  const int64_t least = least_blocks(sizes);
  const auto total = [&](int64_t resident_count, int64_t block_count) {
    stream_layers(architecture, resident_count, sizes);
    return memory_of(architecture, sizes, beside, block_count).total_bytes();
  };
  const int64_t left = limit_bytes - total(0, least);
  // Where not even that fits, the error says so.
  if (left < 0) return plan_engine_memory(architecture, sizes, limit_bytes, beside);
  JIGE_TRY(const EngineMemory halved,
           plan_engine_memory(architecture, sizes, limit_bytes - left / 2, beside));
  const auto most =
      std::max(least, static_cast<int64_t>(contexts_max * static_cast<double>(least)));
  const int64_t blocks = std::min(halved.kv_block_count, most);
  int64_t resident_count = architecture.config().layer_count;
  while (total(resident_count, blocks) > limit_bytes) --resident_count;
  // What is too little for another layer is for contexts.
  JIGE_TRY(const EngineMemory whole, plan_engine_memory(architecture, sizes, limit_bytes, beside));
  return memory_of(architecture, sizes, beside, std::min(whole.kv_block_count, most));
}

Result<EngineMemory> plan_engine_memory(const std::string& folder,
                                        const model::InferenceOptions& options, int64_t limit_bytes,
                                        const MemoryBeside& beside, DeviceKind device,
                                        const EngineLayers& layers) {
  JIGE_TRY(const model::InferenceFolder opened,
           model::open_inference_folder(folder, options.embeds, device));
  const auto& [architecture, files] = opened;
  JIGE_TRY(model::InferenceSizes sizes, model::inference_sizes(options, *architecture, files));
  const bool asked = layers.budget.resident_layers.has_value();
  if (asked) {
    // What fits is for the cache to decide.
    LayerBudget as_asked = layers.budget;
    as_asked.device_bytes = kUnlimitedBytes;
    JIGE_TRY(sizes, fit_layers(*architecture, std::move(sizes), as_asked));
  }
  const int64_t least = memory_of(*architecture, sizes, beside, least_blocks(sizes)).total_bytes();
  if (asked || least <= limit_bytes || !layers.budget.may_stream()) {
    return plan_engine_memory(*architecture, sizes, limit_bytes, beside);
  }
  const int64_t most = std::max(limit_bytes, layers.budget.device_bytes);
  if (least <= most) return plan_engine_memory(*architecture, sizes, most, beside);
  return plan_streaming_memory(*architecture, sizes, most, beside, layers.contexts_max);
}

}  // namespace jige::serve
