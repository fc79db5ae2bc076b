// config.json of decoders with a table of positions: GPT-2, GPT-BigCode, OPT and GPT-Neo.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets everything but token ids. REQUIRES: the family is one of these.
Status parse_position_table(const Json& config, ModelConfig& out, std::string_view where);
void emit_position_table(const ModelConfig& config, Json& out);

// Sets which layers of GPT-Neo have the window. REQUIRES: the number of layers is set and inside
// its limits.
Status parse_local_layers(const Json& config, ModelConfig& out, std::string_view where);

}  // namespace jige::formats
