// What config.json says of Llama 4: chunks of attention, queries that grow where heads do not turn,
// and which layers have experts.
//
// Internal to the model_config*.cc files. Threads: free functions.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "formats/model_config.h"

namespace jige::formats {

// attention_chunk_size, layer_types, attn_temperature_tuning and what belongs to it. REQUIRES:
// layers that do not turn are known.
Status parse_llama4_layers(const Json& config, ModelConfig& out, std::string_view where);
void emit_llama4_layers(const ModelConfig& config, Json& out);
// Fails as check_model_config does, also where other families have any of it.
Status check_llama4_layers(const ModelConfig& config, std::string_view where);

// Behind what all families with experts have: which layers have them, and the shared one.
Status parse_llama4_experts(const Json& config, ModelConfig& out, std::string_view where);
void emit_llama4_experts(const ModelConfig& config, Json& out);
Status check_llama4_experts(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats
