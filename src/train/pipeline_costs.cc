#include "train/pipeline_costs.h"

#include <algorithm>

#include "model/weights_copy.h"
#include "model/weights_layout.h"
#include "tensor/arena.h"
#include "train/boundary_carrier.h"
#include "train/logical_device.h"

namespace jige::train {

plan::PipelineCosts pipeline_costs(const model::Architecture& architecture,
                                   const model::WeightsOptions& weights,
                                   const PipelineCostOptions& options) {
  const formats::ModelConfig& config = architecture.config();
  const int64_t tokens = options.micro_batch_tokens;
  const int64_t context =
      std::min(tokens, options.context > 0 ? options.context : config.context_max);
  plan::PipelineCosts costs{.rates = options.rates,
                            .tied = config.tied_embeddings && !architecture.lora()};
  for (size_t node = 0; node < architecture.node_count(); ++node) {
    const model::Block& block = architecture.block(node);
    plan::BlockCost cost;
    const auto specs = block.params();
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!model::is_trained(architecture, weights, specs[i])) continue;
      if (model::is_tied(architecture, node, i)) continue;
      // An arena gives whole cache lines to each tensor of the optimizer's state.
      cost.parameters += whole_lines(specs[i].shape.count() * 4) / 4;
      if (!specs[i].packed) cost.master_bytes += whole_lines(specs[i].shape.count() * 4);
    }
    cost.parameter_bytes = model::copy_bytes(architecture, weights, node);
    cost.gradient_bytes = model::gradient_bytes(architecture, weights, node);
    cost.input_bytes = node == 0 ? 0 : whole_lines(tokens * architecture.stream_columns() * 4);
    cost.saved_bytes = whole_lines(block.saved_bytes(tokens, weights.compute));
    cost.pending_bytes = whole_lines(block.pending_bytes(tokens, weights.compute));
    // A token sees half of its sequence on average.
    cost.forward_s =
        block.forward_flops(static_cast<double>(tokens), static_cast<double>(context) / 2) /
        options.device_flops;
    cost.recompute_s = cost.backward_weight_s = cost.forward_s;
    cost.backward_input_s = node == 0 ? 0 : cost.forward_s;
    costs.blocks.push_back(cost);
  }
  costs.workspace_bytes = device_workspace_bytes(architecture, weights.compute,
                                                 {.micro_batch_tokens = tokens,
                                                  .micro_batches = options.micro_batches,
                                                  .position_count = weights.position_count});
  if (options.several_gpus) {
    costs.staging_bytes = BoundaryCarrier::staging_bytes(plan::message_bytes_max(costs));
  }
  return costs;
}

}  // namespace jige::train
