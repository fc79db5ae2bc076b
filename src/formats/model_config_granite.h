// What Granite 4 has for feed-forward layers: one for all tokens, of shared_intermediate_size
// columns, and beside it num_local_experts experts of intermediate_size; or the first alone, where
// there are none.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

inline constexpr const char* kGraniteShared = "shared_intermediate_size";

// Sets experts, or ffn_size where there are none.
Status parse_granite_experts(const Json& config, ModelConfig& out, std::string_view where);
void emit_granite_experts(const ModelConfig& config, Json& out);

}  // namespace jige::formats
