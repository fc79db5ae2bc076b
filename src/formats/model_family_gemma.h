// The rows of Gemma in the table of model families.
//
// Internal to model_families.h. Threads: constants.
#pragma once

#include "formats/model_config.h"
#include "formats/model_family_info.h"

namespace jige::formats {

// What all of them have in common.
constexpr FamilyInfo gemma_family(FamilyInfo row) {
  row.activation = ActivationKind::kGeGlu;
  row.biases = BiasRule::kAttention;
  row.root_scale = true;
  row.head_dim = 256;
  row.tied = true;
  row.bos = 2;
  row.eos = 1;
  row.pad = 0;
  return row;
}

inline constexpr FamilyInfo kGemmaFamilies[] = {
    gemma_family({.family = Family::kGemma2,
                  .model_type = "gemma2",
                  .causal_class = "Gemma2ForCausalLM",
                  .base_class = "Gemma2Model",
                  .norm_place = NormPlace::kAround,
                  .norm_adds_one = true,
                  .windows = WindowRule::kSomeLayers,
                  .full_period = 2,
                  .gemma_scores = true,
                  .kv_heads = 4,
                  .score_cap = 50,
                  .logits_cap = 30}),
    gemma_family({.family = Family::kGemma3,
                  .model_type = "gemma3_text",
                  .causal_class = "Gemma3ForCausalLM",
                  .base_class = "Gemma3TextModel",
                  .norm_place = NormPlace::kAround,
                  .norm_adds_one = true,
                  .head_norms = HeadNorms::kEach,
                  .windows = WindowRule::kSomeLayers,
                  .full_period = 6,
                  .ahead = AheadRule::kEither,
                  .two_ropes = true,
                  .gemma_scores = true,
                  .kv_heads = 4,
                  .theta = 1e6}),
    gemma_family({.family = Family::kGemma,
                  .model_type = "gemma",
                  .causal_class = "GemmaForCausalLM",
                  .base_class = "GemmaModel",
                  .norm_adds_one = true,
                  .kv_heads = 16}),
    gemma_family({.family = Family::kGemma4,
                  .model_type = "gemma4_text",
                  .causal_class = "Gemma4ForCausalLM",
                  .base_class = "Gemma4TextModel",
                  .norm_place = NormPlace::kAround,
                  .head_norms = HeadNorms::kEach,
                  .windows = WindowRule::kSomeLayers,
                  .full_period = 6,
                  .two_ropes = true,
                  .ropes_by_kind = true,
                  .proportional_rope = true,
                  .full_heads = true,
                  .value_norm = true,
                  .layer_scales = true,
                  .scores_by_head_dim = false,
                  .logits_cap_field = true,
                  .kv_heads = 4,
                  .window = 512,
                  .theta = 1e6}),
    gemma_family({.family = Family::kGemma3n,
                  .model_type = "gemma3n_text",
                  .causal_class = "Gemma3nForCausalLM",
                  .base_class = "Gemma3nTextModel",
                  .norm_place = NormPlace::kAround,
                  .head_norms = HeadNorms::kEach,
                  .windows = WindowRule::kSomeLayers,
                  .full_period = 5,
                  .two_ropes = true,
                  .altup = true,
                  .value_norm = true,
                  .scores_by_head_dim = false,
                  .logits_cap_field = true,
                  .kv_heads = 2,
                  .window = 512,
                  .theta = 1e6,
                  .logits_cap = 30}),
    gemma_family({.family = Family::kVaultGemma,
                  .model_type = "vaultgemma",
                  .causal_class = "VaultGemmaForCausalLM",
                  .base_class = "VaultGemmaModel",
                  .norm_adds_one = true,
                  .windows = WindowRule::kSomeLayers,
                  .full_period = 2,
                  .gemma_scores = true,
                  .kv_heads = 4,
                  .score_cap = 50,
                  .logits_cap = 30}),
};

}  // namespace jige::formats
