// The rows of the table of model families that have recurrent layers, in the order of Family.
//
// Internal to model_families.h. Threads: constants.
#pragma once

#include "formats/model_config.h"
#include "formats/model_family_info.h"

namespace jige::formats {

// What families of Qwen with delta nets have in common.
constexpr FamilyInfo delta_family(FamilyInfo row) {
  row.norm_adds_one = true;
  row.head_norms = HeadNorms::kEach;
  row.biases = BiasRule::kAttention;
  row.turns_parts = true;
  row.turned_factor = 0.25;
  row.delta_layers = true;
  row.attention_gate = true;
  row.head_dim = 256;
  row.bos = row.eos = -1;
  return row;
}

inline constexpr FamilyInfo kHybridFamilies[] = {
    delta_family({.family = Family::kQwen35,
                  .model_type = "qwen3_5_text",
                  .causal_class = "Qwen3_5ForCausalLM",
                  .base_class = "Qwen3_5TextModel",
                  .kv_heads = 4}),
    delta_family({.family = Family::kQwen35Moe,
                  .model_type = "qwen3_5_moe_text",
                  .causal_class = "Qwen3_5MoeForCausalLM",
                  .base_class = "Qwen3_5MoeTextModel",
                  .kv_heads = 2}),
    delta_family({.family = Family::kQwen3Next,
                  .model_type = "qwen3_next",
                  .causal_class = "Qwen3NextForCausalLM",
                  .base_class = "Qwen3NextModel",
                  .kv_heads = 2}),
    {.family = Family::kLfm2,
     .model_type = "lfm2",
     .causal_class = "Lfm2ForCausalLM",
     .base_class = "Lfm2Model",
     .head_norms = HeadNorms::kEach,
     .short_conv_layers = true,
     .norm_eps = 1e-5,
     .kv_heads = 8,
     .theta = 1e6,
     .tied = true,
     .pad = 0},
    {.family = Family::kLfm2Moe,
     .model_type = "lfm2_moe",
     .causal_class = "Lfm2MoeForCausalLM",
     .base_class = "Lfm2MoeModel",
     .head_norms = HeadNorms::kEach,
     .short_conv_layers = true,
     .norm_eps = 1e-5,
     .kv_heads = 8,
     .theta = 1e6,
     .tied = true,
     .pad = 0},
    {.family = Family::kGraniteHybrid,
     .model_type = "granitemoehybrid",
     .causal_class = "GraniteMoeHybridForCausalLM",
     .base_class = "GraniteMoeHybridModel",
     .biases = BiasRule::kAttention,
     .unturned = UnturnedRule::kUnlessRope,
     .mamba2_layers = true,
     .granite_scales = true},
    {.family = Family::kBamba,
     .model_type = "bamba",
     .causal_class = "BambaForCausalLM",
     .base_class = "BambaModel",
     .biases = BiasRule::kAttentionAndMlp,
     .turns_parts = true,
     .turned_factor = 0.5,
     .mamba2_layers = true,
     .norm_eps = 1e-5,
     .kv_heads = 8,
     .pad = 0},
    {.family = Family::kNemotronH,
     .model_type = "nemotron_h",
     .causal_class = "NemotronHForCausalLM",
     .base_class = "NemotronHModel",
     .activation = ActivationKind::kReluSquared,
     .chooses_activation = true,
     .biases = BiasRule::kMlp,
     .unturned = UnturnedRule::kAll,
     .mamba2_layers = true,
     .single_parts = true,
     .norm_eps = 1e-5,
     .kv_heads = 8,
     .head_dim = 128,
     .pad = 0},
    {.family = Family::kFalconH1,
     .model_type = "falcon_h1",
     .causal_class = "FalconH1ForCausalLM",
     .base_class = "FalconH1Model",
     .biases = BiasRule::kAttentionAndMlp,
     .mamba2_layers = true,
     .attention_beside = true,
     .falcon_scales = true,
     .norm_eps = 1e-5,
     .kv_heads = 8,
     .pad = 0},
    {.family = Family::kOlmoHybrid,
     .model_type = "olmo_hybrid",
     .causal_class = "OlmoHybridForCausalLM",
     .base_class = "OlmoHybridModel",
     .norm_place = NormPlace::kAfter,
     .recurrent_norms_before = true,
     .head_norms = HeadNorms::kWhole,
     .biases = BiasRule::kAttention,
     .unturned = UnturnedRule::kIfNoTheta,
     .delta_layers = true,
     .bos = -1,
     .eos = 100257,
     .pad = 100277},
};

}  // namespace jige::formats
