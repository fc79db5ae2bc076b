#include "serve/engine_memory.h"

#include <algorithm>

#include "base/bytes.h"
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
      .kv_block_count = block_count,
      .kv_tokens = block_count * ops::kKvBlockTokens};
  memory.full_contexts =
      static_cast<double>(memory.kv_tokens) / static_cast<double>(sizes.context_max);
  return memory;
}

}  // namespace

Result<EngineMemory> plan_engine_memory(const model::Architecture& architecture,
                                        model::InferenceSizes sizes, int64_t limit_bytes,
                                        const MemoryBeside& beside) {
  const int64_t least = (sizes.context_max + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
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
    return fail(
        Code::kExhausted,
        "a memory limit of {} is too small: weights take {}, adapters {}, an iteration of {} "
        "tokens {}, "
        "drafts {}, {}constraints {}, {}the cache of one context of {} tokens {}; give at least "
        "{} bytes ({}), or a shorter --context, a smaller --batch-tokens or less "
        "--constraint-memory{}",
        format_bytes(limit_bytes), format_bytes(smallest.weights_bytes),
        format_bytes(smallest.adapters_bytes), sizes.batch_tokens_max,
        format_bytes(smallest.workspace_bytes), format_bytes(smallest.drafts_bytes), draft_model,
        format_bytes(smallest.constraints_bytes), states, sizes.context_max,
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

Result<EngineMemory> plan_engine_memory(const std::string& folder,
                                        const model::InferenceOptions& options, int64_t limit_bytes,
                                        const MemoryBeside& beside, DeviceKind device) {
  JIGE_TRY(const formats::ModelConfig config, formats::load_model_config(folder));
  const model::HeadKind head =
      options.embeds ? model::HeadKind::kNormAlone : model::HeadKind::kLanguageModel;
  JIGE_TRY(const auto architecture, model::Architecture::create(config, {}, head, device));
  JIGE_TRY(const formats::TensorFolder files, formats::TensorFolder::open(folder));
  JIGE_DO(model::check_weights(*architecture, files));
  JIGE_TRY(const model::InferenceSizes sizes,
           model::inference_sizes(options, *architecture, files));
  return plan_engine_memory(*architecture, sizes, limit_bytes, beside);
}

}  // namespace jige::serve
