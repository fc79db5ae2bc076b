// Floating-point operations of what a run computes, for rates and times.
//
// In units of a forward pass: F, X and W take one each; where the base is frozen, W is next to
// nothing. With pairs the head's logits are computed once more (preference_passes.h), and the
// reference is one forward pass over all pairs before the first step. Blocks that are dropped count
// nothing.
// Threads: pure functions.
#pragma once

#include "model/architecture.h"
#include "train/options.h"

namespace jige::train {

// Of training on so many tokens that see so many others each on average.
double training_flops(const model::Architecture& architecture, const TrainOptions& options,
                      double token_count, double context_mean);

}  // namespace jige::train
