// Further rows of the table of model families without recurrent layers (model_family_table.h), in
// the order of Family.
//
// Internal to model_families.h. Threads: constants.
#pragma once

#include "formats/model_config.h"
#include "formats/model_family_info.h"

namespace jige::formats {

inline constexpr FamilyInfo kFurtherFamilies[] = {
    {.family = Family::kGraniteMoe,
     .model_type = "granitemoe",
     .causal_class = "GraniteMoeForCausalLM",
     .base_class = "GraniteMoeModel",
     .biases = BiasRule::kAttention,
     .granite_scales = true},
    {.family = Family::kGraniteMoeShared,
     .model_type = "granitemoeshared",
     .causal_class = "GraniteMoeSharedForCausalLM",
     .base_class = "GraniteMoeSharedModel",
     .biases = BiasRule::kAttention,
     .granite_scales = true},
    {.family = Family::kErnie45Moe,
     .model_type = "ernie4_5_moe",
     .causal_class = "Ernie4_5_MoeForCausalLM",
     .base_class = "Ernie4_5_MoeModel",
     .biases = BiasRule::kUseBias,
     .turns_neighbours = true,
     .norm_eps = 1e-5,
     .kv_heads = 4,
     .theta = 5e5,
     .tied = true,
     .pad = 0},
    {.family = Family::kDots1,
     .model_type = "dots1",
     .causal_class = "Dots1ForCausalLM",
     .base_class = "Dots1Model",
     .head_norms = HeadNorms::kEach,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kSomeLayers,
     .kv_heads = 32,
     .bos = -1,
     .eos = -1},
    {.family = Family::kMiniMaxM2,
     .model_type = "minimax_m2",
     .causal_class = "MiniMaxM2ForCausalLM",
     .base_class = "MiniMaxM2Model",
     .head_norms = HeadNorms::kWhole,
     .turns_parts = true,
     .kv_heads = 8,
     .head_dim = 128,
     .theta = 5e6,
     .bos = 200034,
     .eos = 200020},
    {.family = Family::kApertus,
     .model_type = "apertus",
     .causal_class = "ApertusForCausalLM",
     .base_class = "ApertusModel",
     .head_norms = HeadNorms::kEach,
     .activation = ActivationKind::kXielu,
     .biases = BiasRule::kAttention,
     .norm_eps = 1e-5,
     .theta = 1.2e7,
     .pad = 3},
};

}  // namespace jige::formats
