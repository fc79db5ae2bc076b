// What MiniCPM multiplies embeddings, parts of layers and logits with: scale_emb, scale_depth by
// the root of the number of layers, and dim_model_base by the width.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// REQUIRES: the width and the number of layers are set.
Status parse_minicpm_scales(const Json& config, ModelConfig& out, std::string_view where);
void emit_minicpm(const ModelConfig& config, Json& out);

}  // namespace jige::formats
