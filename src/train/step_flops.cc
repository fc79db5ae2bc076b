#include "train/step_flops.h"

#include "train/run_dropout.h"

namespace jige::train {
namespace {

constexpr double kPassesFull = 3;
constexpr double kPassesAdapter = 2;

}  // namespace

double training_flops(const model::Architecture& architecture, const TrainOptions& options,
                      double token_count, double context_mean) {
  const double passes = options.lora ? kPassesAdapter : kPassesFull;
  const double forward = architecture.forward_flops(token_count, context_mean);
  const double logits = architecture.head().forward_flops(token_count, context_mean);
  const double dropped = dropped_flops(architecture, options, token_count);
  return passes * (forward - dropped) + (options.dpo ? logits : 0);
}

}  // namespace jige::train
