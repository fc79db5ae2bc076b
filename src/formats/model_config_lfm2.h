// The fields of config.json that LFM2 has for itself: conv_L_cache and conv_bias of its short
// convolutions, layer_types or full_attn_idxs, and what the width of its feed-forward layers
// follows from: intermediate_size or block_ff_dim, block_auto_adjust_ff_dim,
// block_ffn_dim_multiplier, block_multiple_of. With experts intermediate_size is the width itself,
// of the num_dense_layers first layers; use_expert_bias, norm_topk_prob and routed_scaling_factor
// say how experts are chosen and weighed. Of LFM3 layer_types also say which layers have the
// sliding_window.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Columns of a feed-forward layer. Of the family without experts.
Result<int64_t> parse_lfm2_ffn_size(const Json& config, std::string_view where);

// Sets short_conv and layer_is_recurrent, and of LFM3 the sliding window. REQUIRES: the family has
// such layers.
Status parse_short_conv(const Json& config, ModelConfig& out, std::string_view where);
// The same, and of the family without experts that ffn_size is the width itself.
void emit_short_conv(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument. REQUIRES: a layer has one.
Status check_short_conv(const ModelConfig& config, std::string_view where);

// How experts are chosen and weighed, and which layers have none. REQUIRES: the family has experts.
Status parse_lfm2_experts(const Json& config, ModelConfig& out, std::string_view where);
void emit_lfm2_experts(const ModelConfig& config, Json& out);
Status check_lfm2_choice(const ModelConfig& config, std::string_view where);

// Parameters of a short convolution with its two products.
int64_t short_conv_parameter_count(const ModelConfig& config);

}  // namespace jige::formats
