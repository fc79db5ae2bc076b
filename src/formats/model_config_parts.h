// The layers of families in which each has one part: attention, a layer of Mamba 2 or a
// feed-forward part. Their config.json names every layer's kind, by words (layers_block_type or
// layer_types) or by letters (hybrid_override_pattern: M, * and -).
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets layer_count and layer_parts, and layer_is_unturned, as no layer of the family turns.
Status parse_single_parts(const Json& config, ModelConfig& out, std::string_view where);
// Sets layer_is_recurrent. REQUIRES: the other function found no fault.
Status parse_recurrent_parts(const Json& config, ModelConfig& out, std::string_view where);
// As letters, which all versions of transformers read.
void emit_single_parts(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument, also where the family has both parts in every layer and others are
// given.
Status check_parts(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats
