// The rows of the table of model families whose keys and values are made of latents, with experts
// or without.
//
// Internal to model_families.h. Threads: constants.
#pragma once

#include "formats/model_config.h"
#include "formats/model_family_info.h"

namespace jige::formats {

inline constexpr FamilyInfo kLatentFamilies[] = {
    {.family = Family::kYoutu,
     .model_type = "youtu",
     .causal_class = "YoutuForCausalLM",
     .base_class = "YoutuModel",
     .biases = BiasRule::kAttention,
     .turns_neighbours = true,
     .chooses_neighbours = true,
     .latent_attention = true,
     .tied = true,
     .bos = 128000,
     .eos = 128001},
    {.family = Family::kDeepSeekV2,
     .model_type = "deepseek_v2",
     .causal_class = "DeepseekV2ForCausalLM",
     .base_class = "DeepseekV2Model",
     .biases = BiasRule::kAttentionAndMlp,
     .turns_neighbours = true,
     .latent_attention = true},
    {.family = Family::kDeepSeekV3,
     .model_type = "deepseek_v3",
     .causal_class = "DeepseekV3ForCausalLM",
     .base_class = "DeepseekV3Model",
     .biases = BiasRule::kAttention,
     .turns_neighbours = true,
     .chooses_neighbours = true,
     .latent_attention = true,
     .layer_beyond = true,
     .bos = 0,
     .eos = 1},
    {.family = Family::kMiniCpm3,
     .model_type = "minicpm3",
     .causal_class = "MiniCPM3ForCausalLM",
     .base_class = "MiniCPM3Model",
     .biases = BiasRule::kAttentionAndMlp,
     .latent_attention = true,
     .norm_eps = 1e-5,
     .tied = true},
    {.family = Family::kGlm4MoeLite,
     .model_type = "glm4_moe_lite",
     .causal_class = "Glm4MoeLiteForCausalLM",
     .base_class = "Glm4MoeLiteModel",
     .biases = BiasRule::kAttention,
     .turns_neighbours = true,
     .chooses_neighbours = true,
     .latent_attention = true,
     .layer_beyond = true,
     .norm_eps = 1e-5,
     .kv_heads = 20,
     .bos = 0,
     .eos = 1},
    {.family = Family::kMistral4,
     .model_type = "mistral4",
     .causal_class = "Mistral4ForCausalLM",
     .base_class = "Mistral4Model",
     .biases = BiasRule::kAttention,
     .turns_neighbours = true,
     .chooses_neighbours = true,
     .latent_attention = true,
     .kv_heads = 32,
     .pad = 11},
};

}  // namespace jige::formats
