// What the layers of one model do not share: which have a sliding window, and which turn nothing.
//
// Internal to the model_config*.cc files.
// Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets sliding_window, layer_is_sliding and layer_is_unturned, and clears sliding_rope where no
// layer slides. Fails with kUnsupported on layer types that Jige does not have, kCorrupt on
// contradictions. REQUIRES: the number of layers is inside its limits.
Status parse_layers(const Json& config, ModelConfig& out, std::string_view where);

}  // namespace jige::formats
