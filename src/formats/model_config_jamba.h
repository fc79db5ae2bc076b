// The fields of config.json that Jamba has for itself: which layers have attention in place of a
// layer of Mamba, and which have experts, each by a period and an offset in it.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets layer_is_recurrent.
Status parse_jamba_layers(const Json& config, ModelConfig& out, std::string_view where);
// Sets experts and layer_is_dense; none where no layer has experts.
Status parse_jamba_experts(const Json& config, ModelConfig& out, std::string_view where);
void emit_jamba_layers(const ModelConfig& config, Json& out);
void emit_jamba_experts(const ModelConfig& config, Json& out);
// Fail with kInvalidArgument where layers follow no period.
Status check_jamba_layers(const ModelConfig& config, std::string_view where);
Status check_jamba_experts(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats
