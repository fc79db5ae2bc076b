// The rotary description of a config.json, in the old and the new spelling of transformers.
//
//   old   rope_theta, rope_scaling {type, …}, partial_rotary_factor, rope_local_base_freq
//   new   rope_parameters {rope_type, rope_theta, …}, or one such object a layer type
// Internal to the model_config*.cc and gguf_config*.cc files.
// Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Of MiniMax M2 and GPT-J: how many columns of a head turn.
inline constexpr const char* kTurnedColumns = "rotary_dim";

// Sets rope, sliding_rope and rotary_dim. Both spellings may stand side by side when they agree.
// Fails with kUnsupported on types that Jige or the family does not have, kCorrupt on
// contradictions. REQUIRES: the family and the sizes of `out` are set and inside their limits.
Status parse_rope(const Json& config, ModelConfig& out, std::string_view where);

// That layers with the window have angles, in families that describe them by kind of layer.
// REQUIRES: layers are read.
Status check_kind_ropes(const ModelConfig& config, std::string_view where);

// Writes all of that.
void emit_rope(const ModelConfig& config, Json& out);

// The factor of cosines and sines that longrope has where the folder states none.
double default_attention_factor(double factor, int64_t original_context);

// The same of yarn.
double yarn_attention_factor(double factor);

// The same of a yarn whose mscale and mscale_all are set.
double inferred_attention_factor(const RopeConfig& rope);

// The partial_rotary_factor that makes `rotary_dim` of `head_dim` columns, as transformers
// computes it.
double partial_rotary_factor(int64_t rotary_dim, int64_t head_dim);

}  // namespace jige::formats
