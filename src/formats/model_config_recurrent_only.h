// The fields of config.json that families have all of whose layers are recurrent, without attention
// and feed-forward parts: Mamba, Falcon Mamba and Mamba 2. What other families say of heads, widths
// of feed-forward parts and positions stands in a ModelConfig as if there were one of two columns,
// which nothing reads.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// All but what the layers are made of (model_config_recurrent.h). REQUIRES: such a family.
Status parse_recurrent_only(const Json& config, ModelConfig& out, std::string_view where);
void emit_recurrent_only(const ModelConfig& config, Json& out);

}  // namespace jige::formats
