// The fields of config.json that families with layers of the first Mamba have for themselves: Mamba
// and Falcon Mamba, all of whose layers are such ones, and Jamba, which has attention in every
// attn_layer_period-th and experts in every expert_layer_period-th.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets mamba1 and layer_is_recurrent. REQUIRES: the family has such layers.
Status parse_mamba1(const Json& config, ModelConfig& out, std::string_view where);
void emit_mamba1(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument. REQUIRES: a layer is such a one.
Status check_mamba1(const ModelConfig& config, std::string_view where);

// Parameters of such a layer's part in place of attention.
int64_t mamba1_parameter_count(const ModelConfig& config);

}  // namespace jige::formats
