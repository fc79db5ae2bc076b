#include "model/weights.h"

#include "model/weights_copy.h"
#include "model/weights_layout.h"
#include "ops/elementwise.h"

namespace jige::model {
namespace {

// Bytes of an arena for a buffer of this size; an empty buffer is not allocated.
int64_t buffer_bytes(int64_t bytes) {
  return bytes > 0 ? arena_bytes(DType::kU8, Shape{bytes}) : 0;
}

// Whether W stores this parameter's gradient under GradientUse::kStore: the matrices of
// projections.
bool is_stored_gradient(const ParamSpec& spec) { return spec.packed && spec.shape.rank() == 2; }

}  // namespace

WeightsMemory weights_memory(const Architecture& architecture, const WeightsOptions& options) {
  WeightsMemory memory;
  memory.slots_bytes = options.slots() * buffer_bytes(slot_bytes(architecture, options));
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    if (!options.held.holds_node(architecture, node)) continue;
    if (is_streamed_node(options, node)) {
      memory.streamed_bytes += copy_bytes(architecture, options, node);
      continue;
    }
    Placement values;
    Placement gradients;
    place_values(values, architecture, options, node);
    place_gradients(gradients, architecture, options, node);
    memory.values_bytes += buffer_bytes(values.peak_bytes());
    if (options.gradients) memory.gradients_bytes += buffer_bytes(gradients.peak_bytes());
    memory.packed_bytes += buffer_bytes(packed_bytes(architecture, options, node));
    const auto specs = architecture.block(node).params();
    for (size_t i = 0; i < specs.size(); ++i) {
      if (is_tied(architecture, node, i)) continue;
      if (is_trained(architecture, options, specs[i])) {
        memory.trainable_count += specs[i].shape.count();
      }
    }
  }
  memory.rope_bytes = rope_tensor_bytes(architecture, options.position_count);
  memory.strip_bytes = buffer_bytes(strip_bytes(architecture, options));
  return memory;
}

Result<ModelWeights> ModelWeights::create(Arena& arena, const Architecture& architecture,
                                          const WeightsOptions& options) {
  const std::vector<Arena*> arenas(architecture.node_count(), &arena);
  return create(arenas, architecture, options);
}

Result<ModelWeights> ModelWeights::create(std::span<Arena* const> arenas,
                                          const Architecture& architecture,
                                          const WeightsOptions& options) {
  JIGE_CHECK(arenas.size() == architecture.node_count(), "{} arenas for {} nodes", arenas.size(),
             architecture.node_count());
  if (options.compute != DType::kF32 && options.compute != DType::kBF16) {
    return fail(Code::kInvalidArgument, "compute type {} is not supported; use f32 or bf16",
                dtype_info(options.compute).name);
  }
  JIGE_CHECK(
      options.use == PackFor::kInference || architecture.head().kind() == HeadKind::kLanguageModel,
      "a model without a language model's head is not trained");
  const bool trains_matrices = options.use == PackFor::kTraining && !architecture.lora();
  if (trains_matrices && options.format != ops::WeightFormat::kCompute) {
    return fail(Code::kInvalidArgument,
                "matrices in {} are not trained; train adapters (LoRA) on them, or keep them whole",
                ops::weight_format_name(options.format));
  }
  ModelWeights weights(architecture, options);
  weights.blocks_.resize(architecture.node_count());
  weights.node_gradients_.resize(architecture.node_count());
  JIGE_DO(weights.allocate_slots(*arenas.front()));
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    if (!options.held.holds_node(architecture, node)) continue;
    if (weights.is_streamed(node)) {
      weights.blocks_[node] = weights.in_slot(node, 0);
    } else {
      JIGE_DO(weights.allocate_block(*arenas[node], node));
    }
  }
  if (architecture.config().tied_embeddings && options.use == PackFor::kTraining &&
      !architecture.lora()) {
    weights.blocks_.back().params[architecture.head().linear_index()].value =
        weights.blocks_.front().params[Embedding::kTable].value;
  }
  JIGE_TRY(Tensor table, make_rope_tensor(*arenas.front(), architecture, options.position_count));
  for (BlockWeights& block : weights.blocks_) block.rope_table = table.view();
  weights.others_.push_back(std::move(table));
  if (const int64_t bytes = strip_bytes(architecture, options); bytes > 0) {
    JIGE_TRY(Tensor strip, arenas.front()->make(DType::kU8, Shape{bytes}));
    for (BlockWeights& block : weights.blocks_) block.strip = strip.view();
    weights.others_.push_back(std::move(strip));
  }
  weights.list_trainable();
  return weights;
}

Status ModelWeights::allocate_slots(Arena& arena) {
  JIGE_CHECK(options_.streamed_layers.empty() || options_.use == PackFor::kInference,
             "layers of a model that is trained are streamed");
  for (int64_t slot = 0; slot < options_.slots(); ++slot) {
    JIGE_TRY(Tensor tensor, arena.make(DType::kU8, Shape{slot_bytes(*architecture_, options_)}));
    slots_.push_back(tensor.view());
    others_.push_back(std::move(tensor));
  }
  return {};
}

bool ModelWeights::is_streamed(size_t node) const { return is_streamed_node(options_, node); }

BlockWeights ModelWeights::in_slot(size_t node, size_t slot) const {
  BlockWeights weights = copied_weights(*architecture_, options_, node, slots_[slot], {});
  weights.rope_table = blocks_[node].rope_table;
  weights.strip = blocks_[node].strip;
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
  if (options_.gradients && gradient_sizes.peak_bytes() > 0) {
    JIGE_TRY(Tensor tensor, arena.make_zero(DType::kU8, Shape{gradient_sizes.peak_bytes()}));
    node_gradients_[node] =
        TensorView::of(tensor.view().data, DType::kF32, Shape{gradient_sizes.peak_bytes() / 4});
    Placement at(tensor.view());
    gradients = place_gradients(at, *architecture_, options_, node);
    gradients_.push_back(std::move(tensor));
  }
  const auto specs = architecture_->block(node).params();
  for (size_t i = 0; i < values.size(); ++i) {
    const bool shared =
        stands_in_gradient(*architecture_, options_, specs[i]) && !is_tied(*architecture_, node, i);
    block.params.push_back({shared ? gradients[i] : values[i], gradients[i]});
  }
  block.format = format_of(*architecture_, options_, node);
  const int64_t packed = packed_bytes(*architecture_, options_, node);
  if (packed > 0) {
    JIGE_TRY(Tensor tensor, make(packed));
    block.packed = tensor.view();
    others_.push_back(std::move(tensor));
  }
  return {};
}

std::vector<NamedParam> trained_params(const Architecture& architecture,
                                       const WeightsOptions& options) {
  std::vector<NamedParam> params;
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    const auto specs = architecture.block(node).params();
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!is_trained(architecture, options, specs[i])) continue;
      if (is_tied(architecture, node, i)) continue;
      params.push_back({.spec = &specs[i], .node = node, .index = i});
    }
  }
  return params;
}

void ModelWeights::list_trainable() {
  trainable_ = trained_params(*architecture_, options_);
  for (NamedParam& named : trainable_) {
    const Param& param = blocks_[named.node].params[named.index];
    named.value = param.value;
    named.grad = param.grad;
    named.packs = packs_of(named.node, named.index);
  }
}

void ModelWeights::set_gradient_rows(const NamedParam& param,
                                     const std::vector<ops::RowRange>* rows) {
  JIGE_CHECK(param.spec->by_rows && !architecture_->lora(), "rows of {}", param.spec->name);
  blocks_[param.node].params[param.index].grad_rows = rows;
}

std::vector<ops::PackPart> ModelWeights::packs_of(size_t node, size_t index) const {
  std::vector<ops::PackPart> packs;
  if (options_.use != PackFor::kTraining) return packs;
  const auto list = [&](size_t owner, size_t param) {
    architecture_->block(owner).list_packs(blocks_[owner], param, options_.compute, options_.use,
                                           packs);
  };
  list(node, index);
  const bool table = node == 0 && index == Embedding::kTable;
  if (table && architecture_->config().tied_embeddings) {
    list(architecture_->head_node(), architecture_->head().linear_index());
  }
  return packs;
}

void ModelWeights::zero_gradients(Stream& stream) {
  for (const Tensor& tensor : gradients_) ops::zero(stream, tensor.view());
}

void ModelWeights::start_gradients(Stream& stream) {
  for (size_t node = 0; node < blocks_.size(); ++node) {
    const auto specs = architecture_->block(node).params();
    for (size_t i = 0; i < specs.size(); ++i) {
      const TensorView& grad = blocks_[node].params[i].grad;
      if (grad && !is_stored_gradient(specs[i])) ops::zero(stream, grad);
    }
  }
}

void ModelWeights::finish_gradients(Stream& stream) {
  if (!architecture_->config().tied_embeddings) return;
  const TensorView& table = blocks_.front().params[Embedding::kTable].grad;
  if (!table) return;
  const TensorView& head = blocks_.back().params[architecture_->head().linear_index()].grad;
  ops::add(stream, table, table, head);
}

void ModelWeights::start_magnitudes(const NodeStreams& streams) {
  for (size_t node = 0; node < blocks_.size(); ++node) {
    architecture_->block(node).start_magnitudes(streams[node], blocks_[node], options_.compute);
  }
}

void ModelWeights::pack(const NodeStreams& streams) {
  for (size_t node = 0; node < blocks_.size(); ++node) pack(streams[node], node);
}

void ModelWeights::pack_others(const NodeStreams& streams) {
  for (size_t node = 0; node < blocks_.size(); ++node) pack_others(streams[node], node);
}

void ModelWeights::pack_others(Stream& stream, size_t node) {
  const auto specs = architecture_->block(node).params();
  bool others = false;
  for (size_t i = 0; i < specs.size(); ++i) {
    others |= specs[i].packed && packs_of(node, i).empty();
  }
  if (others) pack(stream, node);
}

void ModelWeights::pack(Stream& stream, size_t node) {
  if (!options_.held.holds_node(*architecture_, node)) return;
  architecture_->block(node).pack(stream, blocks_[node], options_.compute, options_.use);
}

}  // namespace jige::model
