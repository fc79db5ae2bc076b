// The layers of families in which each has one part: attention, a layer of Mamba 2, a
// feed-forward part for all tokens or experts. Their config.json names every layer's kind, by words
// (layers_block_type or layer_types) or by letters (hybrid_override_pattern: M, *, - and E).
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets layer_count and layer_parts, layer_is_unturned, as no layer of the family turns, and
// layer_is_dense where a layer has experts.
Status parse_single_parts(const Json& config, ModelConfig& out, std::string_view where);
// Sets layer_is_recurrent. REQUIRES: the other function found no fault.
Status parse_recurrent_parts(const Json& config, ModelConfig& out, std::string_view where);
// How experts are made, chosen and weighed, where a layer has some. REQUIRES: the same.
Status parse_nemotron_experts(const Json& config, ModelConfig& out, std::string_view where);
void emit_nemotron_experts(const ModelConfig& config, Json& out);
// Whether no layer has experts that has another part.
Status check_nemotron_experts(const ModelConfig& config, std::string_view where);

// As letters, which all versions of transformers read.
void emit_single_parts(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument, also where the family has both parts in every layer and others are
// given.
Status check_parts(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats
