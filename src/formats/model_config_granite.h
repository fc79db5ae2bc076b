// What Granite with experts has for feed-forward layers: num_local_experts experts of
// intermediate_size, and in granitemoeshared and granitemoe_swa (unless it is 0) and Granite 4 a
// layer of shared_intermediate_size columns for all tokens beside them; in Granite 4 also the
// latter alone. And how fast the layers of Granite with windows turn: layer_rope_theta.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets layer_is_unturned and the thetas of layers with and without the window by layer_rope_theta,
// a number for each layer, where it is there. Fails with kUnsupported where layers of one kind turn
// by several. REQUIRES: windows and rope are set.
Status parse_layer_thetas(const Json& config, ModelConfig& out, std::string_view where);
void emit_layer_thetas(const ModelConfig& config, Json& out);

// Sets experts, or ffn_size where there are none. REQUIRES: is_granite_moe().
Status parse_granite_experts(const Json& config, ModelConfig& out, std::string_view where);
// Whether the shared layer may be as it is. REQUIRES: there are experts, and is_granite_moe().
Status check_granite_shared(const ModelConfig& config, std::string_view where);
void emit_granite_experts(const ModelConfig& config, Json& out);

}  // namespace jige::formats
