// The fields of config.json of families that have delta nets in place of attention in some layers:
// linear_num_key_heads, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim,
// linear_conv_kernel_dim, and layer_types or full_attention_interval; of OLMo Hybrid, which has no
// interval, linear_allow_neg_eigval; of Kimi Linear see model_config_kimi.h.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets delta and layer_is_recurrent. REQUIRES: the family has such layers.
Status parse_delta(const Json& config, ModelConfig& out, std::string_view where);
void emit_delta(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument. REQUIRES: a layer has one.
Status check_delta(const ModelConfig& config, std::string_view where);

// Parameters of a delta net but the norm before it.
int64_t delta_parameter_count(const ModelConfig& config);

}  // namespace jige::formats
