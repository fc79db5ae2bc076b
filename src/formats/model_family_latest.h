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
    {.family = Family::kModernBert,
     .model_type = "modernbert",
     .causal_class = "ModernBertModel",
     .base_class = "ModernBertModel",
     .norm = NormKind::kLayer,
     .norm_bias = false,
     .norm_bias_field = "norm_bias",
     .bare_entry = true,
     .activation = ActivationKind::kGeGluErf,
     .biases = BiasRule::kAttentionAndMlp,
     .windows = WindowRule::kSomeLayers,
     .full_period = 3,
     .full_first = true,
     .two_ropes = true,
     .fused_projections = true,
     .embedding_norm = true,
     .encoder = true,
     .norm_eps = 1e-5,
     .window = 128,
     .theta = 1.6e5,
     .tied = true,
     .bos = 50281,
     .eos = 50282,
     .pad = 50283},
};

}  // namespace jige::formats
