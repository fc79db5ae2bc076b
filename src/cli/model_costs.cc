#include "cli/model_costs.h"

#include <algorithm>
#include <set>
#include <string>

#include "model/architecture.h"

namespace jige::cli {

Result<plan::PipelineCosts> model_costs(const formats::ModelConfig& config,
                                        const ModelCostOptions& options) {
  JIGE_TRY(const auto architecture, model::Architecture::create(config));
  const int64_t tokens = options.micro_batch_tokens;
  const int64_t context =
      std::min(tokens, options.context > 0 ? options.context : config.context_max);
  const int64_t value_bytes = options.compute == DType::kBF16 ? 2 : 4;
  plan::PipelineCosts costs;
  std::set<std::string> owned;
  for (size_t node = 0; node < architecture->node_count(); ++node) {
    const model::Block& block = architecture->block(node);
    int64_t read = 0;
    plan::BlockCost cost;
    for (const model::ParamSpec& spec : block.params()) {
      read += spec.shape.count();
      if (owned.insert(spec.name).second) cost.parameters += spec.shape.count();
    }
    cost.parameter_bytes = read * value_bytes;
    cost.gradient_bytes = read * 4;
    cost.input_bytes = node == 0 ? 0 : tokens * config.hidden_size * 4;
    cost.saved_bytes = block.saved_bytes(tokens, options.compute);
    cost.pending_bytes = block.pending_bytes(tokens, options.compute);
    // A token sees half of its sequence on average.
    cost.forward_s =
        block.forward_flops(static_cast<double>(tokens), static_cast<double>(context) / 2) /
        options.device_flops;
    cost.recompute_s = cost.backward_weight_s = cost.forward_s;
    cost.backward_input_s = node == 0 ? 0 : cost.forward_s;
    costs.workspace_bytes =
        std::max(costs.workspace_bytes,
                 block.workspace_bytes(tokens, options.compute, model::PackFor::kTraining));
    costs.blocks.push_back(cost);
  }
  return costs;
}

}  // namespace jige::cli
