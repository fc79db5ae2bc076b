#include "model/memory_plan.h"

#include <algorithm>

#include "ops/draw.h"
#include "tensor/cpu_device.h"

namespace jige::model {
namespace {

int64_t rounded(int64_t bytes) { return bytes > 0 ? arena_bytes(DType::kU8, Shape{bytes}) : 0; }

}  // namespace

int64_t TrainingBuffers::total_bytes() const {
  int64_t total = (stream_count + 1) * rounded(stream_bytes) +
                  pending_count * rounded(pending_bytes) + rounded(gathered_bytes) +
                  rounded(workspace_bytes) + rounded(batch_bytes);
  for (const int64_t bytes : saved_bytes) total += rounded(bytes);
  return total;
}

TrainingBuffers training_buffers(const Architecture& architecture, DType compute,
                                 int64_t whole_token_count, int context_ranks) {
  const int64_t width = architecture.stream_columns();
  const bool divided = context_ranks > 1;
  const int64_t token_count = divided ? ContextSplit::rows_max(whole_token_count, context_ranks,
                                                               ContextSplit::step_of(compute))
                                      : whole_token_count;
  TrainingBuffers buffers;
  buffers.row_count = token_count;
  if (divided) {
    buffers.pending_count =
        std::min<int64_t>(context_ranks, static_cast<int64_t>(architecture.node_count()) - 1);
  }
  buffers.stream_count = static_cast<int64_t>(architecture.node_count()) - 1;
  buffers.stream_bytes = arena_bytes(DType::kF32, Shape{token_count, width});
  // Tokens, positions, targets, loss weights and losses, four bytes each.
  buffers.batch_bytes = 5 * arena_bytes(DType::kI32, Shape{token_count});
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    const Block& block = architecture.block(node);
    buffers.saved_bytes.push_back(block.saved_bytes(token_count, compute));
    buffers.pending_bytes =
        std::max(buffers.pending_bytes, block.pending_bytes(token_count, compute));
    buffers.workspace_bytes = std::max(
        buffers.workspace_bytes, block.workspace_bytes(token_count, compute, PackFor::kTraining));
    if (!divided) continue;
    buffers.gathered_bytes =
        std::max(buffers.gathered_bytes, block.gathered_bytes(whole_token_count, compute));
  }
  return buffers;
}

int64_t thread_scratch_bytes(const Architecture& architecture, DType compute, int64_t token_count,
                             int threads) {
  int64_t bytes = 0;
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    bytes = std::max(bytes, architecture.block(node).thread_scratch_bytes(
                                token_count, compute, threads, architecture.lora().has_value()));
  }
  return CpuDevice::scratch_bytes_held(bytes);
}

TrainingMemory training_memory(const Architecture& architecture, const WeightsOptions& options,
                               int64_t micro_batch_tokens, ops::MomentFormat moments,
                               int context_ranks) {
  TrainingMemory memory;
  memory.weights = weights_memory(architecture, options);
  for (const NamedParam& param : trained_params(architecture, options)) {
    const ops::MomentLayout layout = ops::moment_layout(moments, param.spec->shape);
    memory.moments_bytes += 2 * arena_bytes(layout.dtype, layout.shape);
  }
  memory.buffers =
      training_buffers(architecture, options.compute, micro_batch_tokens, context_ranks);
  return memory;
}

int64_t forward_rows(const formats::ModelConfig& config, int64_t batch_tokens, int64_t context) {
  return config.looks_ahead ? std::max(batch_tokens, context) : batch_tokens;
}

WeightsOptions inference_weights_options(const InferenceSizes& sizes) {
  return {.compute = sizes.compute,
          .use = PackFor::kInference,
          .table_dtype = sizes.table_dtype,
          .position_count = sizes.context_max,
          .format = sizes.format,
          .streamed_layers = sizes.streamed_layers,
          .slot_count = sizes.slot_count,
          .held = sizes.layers};
}

int64_t result_columns(const Architecture& architecture, const InferenceSizes& sizes) {
  const formats::ModelConfig& config = architecture.config();
  return sizes.embeds ? config.hidden_size : config.vocab_size;
}

Shape draw_scores_shape(const InferenceSizes& sizes) {
  constexpr int64_t kWords = sizeof(ops::DrawScore) / sizeof(float);
  return {sizes.logit_rows_max, kWords};
}

InferenceBuffers inference_buffers(const Architecture& architecture, const InferenceSizes& sizes) {
  const int64_t width = architecture.head_columns();
  InferenceBuffers buffers;
  buffers.stream_bytes =
      arena_bytes(DType::kF32, Shape{sizes.batch_tokens_max, architecture.stream_columns()});
  const bool on_gpu = sizes.device == DeviceKind::kCuda;
  if (sizes.forwards_max > 1 && !on_gpu) buffers.stream_count += sizes.forwards_max;
  if (on_gpu && !sizes.layers.is_whole(architecture)) {
    buffers.host_stream_count = sizes.forwards_max;
  }
  buffers.gathered_bytes = arena_bytes(DType::kF32, Shape{sizes.logit_rows_max, width});
  // Tokens, positions, targets and losses, four bytes each.
  buffers.batch_bytes = 4 * arena_bytes(DType::kI32, Shape{sizes.batch_tokens_max}) +
                        arena_bytes(DType::kF32, draw_scores_shape(sizes));
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    if (node == architecture.head_node() && !sizes.scores) continue;
    if (!sizes.layers.holds_node(architecture, node)) continue;
    buffers.workspace_bytes = std::max(
        buffers.workspace_bytes, architecture.block(node).workspace_bytes(
                                     sizes.batch_tokens_max, sizes.compute, PackFor::kInference));
  }
  if (sizes.layers.ends) {
    buffers.workspace_bytes =
        std::max(buffers.workspace_bytes,
                 architecture.head().logits_workspace_bytes(sizes.logit_rows_max, sizes.compute));
  }
  buffers.adapter_product_bytes =
      dtype_bytes(sizes.compute, sizes.batch_tokens_max * sizes.adapters.product_columns);
  buffers.adapter_scratch_bytes =
      ops::low_rank_scratch_bytes(sizes.batch_tokens_max, sizes.adapters.part_outputs);
  return buffers;
}

InferenceMemory inference_memory(const Architecture& architecture, const InferenceSizes& sizes) {
  const formats::ModelConfig& config = architecture.config();
  InferenceMemory memory;
  memory.weights = weights_memory(architecture, inference_weights_options(sizes));
  int64_t recurrent_count = 0;
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    if (!sizes.layers.holds_layer(layer)) continue;
    recurrent_count += formats::is_recurrent(config, layer) ? 1 : 0;
    memory.kv_bytes += rounded(cache_bytes(config, layer, sizes.kv_dtype, sizes.kv_block_count));
    memory.kv_bytes_per_token += cache_bytes(config, layer, sizes.kv_dtype, 1);
  }
  memory.kv_bytes_per_token /= ops::kKvBlockTokens;
  const StateShape state = state_shape(config);
  const auto states_of = [&](DType dtype, int64_t columns) {
    return arena_bytes(dtype, Shape{sizes.state_count, columns});
  };
  memory.states_bytes = recurrent_count * (states_of(sizes.compute, state.inputs) +
                                           states_of(DType::kF32, state.matrices));
  const InferenceBuffers buffers = inference_buffers(architecture, sizes);
  memory.activations_bytes = buffers.stream_count * rounded(buffers.stream_bytes) +
                             rounded(buffers.workspace_bytes) + rounded(buffers.gathered_bytes) +
                             rounded(buffers.batch_bytes) + rounded(buffers.adapter_product_bytes) +
                             rounded(buffers.adapter_scratch_bytes);
  memory.host_rows_bytes = buffers.host_stream_count * buffers.stream_bytes;
  for (const int64_t bytes : sizes.adapters.packed_bytes) {
    memory.adapters_bytes.push_back(rounded(bytes));
  }
  memory.logits_bytes =
      arena_bytes(DType::kF32, Shape{sizes.logit_rows_max, result_columns(architecture, sizes)});
  return memory;
}

}  // namespace jige::model
