// The fields of config.json of families whose keys and values come from a latent: kv_lora_rank,
// q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim and rope_interleave.
//
//   head_dim = qk_nope_head_dim + qk_rope_head_dim, of which the last rotary_dim columns turn
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Sets latent, head_dim, rotary_dim and turns_neighbours. REQUIRES: the family has latents.
Status parse_latent(const Json& config, ModelConfig& out, std::string_view where);
void emit_latent(const ModelConfig& config, Json& out);
// Fails with kInvalidArgument or kUnsupported, also where the family has none and they are given.
Status check_latent(const ModelConfig& config, std::string_view where);

// Parameters of a layer's attention but its norms of the width.
int64_t latent_parameter_count(const ModelConfig& config);

}  // namespace jige::formats
