// The fields of config.json that ERNIE 4.5 with experts has for itself: moe_num_experts, moe_k,
// moe_intermediate_size and moe_num_shared_experts of what a layer has; moe_layer_start_index,
// moe_layer_end_index (-1: the last layer) and moe_layer_interval of which layers have it, every
// so manieth from the first to the last of these; and moe_norm_min, the least that the chosen
// experts' part of the softmax counts as.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// What is behind the number, the width and the choice of experts, which other families have too.
// Fails with kUnsupported where no layer has experts.
Status parse_ernie_experts(const Json& config, ModelConfig& out, std::string_view where);
void emit_ernie_experts(const ModelConfig& config, Json& out);
// How experts are chosen, and which layers have them.
Status check_ernie_experts(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats
