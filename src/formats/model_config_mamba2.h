// The fields of config.json that families with layers of Mamba 2 have for themselves: the sizes of
// such layers and, but where layers have one part each (model_config_parts.h), which layers are
// such ones. Granite 4, Bamba and Falcon-H1 call the sizes mamba_d_head and so on, Nemotron-H
// mamba_head_dim, Mamba 2 itself head_dim.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets mamba2, layer_is_recurrent, and layer_is_unturned where config.json says that no layer
// turns. REQUIRES: the family has such layers.
Status parse_mamba2(const Json& config, ModelConfig& out, std::string_view where);
void emit_mamba2(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument. REQUIRES: a layer is such a one.
Status check_mamba2(const ModelConfig& config, std::string_view where);

// Parameters of such a layer's part in place of attention or beside it.
int64_t mamba2_parameter_count(const ModelConfig& config);

}  // namespace jige::formats
