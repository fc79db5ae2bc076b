// Biases for the choice of experts that move behind each step, so that experts stay in use without
// a loss (Wang et al., 2024; DeepSeek V3): an expert that fewer tokens chose than the mean of its
// layer is raised by the rate, one that more did is lowered. Nothing else moves them: they have no
// gradient, and no part in what rows are weighed by.
//
// From counts of whole numbers, so they have the same bits however a step is cut. Threads: one
// thread at a time.
#pragma once

#include "model/weights.h"
#include "train/expert_use.h"

namespace jige::train {

// Of all layers. `use` is that of the step; nothing where the rate is 0. Waits.
void move_choice_biases(const model::NodeStreams& streams, const model::ModelWeights& weights,
                        const ExpertUse& use, double rate);

}  // namespace jige::train
