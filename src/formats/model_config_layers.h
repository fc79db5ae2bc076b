// What the layers of one model do not share: which have a sliding window, and which turn nothing;
// and whether their tokens see those behind them.
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

// Sets looks_ahead, and the window as its tokens have it. Fails with kUnsupported where they see
// those behind them in a family of which Jige does not compute that. REQUIRES: parse_layers() or
// what stands for it.
Status parse_looking_ahead(const Json& config, ModelConfig& out, std::string_view where);
// The fields that say so.
void emit_looking_ahead(const ModelConfig& config, Json& out);

}  // namespace jige::formats
