// What config.json says of Gemma 4: heads of layers without the sliding window, embeddings for
// every layer, layers that share keys and values, and experts beside the MLP (num_experts,
// top_k_experts, moe_intermediate_size, where enable_moe_block is true).
//
// Internal to the model_config*.cc files. Threads: free functions.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "formats/model_config.h"

namespace jige::formats {

// The heads of layers without the window as fields of their own say them. Fails with kUnsupported
// on what Jige lacks.
Status parse_full_heads(const Json& config, ModelConfig& out, std::string_view where);
// The same as per_layer_config says them, which goes before. REQUIRES: layers are known.
Status parse_layer_heads(const Json& config, ModelConfig& out, std::string_view where);
// Fails as check_model_config does.
Status check_full_heads(const ModelConfig& config, std::string_view where);
Status parse_gemma4_experts(const Json& config, ModelConfig& out, std::string_view where);
void emit_gemma4_experts(const ModelConfig& config, Json& out);
void emit_gemma4(const ModelConfig& config, Json& out);

}  // namespace jige::formats
