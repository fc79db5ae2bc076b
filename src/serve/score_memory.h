// The memory of scoring many texts at once, and of replying to many: a cache for those that are
// inside together, as far as a limit allows.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "base/result.h"
#include "model/inference.h"
#include "serve/layer_fit.h"

namespace jige::serve {

// The options with blocks of the cache, and states of recurrent layers, for Scorer::score_all(),
// and with rows of logits for reply_to_all(): what a text of the longest context needs, and more
// where short ones are run together. With memory_bytes_max as much of it as fits; where not even
// one text fits they stay, and loading fails with the reason. Where not all layers fit with one
// text and may stream, those for more texts are taken first. Fails as opening the folder does.
Result<model::InferenceOptions> options_for_scores(const std::string& folder,
                                                   model::InferenceOptions options,
                                                   DeviceKind device,
                                                   const LayerBudget& budget = {});

}  // namespace jige::serve
