// The rows of encoders in the table of model families.
//
// Internal to model_families.h. Threads: constants.
#pragma once

#include "formats/model_config.h"
#include "formats/model_family_info.h"

namespace jige::formats {

// What encoders have in common whose norms are behind the sums.
constexpr FamilyInfo summed_encoder(FamilyInfo row) {
  row.norm = NormKind::kLayer;
  row.norm_place = NormPlace::kSum;
  row.embedding_norm = true;
  row.encoder = true;
  row.tied = true;
  return row;
}

// And those that are built as BERT is.
constexpr FamilyInfo bert_like(FamilyInfo row) {
  row = summed_encoder(row);
  row.activation = ActivationKind::kGeluErf;
  row.chooses_activation = true;
  row.biases = BiasRule::kEverywhere;
  row.learned_positions = true;
  return row;
}

inline constexpr FamilyInfo kEncoderFamilies[] = {
    bert_like({.family = Family::kBert,
               .model_type = "bert",
               .causal_class = "BertModel",
               .base_class = "BertModel",
               .token_types = true,
               .norm_eps = 1e-12,
               .bos = -1,
               .eos = -1,
               .pad = 0}),
    bert_like({.family = Family::kRoberta,
               .model_type = "roberta",
               .causal_class = "RobertaModel",
               .base_class = "RobertaModel",
               .token_types = true,
               .norm_eps = 1e-12,
               .bos = 0,
               .eos = 2,
               .pad = 1}),
    bert_like({.family = Family::kXlmRoberta,
               .model_type = "xlm-roberta",
               .causal_class = "XLMRobertaModel",
               .base_class = "XLMRobertaModel",
               .token_types = true,
               .norm_eps = 1e-12,
               .bos = 0,
               .eos = 2,
               .pad = 1}),
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
    bert_like({.family = Family::kDistilBert,
               .model_type = "distilbert",
               .causal_class = "DistilBertModel",
               .base_class = "DistilBertModel",
               .norm_eps = 1e-12,
               .bos = -1,
               .eos = -1,
               .pad = 0}),
    bert_like({.family = Family::kMpNet,
               .model_type = "mpnet",
               .causal_class = "MPNetModel",
               .base_class = "MPNetModel",
               .distance_scores = true,
               .norm_eps = 1e-12,
               .bos = 0,
               .eos = 2,
               .pad = 1}),
    summed_encoder({.family = Family::kNomicBert,
                    .model_type = "nomic_bert",
                    .causal_class = "NomicBertModel",
                    .base_class = "NomicBertModel",
                    .turns_parts = true,
                    .token_types = true,
                    .turned_field = "rotary_emb_fraction",
                    .norm_eps = 1e-12,
                    .theta = 1000,
                    .bos = -1,
                    .eos = -1,
                    .pad = 0}),
    bert_like({.family = Family::kDebertaV2,
               .model_type = "deberta-v2",
               .causal_class = "DebertaV2Model",
               .base_class = "DebertaV2Model",
               .token_types = true,
               .types_optional = true,
               .distance_rows = true,
               .norm_eps = 1e-7,
               .token_type_count = 0,
               .bos = -1,
               .eos = -1,
               .pad = 0}),
    summed_encoder({.family = Family::kGte,
                    .model_type = "new",
                    .causal_class = "NewModel",
                    .base_class = "NewModel",
                    .activation = ActivationKind::kGeGluErf,
                    .biases = BiasRule::kNotMlpInput,
                    .chooses_fused = true,
                    .token_types = true,
                    .types_optional = true,
                    .norm_eps = 1e-12,
                    .token_type_count = 1,
                    .bos = -1,
                    .eos = -1,
                    .pad = 0}),
    {.family = Family::kEuroBert,
     .model_type = "eurobert",
     .causal_class = "EuroBertModel",
     .base_class = "EuroBertModel",
     .biases = BiasRule::kAttentionAndMlp,
     .encoder = true,
     .shares_heads = true,
     .norm_eps = 1e-5,
     .tied = true,
     .bos = 128000,
     .eos = 128001,
     .pad = 128001},
};

}  // namespace jige::formats
