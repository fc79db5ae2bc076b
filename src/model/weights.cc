#include "model/weights.h"

#include "model/placement.h"
#include "model/rope_table.h"
#include "ops/elementwise.h"

namespace jige::model {
namespace {

bool is_trained(const Architecture& architecture, const WeightsOptions& options,
                const ParamSpec& spec) {
  if (options.use == PackFor::kInference) return false;
  return architecture.lora() ? spec.adapter : true;
}

// A head's matrix that is the embedding's table.
bool is_tied(const Architecture& architecture, size_t node, size_t index) {
  return architecture.config().tied_embeddings && node == architecture.head_node() &&
         index == architecture.head().linear_index();
}

// Values of one block: masters of what is trained, and of the rest only what tasks read.
std::vector<TensorView> place_values(Placement& at, const Architecture& architecture,
                                     const WeightsOptions& options, size_t node) {
  std::vector<TensorView> values;
  const auto specs = architecture.block(node).params();
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool trained = is_trained(architecture, options, specs[i]);
    const bool table = specs[i].shape.rank() == 2;  // of an embedding, where not packed
    if (is_tied(architecture, node, i) || (!trained && specs[i].packed)) {
      values.emplace_back();
    } else {
      values.push_back(
          at.take(!trained && table ? options.table_dtype : DType::kF32, specs[i].shape));
    }
  }
  return values;
}

std::vector<TensorView> place_gradients(Placement& at, const Architecture& architecture,
                                        const WeightsOptions& options, size_t node) {
  std::vector<TensorView> gradients;
  for (const ParamSpec& spec : architecture.block(node).params()) {
    const bool trained = is_trained(architecture, options, spec);
    gradients.push_back(trained ? at.take(DType::kF32, spec.shape) : TensorView{});
  }
  return gradients;
}

// Bytes of an arena for a buffer of this size; an empty buffer is not allocated.
int64_t buffer_bytes(int64_t bytes) {
  return bytes > 0 ? arena_bytes(DType::kU8, Shape{bytes}) : 0;
}

}  // namespace

WeightsMemory weights_memory(const Architecture& architecture, const WeightsOptions& options) {
  WeightsMemory memory;
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    Placement values;
    Placement gradients;
    place_values(values, architecture, options, node);
    place_gradients(gradients, architecture, options, node);
    memory.values_bytes += buffer_bytes(values.peak_bytes());
    memory.gradients_bytes += buffer_bytes(gradients.peak_bytes());
    memory.packed_bytes +=
        buffer_bytes(architecture.block(node).packed_bytes(options.compute, options.use));
    const auto specs = architecture.block(node).params();
    for (size_t i = 0; i < specs.size(); ++i) {
      if (is_tied(architecture, node, i)) continue;
      if (is_trained(architecture, options, specs[i])) {
        memory.trainable_count += specs[i].shape.count();
        memory.moment_bytes += arena_bytes(DType::kF32, specs[i].shape);
      }
    }
  }
  if (architecture.rope_columns() > 0) {
    memory.rope_bytes =
        arena_bytes(DType::kF32, Shape{options.position_count, architecture.rope_columns()});
  }
  return memory;
}

Result<ModelWeights> ModelWeights::create(Arena& arena, const Architecture& architecture,
                                          const WeightsOptions& options) {
  if (options.compute != DType::kF32 && options.compute != DType::kBF16) {
    return fail(Code::kInvalidArgument, "compute type {} is not supported; use f32 or bf16",
                dtype_info(options.compute).name);
  }
  ModelWeights weights(architecture, options);
  weights.blocks_.resize(architecture.node_count());
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    JIGE_DO(weights.allocate_block(arena, node));
  }
  if (architecture.config().tied_embeddings && options.use == PackFor::kTraining &&
      !architecture.lora()) {
    weights.blocks_.back().params[architecture.head().linear_index()].value =
        weights.blocks_.front().params[Embedding::kTable].value;
  }
  if (architecture.rope_columns() > 0) JIGE_DO(weights.make_rope_table(arena));
  weights.list_trainable();
  return weights;
}

Status ModelWeights::allocate_block(Arena& arena, size_t node) {
  BlockWeights& block = blocks_[node];
  const auto make = [&](int64_t bytes) { return arena.make(DType::kU8, Shape{bytes}); };
  Placement value_sizes;
  place_values(value_sizes, *architecture_, options_, node);
  Placement gradient_sizes;
  place_gradients(gradient_sizes, *architecture_, options_, node);
  std::vector<TensorView> values(architecture_->block(node).params().size());
  std::vector<TensorView> gradients(values.size());
  if (value_sizes.peak_bytes() > 0) {
    JIGE_TRY(Tensor tensor, make(value_sizes.peak_bytes()));
    Placement at(tensor.view());
    values = place_values(at, *architecture_, options_, node);
    others_.push_back(std::move(tensor));
  }
  if (gradient_sizes.peak_bytes() > 0) {
    JIGE_TRY(Tensor tensor, arena.make_zero(DType::kU8, Shape{gradient_sizes.peak_bytes()}));
    Placement at(tensor.view());
    gradients = place_gradients(at, *architecture_, options_, node);
    gradients_.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < values.size(); ++i) block.params.push_back({values[i], gradients[i]});
  const int64_t packed = architecture_->block(node).packed_bytes(options_.compute, options_.use);
  if (packed > 0) {
    JIGE_TRY(Tensor tensor, make(packed));
    block.packed = tensor.view();
    others_.push_back(std::move(tensor));
  }
  return {};
}

Status ModelWeights::make_rope_table(Arena& arena) {
  const formats::ModelConfig& config = architecture_->config();
  const std::vector<float> host =
      model::make_rope_table(config.rope, config.head_dim, options_.position_count);
  JIGE_TRY(Tensor table,
           arena.make(DType::kF32, Shape{options_.position_count, architecture_->rope_columns()}));
  JIGE_TRY(const auto stream, arena.device().make_stream());
  stream->copy(table.view().data, host.data(), static_cast<int64_t>(host.size() * sizeof(float)),
               CopyKind::kHostToDevice);
  stream->synchronize();
  for (BlockWeights& block : blocks_) block.rope_table = table.view();
  others_.push_back(std::move(table));
  return {};
}

void ModelWeights::list_trainable() {
  for (size_t node = 0; node < blocks_.size(); ++node) {
    const auto specs = architecture_->block(node).params();
    for (size_t i = 0; i < specs.size(); ++i) {
      const Param& param = blocks_[node].params[i];
      if (!param.grad || is_tied(*architecture_, node, i)) continue;
      trainable_.push_back({.spec = &specs[i], .value = param.value, .grad = param.grad});
    }
  }
}

void ModelWeights::zero_gradients(Stream& stream) {
  for (const Tensor& tensor : gradients_) {
    stream.fill_zero(tensor.view().data, tensor.view().count());
  }
}

void ModelWeights::finish_gradients(Stream& stream) {
  if (!architecture_->config().tied_embeddings) return;
  const TensorView& table = blocks_.front().params[Embedding::kTable].grad;
  if (!table) return;
  const TensorView& head = blocks_.back().params[architecture_->head().linear_index()].grad;
  ops::add(stream, table, table, head);
}

void ModelWeights::pack(Stream& stream) {
  for (size_t node = 0; node < blocks_.size(); ++node) pack(stream, node);
}

void ModelWeights::pack(Stream& stream, size_t node) {
  architecture_->block(node).pack(stream, blocks_[node], options_.compute, options_.use);
}

}  // namespace jige::model
