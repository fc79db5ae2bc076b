// GTE of the kind that calls itself "new": the angles of its heads, and what of its switches Jige
// computes.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// "pack_qkv", and refusals by name of what the others ask for.
Status parse_gte(const Json& config, ModelConfig& out, std::string_view where);
// "rope_theta" and "rope_scaling", which is null or {"type": "ntk", "factor": …}. Fails with
// kCorrupt or kUnsupported naming the field.
Status parse_ntk_rope(const Json& config, ModelConfig& out, std::string_view where);
// Writes all of that.
void emit_gte(const ModelConfig& config, Json& out);

}  // namespace jige::formats
