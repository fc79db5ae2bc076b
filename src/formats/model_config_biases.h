// Which linear layers of a model have biases, by the rule of its family and config.json.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

Status parse_biases(const Json& config, ModelConfig& out, std::string_view where);
void emit_biases(const ModelConfig& config, Json& out);
// That models of the family may have them so. Fails with kInvalidArgument.
Status check_bias_rule(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats
