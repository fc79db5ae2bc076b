// The fields of config.json that LFM2 has for itself: conv_L_cache and conv_bias of its short
// convolutions, layer_types or full_attn_idxs, and what the width of its feed-forward layers
// follows from: intermediate_size or block_ff_dim, block_auto_adjust_ff_dim,
// block_ffn_dim_multiplier, block_multiple_of.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Columns of a feed-forward layer.
Result<int64_t> parse_lfm2_ffn_size(const Json& config, std::string_view where);

// Sets short_conv and layer_is_recurrent. REQUIRES: the family has such layers.
Status parse_short_conv(const Json& config, ModelConfig& out, std::string_view where);
// The same, and that ffn_size is the width itself.
void emit_short_conv(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument. REQUIRES: a layer has one.
Status check_short_conv(const ModelConfig& config, std::string_view where);

// Parameters of a short convolution with its two products.
int64_t short_conv_parameter_count(const ModelConfig& config);

}  // namespace jige::formats
