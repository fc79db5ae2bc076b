// The rows of the table of model families behind those with recurrent layers, in the order of
// Family.
//
// Internal to model_families.h. Threads: constants.
#pragma once

#include "formats/model_config.h"
#include "formats/model_family_info.h"

namespace jige::formats {

inline constexpr FamilyInfo kLatestFamilies[] = {
    {.family = Family::kHyV3,
     .model_type = "hy_v3",
     .causal_class = "HYV3ForCausalLM",
     .base_class = "HYV3Model",
     .head_norms = HeadNorms::kEach,
     .biases = BiasRule::kAttention,
     .layer_beyond = true,
     .norm_eps = 1e-5,
     .kv_heads = 8,
     .head_dim = 128,
     .theta = 11158840.0,
     .bos = -1,
     .eos = -1},
    {.family = Family::kKimiLinear,
     .model_type = "kimi_linear",
     .causal_class = "KimiLinearForCausalLM",
     .base_class = "KimiLinearModel",
     .biases = BiasRule::kAttention,
     .unturned = UnturnedRule::kAll,
     .latent_attention = true,
     .delta_layers = true,
     .layer_beyond = true,
     .norm_eps = 1e-5,
     .bos = 163584,
     .eos = 163586,
     .pad = 163839},
};

}  // namespace jige::formats
