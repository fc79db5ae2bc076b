// What an engine's memory limit is spent on: weights, adapters and buffers first, cache blocks with
// the rest.
//
//   JIGE_TRY(const EngineMemory memory, plan_engine_memory(folder, options, 8 << 30));
//   options.kv_block_count = memory.kv_block_count;
//   options.memory_bytes_max = memory.total_bytes();
//   JIGE_TRY(auto model, model::InferenceModel::load(folder, device, options));
//
// The limit is that of the model's arena, which holds all that grows with the model or its load,
// of a draft model's, of what drafts are looked up in, of what constraints may take, and of what
// reads images on the same device. The rest of the process comes on top. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "model/memory_plan.h"
#include "serve/draft_model_plan.h"
#include "serve/draft_options.h"
#include "serve/layer_fit.h"

namespace jige::serve {

struct EngineMemory {
  int64_t weights_bytes = 0;
  int64_t adapters_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t states_bytes = 0;       // of recurrent layers, kept ones too
  int64_t workspace_bytes = 0;    // activations and logits of an iteration
  int64_t drafts_bytes = 0;       // not the arena's (engine_drafts.h)
  int64_t draft_model_bytes = 0;  // of the draft model's own arena (draft_model_plan.h)
  int64_t constraints_bytes = 0;  // not the arena's, at most (grammar/constraint_compiler.h)
  int64_t images_bytes = 0;       // what reads images, and the rows of some (image_prompts.h)
  int64_t kv_block_count = 0;
  std::vector<int32_t> streamed_layers = {};  // InferenceOptions
  int64_t slot_count = 0;
  int64_t kv_tokens = 0;     // that fit into the cache
  double full_contexts = 0;  // sequences of the longest context that fit
  int64_t total_bytes() const {
    return weights_bytes + adapters_bytes + kv_bytes + states_bytes + workspace_bytes +
           drafts_bytes + draft_model_bytes + constraints_bytes + images_bytes;
  }
  // Sets the cache and the layers that stream.
  void choose(model::InferenceOptions& options) const {
    options.kv_block_count = kv_block_count;
    options.streamed_layers = streamed_layers;
    options.slot_count = slot_count;
  }
};

// What is taken beside the model's arena.
struct MemoryBeside {
  DraftOptions drafts;
  int64_t draft_sequences = 0;                  // at once
  const DraftModelPlan* draft_model = nullptr;  // null: there is none
  int64_t constraints_bytes = 0;
  int64_t images_bytes = 0;
};

// The most cache blocks that stay within `limit_bytes`; sizes.kv_block_count is not read. Fails
// with kExhausted when not even one sequence of the longest context fits, naming the least limit
// that works.
Result<EngineMemory> plan_engine_memory(const model::Architecture& architecture,
                                        model::InferenceSizes sizes, int64_t limit_bytes,
                                        const MemoryBeside& beside = {});
// The same where a limit is too small for all layers and one context, and layers may stream
// (layer_fit.h): of what is left with all of them streaming and one context, half is for more
// contexts, up to `contexts_max` in all, and the rest for layers, as few of which stream as
// possible; what is too little for another layer is for contexts. REQUIRES: no layer is streamed in
// `sizes`.
Result<EngineMemory> plan_streaming_memory(const model::Architecture& architecture,
                                           model::InferenceSizes sizes, int64_t limit_bytes,
                                           const MemoryBeside& beside, double contexts_max);
// Whether an engine's layers may stream, where the limit does not hold them and one context; what
// all may take then, if that is more. Layers that are asked for stream in any case.
struct EngineLayers {
  LayerBudget budget;
  double contexts_max = 0;  // where layers stream and nobody asked for them
};
// The first or the second for a model folder, the options it will be loaded with and what will
// compute. Fails also as loading fails, and as fit_layers.
Result<EngineMemory> plan_engine_memory(const std::string& folder,
                                        const model::InferenceOptions& options, int64_t limit_bytes,
                                        const MemoryBeside& beside = {},
                                        DeviceKind device = DeviceKind::kCpu,
                                        const EngineLayers& layers = {});

}  // namespace jige::serve
