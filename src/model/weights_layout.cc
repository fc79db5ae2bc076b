#include "model/weights_layout.h"

#include <algorithm>

#include "model/rope_table.h"
#include "model/weights_copy.h"

namespace jige::model {

bool is_trained(const Architecture& architecture, const WeightsOptions& options,
                const ParamSpec& spec) {
  if (options.use == PackFor::kInference) return false;
  return architecture.lora() ? spec.adapter : true;
}

bool stands_in_gradient(const Architecture& architecture, const WeightsOptions& options,
                        const ParamSpec& spec) {
  return options.values_in_gradients && spec.packed && is_trained(architecture, options, spec);
}

bool is_streamed_node(const WeightsOptions& options, size_t node) {
  // Node 0 is the embedding.
  return node > 0 &&
         std::ranges::binary_search(options.streamed_layers, static_cast<int32_t>(node) - 1);
}

int64_t slot_bytes(const Architecture& architecture, const WeightsOptions& options) {
  int64_t bytes = 0;
  for (const int32_t layer : options.streamed_layers) {
    bytes = std::max(bytes, copy_bytes(architecture, options, static_cast<size_t>(layer) + 1));
  }
  return bytes;
}

ops::WeightFormat format_of(const Architecture& architecture, const WeightsOptions& options,
                            size_t node) {
  const bool head = node == architecture.head_node();
  return head && options.format == ops::WeightFormat::kQ4 ? ops::WeightFormat::kQ8 : options.format;
}

Status check_weight_format(const Architecture& architecture, ops::WeightFormat format) {
  const bool any = architecture.config().experts.count > 0;
  if (format != ops::WeightFormat::kMxfp4 || any) return {};
  return fail(Code::kInvalidArgument,
              "mxfp4 keeps the experts of a model in 4.5 bits, and this one has none; quantize it "
              "to q8 or q4");
}

int64_t packed_bytes(const Architecture& architecture, const WeightsOptions& options, size_t node) {
  return architecture.block(node).packed_bytes(options.compute, options.use,
                                               format_of(architecture, options, node));
}

int64_t strip_bytes(const Architecture& architecture, const WeightsOptions& options) {
  int64_t bytes = 0;
  const bool whole_numbers =
      options.use == PackFor::kInference && architecture.device() == DeviceKind::kCpu;
  if (whole_numbers || options.format == ops::WeightFormat::kCompute) return 0;
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    bytes = std::max(bytes, architecture.block(node).strip_bytes(options.compute));
  }
  return bytes;
}

bool is_tied(const Architecture& architecture, size_t node, size_t index) {
  return architecture.config().tied_embeddings && node == architecture.head_node() &&
         architecture.head().kind() == HeadKind::kLanguageModel &&
         index == architecture.head().linear_index();
}

std::vector<TensorView> place_values(Placement& at, const Architecture& architecture,
                                     const WeightsOptions& options, size_t node) {
  std::vector<TensorView> values;
  const auto specs = architecture.block(node).params();
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool trained = is_trained(architecture, options, specs[i]);
    // Of an embedding, where not packed.
    const bool table = specs[i].shape.rank() == 2 && !specs[i].whole;
    if (is_tied(architecture, node, i) || (!trained && specs[i].packed) ||
        stands_in_gradient(architecture, options, specs[i])) {
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

int64_t rope_tensor_bytes(const Architecture& architecture, int64_t position_count) {
  const int64_t columns = architecture.rope_columns();
  if (columns == 0 || position_count == 0) return 0;
  return arena_bytes(DType::kF32, Shape{position_count, columns});
}

Result<Tensor> make_rope_tensor(Arena& arena, const Architecture& architecture,
                                int64_t position_count) {
  const int64_t columns = architecture.rope_columns();
  if (columns == 0 || position_count == 0) return Tensor();
  const std::vector<float> host = make_rope_table(architecture.config(), position_count);
  JIGE_TRY(Tensor table, arena.make(DType::kF32, Shape{position_count, columns}));
  JIGE_TRY(const auto stream, arena.device().make_stream());
  stream->copy(table.view().data, host.data(), static_cast<int64_t>(host.size() * sizeof(float)),
               CopyKind::kHostToDevice);
  stream->synchronize();
  return table;
}

}  // namespace jige::model
