// Initial values of parameters, from a seed.
//
// Every element is a function of the seed, the parameter's name and the element's index alone: no
// order, thread count or other parameter has a part in it. Kinds and deviations are those of the
// ParamSpec (block.h): normal with 0.02, residual outputs 0.02 / sqrt(2 L), norms one, biases zero,
// adapters as PEFT makes them.
// Threads: free functions.
#pragma once

#include <cstdint>
#include <span>

#include "model/weights.h"

namespace jige::model {

// Fills element `first` and following ones of a parameter.
void fill_initial(std::span<float> dst, const ParamSpec& spec, uint64_t seed, int64_t first = 0);

// Sets every trainable parameter and packs; with adapters the base keeps what was loaded.
void initialise_weights(ModelWeights& weights, const NodeStreams& streams, uint64_t seed);

}  // namespace jige::model
