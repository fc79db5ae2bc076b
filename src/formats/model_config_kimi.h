// The fields of config.json that Kimi Linear has for its delta nets: linear_num_heads,
// linear_head_dim, linear_conv_kernel_dim and layer_types, or as published folders have them
// linear_attn_config, with numbers of layers from 1.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets delta and layer_is_recurrent.
Status parse_kimi_delta(const Json& config, ModelConfig& out, std::string_view where);
void emit_kimi_delta(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument. REQUIRES: a layer has a delta net.
Status check_kimi_delta(const ModelConfig& config, std::string_view where);

// Parameters of such a delta net but the norm before it.
int64_t kimi_delta_parameter_count(const ModelConfig& config);

}  // namespace jige::formats
